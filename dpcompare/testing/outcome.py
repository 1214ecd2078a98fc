"""What a check says: passed, failed, or not applicable, each with its reason."""

import inspect
from collections.abc import Callable
from typing import Literal, NamedTuple

from dpcompare.testing.subject import Subject

Status = Literal["passed", "failed", "not applicable"]

Check = Callable[[Subject], str]
"""Looks at one promise of a mechanism and says in a few words what it measured.

Raises AssertionError where the promise is broken and :class:`NotApplicable` where it was not made.
"""


class NotApplicable(Exception):
    """The mechanism makes no promise that this check could look at."""


class Outcome(NamedTuple):
    """Of one check on one mechanism.

    Attributes:
        check: its name.
        promise: what it looks at, the first line of its docstring.
        status: how it ended.
        reason: what was measured, what is broken, or why there is nothing to check.
    """

    check: str
    promise: str
    status: Status
    reason: str


def outcome_of(check: Check, subject: Subject) -> Outcome:
    """Run one check; any other exception than the two above is a failure of the mechanism."""
    status: Status = "passed"
    try:
        reason = check(subject)
    except NotApplicable as error:
        status, reason = "not applicable", str(error)
    except AssertionError as error:
        status, reason = "failed", str(error)
    except Exception as error:
        status, reason = "failed", f"{type(error).__name__}: {error}"
    promise = (inspect.getdoc(check) or "").partition("\n")[0].rstrip(".")
    return Outcome(check.__name__.removeprefix("check_"), promise, status, reason)
