"""The attack on label mechanisms: canary labels are coins, and what is released is read.

Each label is 0 or the largest one, by a fair coin. The attacker knows the mechanism and guesses
from the released labels which it was: by the likelihood ratio where the mechanism states its
kernel or its noise, else by which of the two the released value is nearer to. All labels are
canaries of one run.
"""

import math
from typing import Any

import jax
import numpy as np

from dpcompare import accounting
from dpcompare.audit.bounds import Guesses, guess, lower_bound
from dpcompare.audit.finding import Finding, of_advantage, of_bounds, of_claim
from dpcompare.audit.power import best_share, expected_guesses, made_of
from dpcompare.data.dataset import Features
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.label_kernel import LabelKernel
from dpcompare.label_noise import LabelNoise
from dpcompare.mechanism import Mechanism
from dpcompare.privacy import Budget, Schedule
from dpcompare.randomness import numpy_generator
from dpcompare.tasks import Task

CERTAIN = 1e9
"""Stands for an infinite log likelihood ratio."""

SAME_OUTPUT = 1e-4
"""Released values this close to an output of the kernel, relatively, are that output in float32."""


class DeclaredScores:
    """Scores as a mechanism's own kernel or noise says they are distributed.

    Args:
        mechanism: which has released labels, and so knows its kernel.
        task: whose labels they are.
        count: how many labels.
        epsilon: of ideal randomized response, where the mechanism states neither.
    """

    def __init__(self, mechanism: Mechanism, task: Task, count: int, epsilon: float) -> None:
        self._kernel = mechanism.kernel(task)
        self._noise = mechanism.label_noise(task)
        self._task, self._count, self._epsilon = task, count, epsilon

    def __call__(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Scores and coins, (n,) each."""
        coins, labels = coin_labels(self._count, self._task, rng)
        if self._kernel is not None:
            return _of_kernel(self._kernel)[self._kernel.sample(labels, rng)], coins
        if self._noise is not None:
            noisy = labels + self._noise.sample(len(labels), rng)
            if self._noise.clamped:
                noisy = np.clip(noisy, 0, self._noise.cap)
            return _of_noise(self._noise, noisy), coins
        kept = rng.random(len(coins)) < 1 / (1 + math.exp(-self._epsilon))
        return np.where(kept == coins, 1.0, -1.0), coins


def attack_labels(
    mechanism: Mechanism,
    budget: Budget,
    task: Task,
    count: int,
    seed: int,
    label: str,
    claims: int = 1,
) -> Finding:
    """Attack one release of labels, and hold the bound against what is claimed of it.

    Args:
        mechanism: not calibrated.
        budget: that it is calibrated for.
        task: whose labels they are.
        count: labels, all of them canaries.
        seed: names all random streams.
        label: of the finding.
        claims: how many the audit is about.

    Raises:
        UsageError: the mechanism refuses the budget or the task.
        DpcompareError: what it releases is not one number per label.
    """
    calibrated = mechanism.calibrate(budget, _schedule(mechanism, count), task)
    rng = numpy_generator("audit: labels", seed, label, str(budget.epsilon))
    coins, labels = coin_labels(count, task, rng)
    informed, values = _release(
        calibrated, labels, task, "audit: release", seed, label, str(budget.epsilon)
    )
    releases = informed.events(_schedule(mechanism, count))
    claim = accounting.guarantee(releases, budget.delta, budget.neighboring, budget.accountant)
    # Of other labels and draws, so that no number of guesses depends on what is attacked.
    of_claimed = _declared(mechanism, budget, claim.epsilon, task, count, seed)
    of_half = _with_twice_epsilon(mechanism, budget, task, count, seed)
    share = best_share(of_half or of_claimed, claim.delta, rng)

    def expected(draw: DeclaredScores) -> float:
        (guesses,) = expected_guesses(draw, [share], rng)
        return lower_bound(guesses, claim.delta)

    found = scores(informed, task, values)
    guesses = _guess(found, coins, share, rng)
    private = math.isfinite(claim.epsilon)
    return Finding(
        label=label,
        asked=budget.epsilon,
        attack="label canaries",
        expected_at_claim=expected(of_claimed) if private else None,
        expected_if_half=expected(of_half) if private and of_half else None,
        method="arXiv 2305.08846",
        **of_claim(claim),
        **of_bounds(claim, guesses, claims),
        **of_advantage(claim, _guess(found, coins, 1.0, rng)),
    )


def coin_labels(count: int, task: Task, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Fair coins, (n,) booleans, and labels of 0 for tails and the largest for heads, (n,)."""
    coins = rng.integers(0, 2, count).astype(bool)
    return coins, np.where(coins, task.classes - 1, 0)


def scores(mechanism: Mechanism, task: Task, values: np.ndarray) -> np.ndarray:
    """How much more likely each released value is for the largest label than for 0, (n,).

    Log likelihood ratios as the mechanism states them; where it does not, or where the values are
    none of its outputs, the distance to the middle of the two labels.

    Args:
        mechanism: which has released the labels.
        task: whose labels they are.
        values: (n,) what it released.
    """
    kernel, noise = mechanism.kernel(task), mechanism.label_noise(task)
    if kernel is not None:
        nearest = np.argmin(np.abs(values[:, None] - kernel.outputs), axis=1)
        gaps = np.abs(values - kernel.outputs[nearest])
        if np.all(gaps <= SAME_OUTPUT * np.maximum(1.0, np.abs(values))):
            return _of_kernel(kernel)[nearest]
    elif noise is not None:
        return _of_noise(noise, values)
    return values - (task.classes - 1) / 2


def _of_kernel(kernel: LabelKernel) -> np.ndarray:
    """The log likelihood ratio of each output, (O,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(kernel.probabilities[-1]) - np.log(kernel.probabilities[0])
    return np.nan_to_num(np.clip(ratios, -CERTAIN, CERTAIN))


def _of_noise(noise: LabelNoise, values: np.ndarray) -> np.ndarray:
    """The log likelihood ratio of each noisy label, (n,)."""
    with np.errstate(invalid="ignore"):
        ratios = noise.log_density(values - noise.cap) - noise.log_density(values)
    return np.nan_to_num(np.clip(ratios, -CERTAIN, CERTAIN))


def _guess(found: np.ndarray, coins: np.ndarray, share: float, rng: np.random.Generator) -> Guesses:
    """Guesses about a share of the labels; equal scores are chosen among at random."""
    order = rng.permutation(len(coins))
    return guess(found[order], coins[order], made_of(share, coins), middle=0.0)


def _declared(
    mechanism: Mechanism, budget: Budget, claimed: float, task: Task, count: int, seed: int
) -> DeclaredScores:
    """The scores that a mechanism states at a budget, once it has released labels of its own."""
    words = "audit: declared", seed, str(budget.epsilon)
    _, labels = coin_labels(count, task, numpy_generator(*words, "labels"))
    calibrated = mechanism.calibrate(budget, _schedule(mechanism, count), task)
    informed, _ = _release(calibrated, labels, task, *words, "release")
    return DeclaredScores(informed, task, count, claimed)


def _with_twice_epsilon(
    mechanism: Mechanism, budget: Budget, task: Task, count: int, seed: int
) -> DeclaredScores | None:
    """What half the noise would give away; None where there is no such mechanism."""
    twice = Budget(2 * budget.epsilon, budget.delta, budget.neighboring, budget.accountant)
    if math.isinf(budget.epsilon):
        return None
    try:
        return _declared(mechanism, twice, twice.epsilon, task, count, seed)
    except UsageError:
        return None


def _release(
    mechanism: Mechanism, labels: np.ndarray, task: Task, *words: Any
) -> tuple[Mechanism, np.ndarray]:
    """One release, as (n,) float64."""
    nothing = Features(np.zeros((len(labels), 1), np.float32), np.zeros((len(labels), 1), np.int32))
    informed, released = mechanism.release_labels(labels, nothing, numpy_generator(*words), task)
    leaves = jax.tree.leaves(released)
    if len(leaves) != 1 or np.shape(leaves[0]) != labels.shape:
        shapes = ", ".join(str(np.shape(leaf)) for leaf in leaves)
        raise DpcompareError(
            "released labels are attacked where they are one number per label; "
            f"{type(mechanism).__name__} released arrays of shape {shapes}"
        )
    return informed, np.asarray(leaves[0], np.float64)


def _schedule(mechanism: Mechanism, count: int) -> Schedule:
    """Labels are released once, whatever the schedule."""
    return Schedule(count, count, 1, mechanism.sampling)
