"""The words of privacy: budget, schedule, release, guarantee, unit and neighboring relation.

Nothing here computes an epsilon. A mechanism lists what it released (:class:`Release`), and only
:mod:`dpcompare.accounting` turns that into a :class:`Guarantee`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from dpcompare.errors import UsageError

if TYPE_CHECKING:  # importing dp-accounting takes a second that `dpcompare list` need not wait for
    from dp_accounting import DpEvent

Unit = Literal["example", "label"]
RowRelation = Literal["zero-out", "add-or-remove-one", "replace-one"]
Neighboring = Literal["zero-out", "add-or-remove-one", "replace-one", "replace-one-label"]
Sampling = Literal["poisson", "shuffle"]
AccountantName = Literal["pld", "rdp"]

ROW_RELATIONS: tuple[RowRelation, ...] = get_args(RowRelation)
ACCOUNTANTS: tuple[AccountantName, ...] = get_args(AccountantName)
DEFAULT_DELTA_EXPONENT = -1.1


def default_delta(examples: int) -> float:
    """The default delta of a training set of `examples` rows: ``examples ** -1.1``.

    It stays below 1/n, the probability at which a mechanism could publish one row outright.
    """
    return float(examples) ** DEFAULT_DELTA_EXPONENT


def check_delta(delta: float, examples: int, *, allow_large_delta: bool = False) -> None:
    """Refuse a delta that does not protect a single row of `examples`.

    Args:
        delta: the probability in question.
        examples: rows in the training set.
        allow_large_delta: accept a delta above 1/n all the same.

    Raises:
        UsageError: delta is not in (0, 1), or is above 1/n without `allow_large_delta`.
    """
    if not 0.0 < delta < 1.0:
        raise UsageError(f"delta must lie between 0 and 1, got {delta}")
    if delta * examples > 1.0 + 1e-9 and not allow_large_delta:
        raise UsageError(
            f"delta {delta:g} is above 1/n = {1 / examples:g} for n = {examples:,} rows: it would "
            "allow a mechanism that publishes whole rows. Lower it, or accept that with "
            "allow_large_delta = true in the study (--allow-large-delta for calibrate)"
        )


@dataclass(frozen=True)
class Budget:
    """How much privacy loss a trial may spend.

    Attributes:
        epsilon: > 0; ``math.inf`` asks for no privacy.
        delta: in (0, 1); mechanisms with a pure guarantee do not use it.
        neighboring: the row relation that mechanisms protecting whole examples are calibrated for.
        accountant: "pld" (tight) or "rdp" (there to compare).
    """

    epsilon: float
    delta: float
    neighboring: RowRelation = "zero-out"
    accountant: AccountantName = "pld"

    def __post_init__(self) -> None:
        if not self.epsilon > 0:  # also catches nan
            raise UsageError(
                f"epsilon must be above 0, got {self.epsilon}; write inf for no privacy"
            )
        if not 0 < self.delta < 1:
            raise UsageError(f"delta must lie between 0 and 1, got {self.delta}")
        if self.neighboring not in ROW_RELATIONS:
            raise UsageError(
                f"neighboring must be one of {', '.join(ROW_RELATIONS)}, got {self.neighboring!r}"
            )
        if self.accountant not in ACCOUNTANTS:
            raise UsageError(
                f"accountant must be one of {', '.join(ACCOUNTANTS)}, got {self.accountant!r}"
            )


@dataclass(frozen=True)
class Schedule:
    """How often training looks at the data: public, and the one step counter of a trial.

    Attributes:
        examples: rows in the training set, n.
        batch_size: expected rows per step; the public divisor of every gradient sum.
        steps: parameter updates, each of which is accounted.
        sampling: "poisson" draws every row independently; "shuffle" cuts permutations in batches.
    """

    examples: int
    batch_size: int
    steps: int
    sampling: Sampling

    def __post_init__(self) -> None:
        if self.examples < 1 or self.batch_size < 1 or self.steps < 1:
            raise UsageError(
                "examples, batch_size and steps must be at least 1, got "
                f"{self.examples}, {self.batch_size} and {self.steps}"
            )
        if self.batch_size > self.examples:
            raise UsageError(
                f"batch_size {self.batch_size:,} is larger than the training set of "
                f"{self.examples:,} rows; lower it to at most {self.examples:,}"
            )
        if self.sampling not in get_args(Sampling):
            raise UsageError(f"sampling must be poisson or shuffle, got {self.sampling!r}")

    @classmethod
    def from_epochs(
        cls, examples: int, batch_size: int, epochs: float, sampling: Sampling
    ) -> "Schedule":
        """The schedule of `epochs` expected passes: ``epochs * n / batch_size`` steps.

        The count is rounded once for the whole run, halves up, and at least one step is taken.
        """
        if not (math.isfinite(epochs) and epochs > 0):
            raise UsageError(f"epochs must be a number above 0, got {epochs}")
        steps = max(1, math.floor(epochs * examples / max(1, batch_size) + 0.5))
        return cls(examples, batch_size, steps, sampling)

    def groups(self, group_size: int = 1) -> int:
        """How many whole groups of `group_size` rows the data set is cut into."""
        return -(-self.examples // group_size)

    def expected_groups(self, group_size: int = 1) -> float:
        """Groups drawn per step in expectation: the divisor of a sum of clipped groups."""
        return self.batch_size / group_size

    def sampling_probability(self, group_size: int = 1) -> float:
        """The chance that one row (or one whole group of rows) is in a step's batch."""
        return min(1.0, self.expected_groups(group_size) / self.groups(group_size))


@dataclass(frozen=True)
class Release:
    """One thing that a mechanism made public, as an event that accounting understands.

    Attributes:
        event: a dp-accounting event, over all steps of the trial.
        unit: what the event protects: a whole "example", or only its "label".
        group_size: rows clipped together. Above 1, a row that vanishes leaves its group in
            place with another value, so zero-out costs what replace-one costs.
        name: what was released, where the event does not say it by itself.
    """

    event: "DpEvent"
    unit: Unit
    group_size: int = 1
    name: str = ""


@dataclass(frozen=True)
class Guarantee:
    """What a trial may claim, made by :func:`dpcompare.accounting.guarantee` and by nothing else.

    Attributes:
        epsilon: the privacy loss; ``math.inf`` where nothing is guaranteed.
        delta: its failure probability; 0 for a pure guarantee.
        unit: what is protected.
        neighboring: the relation under which it holds.
        accountant: "pld", "rdp", or "exact" for a closed form.
        other_relations: the same releases under the other row relations, at the same delta:
            an epsilon, or None where the relation is not defined for them.
        events: the accounted events, as text.
    """

    epsilon: float
    delta: float
    unit: Unit
    neighboring: Neighboring
    accountant: str
    other_relations: dict[str, float | None]
    events: Sequence[str] = ()
