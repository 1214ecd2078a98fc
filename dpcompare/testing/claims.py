"""What a mechanism claims, as accounting reads its events."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dpcompare import accounting
from dpcompare.errors import UsageError
from dpcompare.mechanism import Mechanism, is_private
from dpcompare.privacy import (
    AccountantName,
    Budget,
    Guarantee,
    Release,
    RowRelation,
    Schedule,
    default_delta,
)
from dpcompare.tasks import Task
from dpcompare.testing.outcome import NotApplicable
from dpcompare.testing.subject import Subject

TOLERANCE = 1e-9
"""Relative: what rounding may add to a claim."""


class Claim(NamedTuple):
    """An epsilon and a delta, and what they are of."""

    epsilon: float
    delta: float
    unit: str


def tasks_of(subject: Subject) -> list[Task]:
    """The tasks on which the mechanism can be checked.

    Raises:
        NotApplicable: it refuses all.
    """
    if not subject.tasks:
        raise NotApplicable("it refuses both tasks of the checks, pctr and pconvs with cap 2")
    return subject.tasks


def check_private(subject: Subject) -> None:
    """Refuse a mechanism that never claims anything.

    Raises:
        NotApplicable: it has no events.
    """
    if not is_private(subject.plugin.factory):
        raise NotApplicable("it claims no privacy")


def calibrated_for(subject: Subject, budget: Budget, task: Task) -> Mechanism:
    """The mechanism with the noise for a budget, over the schedule of the checks.

    Raises:
        UsageError: it refuses the budget.
    """
    return subject.plugin.build(subject.parameters).calibrate(budget, subject.schedule(), task)


def accepted(
    subject: Subject, task: Task, epsilons: Sequence[float]
) -> Iterator[tuple[float, Mechanism]]:
    """The mechanism at those of some epsilons that it does not refuse."""
    for epsilon in epsilons:
        try:
            yield epsilon, subject.calibrated(epsilon, task)
        except UsageError:
            continue


def guarantee_of(
    mechanism: Mechanism,
    schedule: Schedule,
    neighboring: RowRelation = "zero-out",
    accountant: AccountantName = "pld",
) -> Guarantee:
    """What all events of a mechanism guarantee together, at the default delta.

    Raises:
        UsageError: it is not defined under this relation.
    """
    delta = default_delta(schedule.examples)
    return accounting.guarantee(list(mechanism.events(schedule)), delta, neighboring, accountant)


def label_claim(mechanism: Mechanism, schedule: Schedule) -> Claim:
    """What the released labels alone cost.

    Raises:
        NotApplicable: no release protects labels as such.
    """
    releases = list(mechanism.events(schedule))
    of_labels = [release for release in releases if release.unit == "label"]
    if of_labels:
        return _claim(of_labels, schedule)
    if releases:
        raise NotApplicable(
            "it protects whole examples: training reads the true labels, and only gradients are "
            "released"
        )
    raise NotApplicable("it claims no privacy")


def whole_claim(mechanism: Mechanism, schedule: Schedule) -> Claim:
    """What everything costs, under the relation zero-out or for labels.

    Raises:
        NotApplicable: nothing is claimed.
    """
    releases = list(mechanism.events(schedule))
    if not releases:
        raise NotApplicable("it claims no privacy")
    return _claim(releases, schedule)


def _claim(releases: Sequence[Release], schedule: Schedule) -> Claim:
    delta = default_delta(schedule.examples)
    stated = accounting.guarantee(releases, delta, "zero-out")
    return Claim(stated.epsilon, stated.delta, stated.unit)
