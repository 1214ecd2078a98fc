"""What an audit found about one claim, as a record."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dpcompare.audit.bounds import (
    ERROR,
    FALSE_ALARM,
    Guesses,
    advantage_interval,
    largest_advantage,
    lower_bound,
)
from dpcompare.privacy import Guarantee, Schedule

Attack = Literal["gradient canaries", "label canaries", "none"]

HOLDS = "claim holds against this attack"
VIOLATED = "VIOLATED"
UNDECIDED = "undecided: repeat with another seed"
NOTHING_CLAIMED = "nothing is claimed"
NOT_ATTACKED = "not attacked"


@dataclass(frozen=True)
class Finding:
    """One claim and what the attack on it found. Every number but a claim is None if not known.

    Attributes:
        label: the mechanism, or a curve of a study.
        asked: the epsilon that was asked for.
        attack: what kind of canaries; "none" where nothing was attacked.
        verdict: one of HOLDS, VIOLATED, UNDECIDED, NOTHING_CLAIMED and NOT_ATTACKED.
        epsilon, delta, unit, neighboring: what is claimed of the schedule that was attacked;
            epsilon is infinite where nothing is.
        lower_bound: the largest epsilon that the attack refutes at delta, with 95% confidence.
        sure_bound: the same with 99.9% confidence for all claims of the audit together; a claim
            below it is violated.
        expected_at_claim: the bound that an ideal mechanism would lead to that spends the claim.
        expected_if_half: the same if its noise were half (of labels: if epsilon were twice).
        method: how the bound was made.
        canaries, guesses, right: coins, guesses about them, and right ones.
        advantage: TPR - FPR of guesses about all coins, with its 95% interval `advantage_low` to
            `advantage_high`, and `largest_advantage`, what the claim allows.
        schedule: examples, batch_size, steps, sampling, sampling_probability, noise_multiplier and
            group_size of the attack on gradients; empty for labels.
        signal: what a canary that takes part adds to its score, in shares of the most it may add.
        shared: the largest share of a canary's squared gradient norm that lies where others' do.
        notes: what else must be known, one sentence each.
        trials: identities of the trials whose claim this is.
    """

    label: str
    asked: float
    attack: Attack
    verdict: str
    epsilon: float = math.inf
    delta: float = 0.0
    unit: str | None = None
    neighboring: str | None = None
    lower_bound: float | None = None
    sure_bound: float | None = None
    expected_at_claim: float | None = None
    expected_if_half: float | None = None
    method: str = ""
    canaries: int | None = None
    guesses: int | None = None
    right: int | None = None
    advantage: float | None = None
    advantage_low: float | None = None
    advantage_high: float | None = None
    largest_advantage: float | None = None
    schedule: Mapping[str, Any] = field(default_factory=dict)
    signal: float | None = None
    shared: float | None = None
    notes: Sequence[str] = ()
    trials: Sequence[str] = ()

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.verdict == VIOLATED

    def to_json(self) -> dict[str, Any]:
        """Plain values of strict JSON; infinity is "inf"."""
        values = {**asdict(self), "notes": list(self.notes), "trials": list(self.trials)}
        return {key: "inf" if value == math.inf else value for key, value in values.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Finding":
        """The inverse of :meth:`to_json`.

        Raises:
            TypeError: these are not the values of a finding.
        """
        read: dict[str, Any] = {k: math.inf if v == "inf" else v for k, v in values.items()}
        for name in ("notes", "trials"):
            read[name] = tuple(read.get(name, ()))
        return cls(**read)


def of_bounds(
    claim: Guarantee, guesses: Guesses, claims: int, gaussian: bool = False
) -> dict[str, Any]:
    """The fields of a finding that say what guesses refute.

    Args:
        claim: what is claimed; a claim of no privacy cannot be refuted.
        guesses: their number fixed in advance.
        claims: how many the audit is about.
        gaussian: as in :func:`dpcompare.audit.bounds.lower_bound`.
    """
    bound, sure_bound = (
        lower_bound(guesses, claim.delta, gaussian, chance)
        for chance in (ERROR, FALSE_ALARM / claims)
    )
    verdict = HOLDS
    if math.isinf(claim.epsilon):
        verdict = NOTHING_CLAIMED
    elif sure_bound > claim.epsilon:
        verdict = VIOLATED
    elif bound > claim.epsilon:
        verdict = UNDECIDED
    return {
        "verdict": verdict,
        "lower_bound": bound,
        "sure_bound": sure_bound,
        "canaries": guesses.canaries,
        "guesses": guesses.made,
        "right": guesses.right,
    }


def of_claim(claim: Guarantee) -> dict[str, Any]:
    """The fields of a finding that say what is claimed."""
    if math.isinf(claim.epsilon):
        return {}
    return {
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "unit": claim.unit,
        "neighboring": claim.neighboring,
    }


def of_advantage(claim: Guarantee, all_guesses: Guesses) -> dict[str, Any]:
    """The fields of a finding about guesses of every coin."""
    low, high = advantage_interval(all_guesses)
    return {
        "advantage": 2 * all_guesses.right / all_guesses.made - 1,
        "advantage_low": low,
        "advantage_high": high,
        "largest_advantage": largest_advantage(claim.epsilon, claim.delta),
    }


def of_schedule(
    schedule: Schedule, noise_multiplier: float, group_size: int, probability: float
) -> dict[str, Any]:
    """What was attacked, of a gradient mechanism."""
    return {
        **vars(schedule),
        "sampling_probability": probability,
        "noise_multiplier": noise_multiplier,
        "group_size": group_size,
    }
