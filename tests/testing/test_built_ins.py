"""Every built-in mechanism keeps the whole contract."""

import pytest

from dpcompare import catalog
from dpcompare.testing import CHECKS, check_mechanism

NOT_APPLICABLE = {"non-private": 22, "dp-sgd": 11, "additive-noise": 12}
"""How many checks do not apply, where it is not ten; a check that falls silent shows here."""


@pytest.mark.parametrize("name", catalog.mechanisms())
def test_a_built_in_mechanism_keeps_the_contract(name):
    found = check_mechanism(name)
    assert len(found) == len(CHECKS) == 30
    silent = [outcome for outcome in found if outcome.status == "not applicable"]
    assert len(silent) == NOT_APPLICABLE.get(name, 10), silent
    assert all(outcome.reason for outcome in found)
