"""The attack on labels: built-ins hold, planted violations are found, no privacy is seen."""

import math

import pytest

from dpcompare import tasks
from dpcompare.audit.claims import audit_mechanism
from dpcompare.audit.finding import NOTHING_CLAIMED, VIOLATED
from dpcompare.errors import DpcompareError
from dpcompare.mechanism import find
from tests.audit.planted import FewerFlips, TwoNumbers, plugin

COUNTS = tasks.find("pconvs", 4)


@pytest.mark.parametrize(
    ("name", "parameters", "task"),
    [
        ("randomized-response", {}, tasks.PCTR),
        ("randomized-response", {}, COUNTS),
        ("rr-on-bins", {}, COUNTS),
        ("unbiased-randomizer", {"prior": [0.6, 0.1, 0.1, 0.1, 0.1]}, COUNTS),
        ("additive-noise", {}, COUNTS),
        ("additive-noise", {"shape": "staircase", "clamp": True}, COUNTS),
        ("additive-noise", {"shape": "discrete-laplace", "clamp": True}, COUNTS),
    ],
)
def test_the_claims_of_the_built_ins_hold_and_nearly_all_of_them_is_seen(name, parameters, task):
    found = audit_mechanism(find(name), parameters, 1.0, task, 20_000, seed=1)
    assert found.verdict != VIOLATED  # the claim is met exactly, so 5% are undecided
    assert found.epsilon == pytest.approx(1)
    assert (found.delta, found.unit) == (0, "label")
    assert 0.8 < found.lower_bound < 1.05
    assert found.lower_bound == pytest.approx(found.expected_at_claim, abs=0.1)
    assert found.expected_if_half > 1.5
    assert found.advantage_low < found.advantage < found.advantage_high
    assert found.advantage_low < found.largest_advantage


def test_the_advantage_on_randomized_response_is_its_closed_form():
    found = audit_mechanism(find("randomized-response"), {}, 2.0, tasks.PCTR, 20_000)
    assert found.largest_advantage == pytest.approx(math.tanh(1.0))
    assert found.advantage == pytest.approx(math.tanh(1.0), abs=5 * 2 * 0.33 / 20_000**0.5)


def test_missing_flips_are_found():
    found = audit_mechanism(plugin(FewerFlips), {}, 1.0, tasks.PCTR, 20_000)
    assert found.verdict == VIOLATED
    assert found.sure_bound > 1
    assert found.expected_at_claim < 1


def test_without_privacy_the_attack_succeeds():
    found = audit_mechanism(find("non-private"), {}, 1.0, COUNTS, 2000)
    assert found.verdict == NOTHING_CLAIMED
    assert found.advantage == 1
    assert found.epsilon == math.inf
    assert found.lower_bound > 5


def test_what_is_no_number_per_label_is_refused():
    with pytest.raises(DpcompareError, match="one number per label; TwoNumbers released"):
        audit_mechanism(plugin(TwoNumbers), {}, 1.0, tasks.PCTR, 1000)
