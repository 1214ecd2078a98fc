"""Checks to come."""

from dpcompare.testing.outcome import Check

CHECKS: tuple[Check, ...] = ()
