"""Finding and building plug-ins, and the answers of the base class."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from dpcompare import accounting, catalog, mechanism
from dpcompare.errors import UsageError
from dpcompare.mechanism import Mechanism, find, is_private, parameter_defaults
from dpcompare.privacy import Schedule
from dpcompare.tasks import PCTR

SCHEDULE = Schedule(1000, 100, 10, "shuffle")
PLUGIN = """
from dpcompare.mechanism import Mechanism

class Mine(Mechanism):
    strength: float = 2.0

NotOne = object
"""


def test_the_built_in_mechanisms_are_found_like_any_plug_in():
    assert {"non-private", "dp-sgd", "randomized-response"} <= set(catalog.mechanisms())
    for name in catalog.mechanisms():
        plugin = find(name)
        assert issubclass(plugin.factory, Mechanism)
        assert isinstance(plugin.build({}), plugin.factory)
        assert "sha256:" in plugin.version


def test_the_base_class_trains_without_privacy():
    plain = find("non-private").build({})
    assert plain.gradient() is None
    assert plain.kernel(PCTR) is None
    assert not is_private(type(plain))
    guarantee = accounting.guarantee(plain.events(SCHEDULE), 1e-6, "zero-out")
    assert math.isinf(guarantee.epsilon)
    labels = np.array([0, 1, 1])
    released = plain.release_labels(labels, None, None, PCTR)[1]
    np.testing.assert_array_equal(released, labels)
    np.testing.assert_array_equal(plain.weights(jnp.array([3.0])), [1.0])


def test_a_mechanism_may_be_named_by_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    plugin = find(f"{path}:Mine")
    assert plugin.build({"strength": 3}).strength == 3
    path.write_text(PLUGIN + "# edited\n")
    assert find(f"{path}:Mine").version != plugin.version


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dp-sdg", r"did you mean 'dp-sgd'"),
        ("nothing.py:Mine", "no file nothing.py"),
        ("{file}:Other", "defines no Other"),
        ("{file}:NotOne", "not a subclass"),
        ("{broken}:Mine", "fails to import: SyntaxError"),
    ],
)
def test_what_is_no_mechanism_is_refused(tmp_path, name, message):
    (tmp_path / "mine.py").write_text(PLUGIN)
    (tmp_path / "broken.py").write_text("def (")
    files = {"file": tmp_path / "mine.py", "broken": tmp_path / "broken.py"}
    with pytest.raises(UsageError, match=message):
        find(name.format(**files))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"clip_nrom": 1.0}, r"did you mean 'clip_norm'"),
        ({"clip_norm": "1"}, "must be a finite number"),
        ({"clip_norm": True}, "must be a finite number"),
        ({"clip_norm": float("nan")}, "must be a finite number"),
        ({"clip_norm": float("inf")}, "must be a finite number"),
        ({"group_size": 1.5}, "of type int"),
        ({"clip_norm": -1.0}, "at least 1e-06"),
        ({"noise_multiplier": 1.0}, "has no parameter"),
    ],
)
def test_parameters_that_cannot_be_are_refused(parameters, message):
    with pytest.raises(UsageError, match=message):
        find("dp-sgd").build(parameters)


def test_what_calibration_finds_is_no_parameter():
    assert parameter_defaults(find("dp-sgd").factory) == {
        "clip_norm": 1.0,
        "group_size": 1,
        "noise_for_group_size": 0,
    }


def test_the_description_names_parameters_and_code():
    text = mechanism.describe(find("dp-sgd"))
    assert "clip_norm = 1.0" in text
    assert "Poisson" in text
