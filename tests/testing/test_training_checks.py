"""Every check of training finds the faults that it is for, and passes where there are none."""

import pytest

from dpcompare.testing import training_checks
from dpcompare.testing.outcome import outcome_of
from dpcompare.testing.subject import Subject
from tests.testing import planted_training_faults as faults

CHECKS = {check.__name__.removeprefix("check_"): check for check in training_checks.CHECKS}
DP_SGD = {
    "epochs_show_every_row_once": "draws Poisson batches",
    "groups_are_formed_once": "groups are single rows",
}


def outcomes_of(subject):
    return {name: outcome_of(check, subject) for name, check in CHECKS.items()}


def assert_found(found, not_applicable):
    """Nothing failed, and only what is named does not apply, for the reason that is named."""
    assert {name: one.reason for name, one in found.items() if one.status == "failed"} == {}
    silent = {name: one.reason for name, one in found.items() if one.status == "not applicable"}
    assert silent.keys() == not_applicable.keys()
    for name, reason in not_applicable.items():
        assert reason in silent[name]


def test_dp_sgd_of_groups_passes():
    only_groups = {name: DP_SGD[name] for name in ("epochs_show_every_row_once",)}
    assert_found(outcomes_of(Subject.of("dp-sgd", group_size=4)), only_groups)


def test_training_without_privacy_promises_its_epochs():
    plain = dict.fromkeys(CHECKS, "plain mean gradients")
    plain["batches_are_drawn_as_accounted"] = "neither draws nor accounts Poisson batches"
    del plain["epochs_show_every_row_once"]
    assert_found(outcomes_of(Subject.of("non-private")), plain)


def test_a_mechanism_without_noise_declares_none():
    outcome = outcome_of(CHECKS["noise_has_the_declared_size"], Subject.of(faults.Noiseless))
    assert (outcome.status, outcome.reason) == (
        "not applicable",
        "it declares no noise on gradients",
    )


@pytest.mark.parametrize("fault", faults.named(CHECKS), ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(fault, monkeypatch):
    name, subject = faults.plant(fault, monkeypatch)
    outcome = outcome_of(CHECKS[name], subject)
    assert outcome.status == "failed", outcome
    assert faults.REASONS[fault] in outcome.reason
