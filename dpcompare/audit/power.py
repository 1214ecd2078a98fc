"""What an attack can be expected to find: the scores of ideal mechanisms, drawn many times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpcompare.audit.bounds import Guesses, guess, lower_bound

SHARES = (1 / 300, 1 / 100, 1 / 30, 1 / 10, 1 / 3, 1.0)
"""How many of the coins an attacker may guess."""

REPEATS = 10
"""Draws of all scores over which expectations are taken."""

Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]
"""Draws scores and coins, (m,) each, of which the middle is 0."""


@dataclass(frozen=True)
class GaussianScores:
    """Scores of gradient canaries under ideal noise, in units of the sensitivity.

    A canary that takes part adds 1 in each step that draws it, and all see the noise of every step.

    Attributes:
        canaries: m.
        noise_multiplier: of each step.
        sampling_probability: of a canary in each step.
        steps: of the run.
        opposite: whether tails adds -1 and not 0.
    """

    canaries: int
    noise_multiplier: float
    sampling_probability: float
    steps: int
    opposite: bool

    def __call__(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Scores and coins, (m,) each."""
        coins = rng.integers(0, 2, self.canaries).astype(bool)
        drawn = rng.binomial(self.steps, self.sampling_probability, self.canaries)
        scores = drawn * np.where(coins, 1.0, -1.0 if self.opposite else 0.0)
        noise = self.noise_multiplier * self.steps**0.5 * rng.normal(size=self.canaries)
        return scores + noise - self.middle, coins

    @property
    def middle(self) -> float:
        """Halfway between the means of heads and tails."""
        return 0.0 if self.opposite else self.steps * self.sampling_probability / 2


def expected_guesses(
    draw: Draw, shares: Sequence[float], rng: np.random.Generator
) -> list[Guesses]:
    """The guesses about each of some shares of the coins, right as often as expected."""
    found = []
    for _ in range(REPEATS):
        scores, coins = draw(rng)
        found.append([guess(scores, coins, made_of(share, coins), middle=0.0) for share in shares])
    rights = np.mean([[guesses.right for guesses in row] for row in found], axis=0)
    pairs = zip(found[0], rights, strict=True)
    return [guesses._replace(right=int(right)) for guesses, right in pairs]


def made_of(share: float, coins: np.ndarray) -> int:
    """How many guesses a share of the coins is; at least one."""
    return max(1, round(share * len(coins)))


def best_share(draw: Draw, delta: float, rng: np.random.Generator, gaussian: bool = False) -> float:
    """The share of the coins about which guesses promise the largest bound.

    It depends on nothing that was released, so no bound has to be corrected for the choice.

    Args:
        draw: of the scores of the mechanism that is to be found out.
        delta: of the claim.
        rng: a generator.
        gaussian: as in :func:`dpcompare.audit.bounds.lower_bound`.
    """
    of_shares = expected_guesses(draw, SHARES, rng)
    bounds = [lower_bound(guesses, delta, gaussian) for guesses in of_shares]
    return SHARES[int(np.argmax(bounds))]
