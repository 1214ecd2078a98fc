"""Checks of the contract that any mechanism can be held to, the built-in ones or your own.

From the command line::

    dpcompare check-mechanism ./my_mechanism.py:MyMechanism

In the tests of a plug-in::

    from dpcompare.testing import parametrize_with_checks

    @parametrize_with_checks(MyMechanism, clip_norm=0.5)
    def test_the_contract(run_check):
        run_check()

Every check looks at one promise (see :data:`CHECKS`); what they cannot see is told in
`docs/checks.md`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from dpcompare.mechanism import Mechanism
from dpcompare.testing import (
    gradient_checks,
    label_checks,
    privacy_checks,
    row_checks,
    training_checks,
)
from dpcompare.testing.outcome import Check, NotApplicable, Outcome, outcome_of
from dpcompare.testing.subject import Subject

__all__ = ["CHECKS", "NotApplicable", "Outcome", "Subject", "check_mechanism", "outcomes",
           "parametrize_with_checks"]  # fmt: skip

CHECKS: tuple[Check, ...] = (
    *privacy_checks.CHECKS,
    *label_checks.CHECKS,
    *row_checks.CHECKS,
    *gradient_checks.CHECKS,
    *training_checks.CHECKS,
)
"""All checks, in the order in which they run, the quick ones first."""


def outcomes(subject: Subject) -> Iterator[Outcome]:
    """The outcome of every check, one after the other as they end."""
    for check in CHECKS:
        yield outcome_of(check, subject)


def check_mechanism(mechanism: str | type[Mechanism], **parameters: Any) -> list[Outcome]:
    """Run every check on a mechanism.

    Args:
        mechanism: its name as in a study, or the class.
        **parameters: as a study would set them.

    Returns:
        The outcomes, none of which is a failure.

    Raises:
        AssertionError: some checks failed; the message names them with their reasons.
        UsageError: there is no such mechanism or parameter.
    """
    found = list(outcomes(Subject.of(mechanism, **parameters)))
    broken = [f"{one.check}: {one.reason}" for one in found if one.status == "failed"]
    assert not broken, "\n".join(broken)
    return found


def parametrize_with_checks(mechanism: str | type[Mechanism], **parameters: Any) -> Any:
    """A decorator that makes one test of every check; the test takes the argument ``run_check``.

    A check that does not apply skips its test, with the reason.
    """
    import pytest

    subject = Subject.of(mechanism, **parameters)

    def runner(check: Check) -> Callable[[], None]:
        def run_check() -> None:
            outcome = outcome_of(check, subject)
            if outcome.status == "not applicable":
                pytest.skip(outcome.reason)
            assert outcome.status == "passed", f"{outcome.promise}: {outcome.reason}"

        return run_check

    names = [check.__name__.removeprefix("check_") for check in CHECKS]
    return pytest.mark.parametrize("run_check", [runner(check) for check in CHECKS], ids=names)
