"""From guesses to a lower bound on epsilon, by jax-privacy.

In one run every canary has a coin of its own, and an attacker guesses some of the coins. If the
mechanism is (epsilon, delta)-DP, each guess is right with probability at most about
``1 / (1 + exp(-epsilon))``, so too many right ones refute it (Steinke, Nasr, Jagielski, arXiv
2305.08846, theorem 5.2, which allows guesses of heads and of tails). If what is claimed is even
that all rows went through Gaussian mechanisms, its trade-off curve refutes smaller claims
(Mahloujifar, Melis, Chaudhuri, arXiv 2410.22235).
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import beta

from dpcompare.errors import UsageError

ERROR = 0.05
"""The chance that a bound is above the true epsilon: each bound is 95% sure."""

FALSE_ALARM = 1e-3
"""The chance that any claim of an audit that is true, and perhaps met exactly, is called violated.

One in twenty would be too many for claims that are met exactly, as those of randomized labels are.
"""

PURE = 1e-300
"""Stands for a delta of 0, which jax-privacy refuses: added to any p-value it is nothing."""


class Guesses(NamedTuple):
    """How well coins were guessed.

    Attributes:
        canaries: m, all coins.
        made: guesses; about the other coins nothing was said.
        right: how many were right.
    """

    canaries: int
    made: int
    right: int


def guess(scores: np.ndarray, coins: np.ndarray, made: int, middle: float) -> Guesses:
    """Guess heads above the middle and tails below, where scores are farthest from it.

    Args:
        scores: (m,), larger where heads is more likely; equal ones in an order without meaning.
        coins: (m,) booleans, not used to choose.
        made: how many guesses, fixed before the scores were seen.
        middle: a number that depends on the scores at most.
    """
    distances = np.abs(scores - middle)
    farthest = np.argpartition(-distances, made - 1)[:made]
    right = np.count_nonzero((scores[farthest] > middle) == coins[farthest])
    return Guesses(len(coins), made, int(right))


def lower_bound(
    guesses: Guesses, delta: float, gaussian: bool = False, error: float = ERROR
) -> float:
    """The largest epsilon that the guesses refute at `delta`; 0 if they refute none.

    Args:
        guesses: their number fixed in advance.
        delta: of the claim.
        gaussian: whether the claim is one of Gaussian mechanisms without sampling: then bound by
            their trade-off curve.
        error: the chance that the bound is above the true epsilon.

    Raises:
        UsageError: jax-privacy is not installed.
    """
    auditing = library()
    canaries, made, right = guesses
    if right == 0:
        return 0.0
    # The library guesses heads where a score is high; what it counts are right and wrong guesses.
    # It wants some of either kind: one more coin about which nothing is guessed does no harm.
    of_right, of_wrong = np.ones(right), np.zeros(max(1, canaries - right))
    of_wrong[: made - right] = 1.0
    auditor = auditing.CanaryScoreAuditor(of_right, of_wrong)
    bound = auditor.epsilon_one_run_fdp if gaussian else auditor.epsilon_one_run
    strategy = auditing.Explicit(threshold=1.0)
    return float(bound(error, max(delta, PURE), threshold_strategy=strategy))


def library() -> Any:
    """The module of jax-privacy that makes bounds.

    Raises:
        UsageError: it is not installed.
    """
    try:
        from jax_privacy import auditing
    except ImportError as error:
        raise UsageError(
            "an audit computes its bounds with jax-privacy, which is not installed: "
            "pip install 'dpcompare[audit]'"
        ) from error
    return auditing


def advantage_interval(guesses: Guesses) -> tuple[float, float]:
    """The 95% interval of TPR - FPR by Clopper and Pearson, of guesses about every coin.

    A fair coin is guessed rightly with probability ``(1 + TPR - FPR) / 2``, independently.
    """
    n, k = guesses.made, guesses.right
    low = float(beta.ppf(ERROR / 2, k, n - k + 1)) if k else 0.0
    high = float(beta.ppf(1 - ERROR / 2, k + 1, n - k)) if k < n else 1.0
    return 2 * low - 1, 2 * high - 1


def largest_advantage(epsilon: float, delta: float) -> float:
    """What TPR - FPR cannot exceed under (epsilon, delta)-DP; ``tanh(epsilon / 2)`` if pure."""
    if math.isinf(epsilon):
        return 1.0
    return min(1.0, math.tanh(epsilon / 2) + 2 * delta / (1 + math.exp(min(epsilon, 700.0))))
