"""The attack on gradient mechanisms: one run with many canaries (arXiv 2305.08846, section 6).

The canaries go through the trainer that every study uses: its sampling, clipping, noise and lazy
tables. The attacker sees all parameters before and after; a canary's score is how far its own row
of the table moved against its gradient. The optimizer is plain SGD with a constant rate: whatever
another one does with noisy gradients is computed from them, and so cannot show more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import dp_accounting as dp
import numpy as np

from dpcompare import accounting, calibration, tasks
from dpcompare.audit.bounds import guess, lower_bound
from dpcompare.audit.canaries import KERNEL_NORM, Canaries, attacked, canaries
from dpcompare.audit.finding import (
    Finding,
    of_advantage,
    of_bounds,
    of_claim,
    of_schedule,
)
from dpcompare.audit.power import GaussianScores, best_share, expected_guesses, made_of
from dpcompare.errors import UsageError
from dpcompare.mechanism import GradientRelease, Mechanism
from dpcompare.model import Parameters
from dpcompare.optimizers import Recipe
from dpcompare.privacy import Budget, Guarantee, Release, Schedule
from dpcompare.randomness import numpy_generator
from dpcompare.trainer import Streams, train

MOST_ROWS = 1_500_000
"""Of all steps of an attack together. A schedule with more is attacked with fewer canaries."""

FEWEST_CANARIES = 10_000
"""Unless fewer are asked for, steps are cut before there are fewer canaries than these."""

LEAST_CANARIES = 100
"""With fewer no bound tells anything."""

MOVEMENT = 0.01
"""How far noise moves each number of the table: little, so that the loss stays where it began."""


@dataclass(frozen=True)
class Scores:
    """What the attacker computes from one run.

    Attributes:
        values: (m,) in units of the sensitivity: the number of steps that a canary took part in
            plus noise.
        coins: (m,) booleans.
        signal: the mean difference between heads and tails, over what it would be if every canary
            had its full share of every step that draws it.
        shared: the largest share of a canary's squared gradient norm that lies where others' do.
    """

    values: np.ndarray
    coins: np.ndarray
    signal: float
    shared: float


def full_participation(mechanism: Mechanism, count: int) -> Schedule:
    """The schedule that shows most: every row in every one of a few steps.

    Args:
        mechanism: not calibrated.
        count: rows.
    """
    return Schedule(count, count, 4, mechanism.sampling)


def affordable(schedule: Schedule, group_size: int, count: int) -> Schedule:
    """A trial's schedule for at most `count` canaries: of equal chance to be drawn, and steps.

    Where that takes more than MOST_ROWS rows there are fewer canaries, and fewer steps only where
    there would be less than FEWEST_CANARIES of them.

    Args:
        schedule: of the trial.
        group_size: rows that are drawn and clipped together, of which each group is a canary.
        count: canaries.

    Raises:
        UsageError: one group has so many rows that too few groups would be left.
    """
    q = schedule.sampling_probability(group_size)
    rows_of_canary = q * schedule.steps * group_size
    count = min(count, MOST_ROWS // group_size)
    if count < LEAST_CANARIES:
        raise UsageError(
            f"groups of {group_size:,} rows are too large to attack: {MOST_ROWS:,} rows make "
            f"{count:,} of them, and at least {LEAST_CANARIES:,} are needed"
        )
    chosen = min(count, max(math.floor(MOST_ROWS / rows_of_canary), min(count, FEWEST_CANARIES)))
    steps = min(schedule.steps, max(1, math.floor(MOST_ROWS / (q * group_size * chosen))))
    batch_size = max(1, round(q * chosen * group_size))
    return Schedule(chosen * group_size, batch_size, steps, schedule.sampling)


def attack_gradients(
    mechanism: Mechanism,
    schedule: Schedule,
    budget: Budget,
    seed: int,
    label: str,
    claims: int = 1,
) -> Finding:
    """Attack one run over a schedule, and hold the bound against what is claimed of that run.

    Args:
        mechanism: calibrated; it releases gradients.
        schedule: of the attack, with one canary per group of rows.
        budget: what was asked for; its delta, relation and accountant are those of the claim.
        seed: names all random streams.
        label: of the finding.
        claims: how many the audit is about.
    """
    release = _release(mechanism)
    releases = mechanism.events(schedule)
    claim = accounting.guarantee(releases, budget.delta, budget.neighboring, budget.accountant)
    opposite = release.group_size > 1 or claim.neighboring == "replace-one"
    found = scores(mechanism, schedule, opposite, seed)
    of_claimed, of_half = ideal_scores(claim, schedule, release.group_size, opposite)
    gaussian = is_gaussian(releases)
    rng = numpy_generator("audit: power")
    share = best_share(of_half, claim.delta, rng, gaussian)

    def expected(draw: GaussianScores) -> float:
        (guesses,) = expected_guesses(draw, [share], rng)
        return lower_bound(guesses, claim.delta, gaussian)

    middle = float(np.median(found.values))
    guesses = guess(found.values, found.coins, made_of(share, found.coins), middle)
    probability = schedule.sampling_probability(release.group_size)
    return Finding(
        label=label,
        asked=budget.epsilon,
        attack="gradient canaries",
        expected_at_claim=expected(of_claimed),
        expected_if_half=expected(of_half),
        method="Gaussian trade-off curve, arXiv 2410.22235" if gaussian else "arXiv 2305.08846",
        schedule=of_schedule(
            schedule, float(release.noise_multiplier), release.group_size, probability
        ),
        signal=found.signal,
        shared=found.shared,
        **of_claim(claim),
        **of_bounds(claim, guesses, claims, gaussian),
        **of_advantage(claim, guess(found.values, found.coins, len(found.coins), middle)),
    )


def scores(mechanism: Mechanism, schedule: Schedule, opposite: bool, seed: int) -> Scores:
    """Train on canaries, and see how far each one's row has moved.

    Args:
        mechanism: calibrated.
        schedule: of the run.
        opposite: whether tails is the opposite gradient, and not a zero one.
        seed: names all random streams.
    """
    release = _release(mechanism)
    sensitivity, size = float(release.sensitivity), release.group_size
    words = ("audit", seed)
    rng = numpy_generator("audit: coins", seed)
    made = canaries(schedule, size, opposite, sensitivity, rng, *words)
    divisor = schedule.expected_groups(size)
    noise = float(release.noise_multiplier) * schedule.steps**0.5
    rate = MOVEMENT * divisor / (sensitivity * max(noise, 1.0))
    trained = train(
        attacked(mechanism),
        tasks.PCTR,
        made.model,
        made.features,
        made.slopes,
        schedule,
        Recipe("sgd", rate, "constant"),
        Streams(words, (*words, "noise", float(release.noise_multiplier))),
    )
    return _scores(made, trained, divisor / (sensitivity * rate), schedule, size, opposite)


def _scores(
    made: Canaries,
    trained: Parameters,
    scale: float,
    schedule: Schedule,
    group_size: int,
    opposite: bool,
) -> Scores:
    rows = made.model.rows(trained)
    values = -scale * rows.sum(axis=1) / math.sqrt(rows.shape[1])
    most = schedule.steps * schedule.sampling_probability(group_size) * (2 if opposite else 1)
    difference = values[made.coins].mean() - values[~made.coins].mean()
    # Bias and output layer are shared: the derivatives for them are 1 and the row itself.
    others = 1.0 + float(np.max(np.sum(rows**2, axis=1)))
    return Scores(values, made.coins, difference / most, others / (others + KERNEL_NORM**2))


def ideal_scores(
    claim: Guarantee, schedule: Schedule, group_size: int, opposite: bool
) -> tuple[GaussianScores, GaussianScores]:
    """The scores of ideal DP-SGD that spends exactly the claim, and with half its noise."""
    budget = Budget(claim.epsilon, claim.delta, "zero-out", "pld")
    if opposite and group_size == 1:
        budget = Budget(claim.epsilon, claim.delta, "replace-one", "pld")
    sampled = Schedule(schedule.examples, schedule.batch_size, schedule.steps, "poisson")
    sigma = calibration.noise_multiplier(budget, sampled, group_size)
    groups = schedule.groups(group_size)
    probability = schedule.sampling_probability(group_size)
    ideal = GaussianScores(groups, sigma, probability, schedule.steps, opposite)
    return ideal, replace(ideal, noise_multiplier=sigma / 2)


def is_gaussian(releases: Sequence[Release]) -> bool:
    """Whether all that was released are Gaussian mechanisms on all rows."""
    return all(_is_gaussian(release.event) for release in releases)


def _is_gaussian(event: dp.DpEvent) -> bool:
    if isinstance(event, dp.ComposedDpEvent):
        return all(_is_gaussian(part) for part in event.events)
    if isinstance(event, dp.SelfComposedDpEvent):
        return _is_gaussian(event.event)
    return isinstance(event, dp.GaussianDpEvent)


def _release(mechanism: Mechanism) -> GradientRelease:
    release = mechanism.gradient()
    if release is None:
        raise UsageError("a mechanism that releases no gradients has none to attack")
    return release
