"""Mechanisms as data: parameters with their documentation, and kernels that are what is printed."""

import math

import numpy as np
import pytest

from dpcompare import catalog, tasks
from dpcompare.errors import UsageError
from dpcompare.mechanism import find, parameter_defaults
from dpcompare.mechanism_report import described, on_labels, parameter_documentation
from dpcompare.tasks import PCTR

COUNTS = tasks.find("pconvs", 2)


@pytest.mark.parametrize("name", catalog.mechanisms())
def test_every_parameter_has_its_default_and_a_documentation(name):
    plugin = find(name)
    report = described(plugin)
    parameters = report["parameters"]
    assert {key: p["default"] for key, p in parameters.items()} == parameter_defaults(
        plugin.factory
    )
    for key, parameter in parameters.items():
        assert parameter["type"] == type(parameter["default"]).__name__
        assert parameter["documentation"], (name, key)
    assert report["releases_gradients"] is (name == "dp-sgd")
    assert report["documentation"]


def test_documentation_is_read_over_lines_and_bases():
    said = parameter_documentation(find("dp-sgd").factory)
    assert said["clip_norm"].startswith("the largest norm that one group may add to the sum; ``inf")
    assert said["noise_for_group_size"].startswith("calibrate the noise as if groups had this size")
    assert said["noise_for_group_size"].endswith("the larger epsilon that is truly spent.")
    assert "clip_norm" not in said["group_size"]


def test_randomized_response_is_its_closed_form():
    report = on_labels(find("randomized-response"), 1.0, PCTR, {})
    keep = math.e / (1 + math.e)
    np.testing.assert_allclose(report["probabilities"], [[keep, 1 - keep], [1 - keep, keep]])
    np.testing.assert_allclose(report["bias"], [1 - keep, keep - 1])
    np.testing.assert_allclose(report["variance"], [keep * (1 - keep)] * 2)
    assert report["worst_log_ratio"] == pytest.approx(1)
    assert (report["prior"], report["noise"]) == (None, None)


def test_a_kernel_that_needs_a_prior_is_shown_with_one():
    report = on_labels(find("rr-on-bins"), 1.0, COUNTS, {}, base_rate=0.1)
    assert report["prior"] == pytest.approx([math.exp(-0.1), 0.1 * math.exp(-0.1), 0.0046788], 1e-3)
    probabilities = np.asarray(report["probabilities"])
    assert probabilities.shape == (3, len(report["outputs"]))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_additive_noise_has_a_shape_and_no_kernel():
    report = on_labels(find("additive-noise"), 2.0, COUNTS, {"shape": "laplace"})
    assert report["noise"] == {"shape": "laplace", "sensitivity": 2, "clamped": False}
    assert report["probabilities"] is None
    np.testing.assert_allclose(report["variance"], [2.0] * 3)  # 2 (cap / epsilon)^2
    assert report["worst_log_ratio"] == pytest.approx(2)


def test_what_has_no_kernel_is_refused_as_in_the_table():
    with pytest.raises(UsageError, match="dp-sgd has no label kernel"):
        on_labels(find("dp-sgd"), 1.0, PCTR, {})
    with pytest.raises(UsageError, match="--base-rate is for a kernel"):
        on_labels(find("randomized-response"), 1.0, PCTR, {}, base_rate=0.1)
