"""Fuzzing of study files: a study that keeps what the file says, or one clear message."""

import functools
import math
import tomllib
from dataclasses import replace
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcompare import catalog, study
from dpcompare.configuration import identity
from dpcompare.errors import DpcompareError
from dpcompare.expansion import MOST_TRIALS, expand
from dpcompare.study import DEFAULTS, OF_STUDIES, TOP_LEVEL, Study, load, resolved, select
from tests import tiny_studies as tiny
from tests.fuzzing import FUZZ, mutated, one_clear_message, scribbled

VALID = [
    tiny.content(*tiny.ALL),
    tiny.content(
        {
            "name": "dp-sgd",
            "label": "swept",
            "sweep": {"clip_norm": [1, 2.5], "training": {"epochs": [1, 2]}},
        },
        {
            "name": "dp-sgd",
            "clip_norm": [0.5, 1.0],
            "neighboring": "replace-one",
            "training": {"steps": 7},
        },
        epsilons=[0.5, 1, 3.0],
        seeds=2,
        tuning_seeds=1,
        delta=1e-5,
        title="T",
        figure="large-batch",
    ),
    tiny.content(
        {"name": "rr-on-bins", "prior": [0.9, 0.06, 0.04]},
        {"name": "additive-noise", "shape": "staircase", "clamp": True},
        {"name": "unbiased-randomizer", "prior_share": 0.1, "training": {"batch_size": [50, 100]}},
        task="pconvs",
        cap=2,
        metric="d2",
        data={"seed": 3, "base_rate": 0.2, "conversion_rate": 0.1, "split": [0.7, 0.2, 0.1]},
        model={"categories": "vocabulary", "min_count": 3},
    ),
    tiny.content(
        {"name": "dp-sgd", "sweep": {"training": {"batch_size": [10, 20], "epochs": [1.0, 2.0]}}},
        {"name": "dp-sgd", "label": "rdp", "accountant": "rdp", "private_selection": 3},
        kind="account",
        figure="noise-vs-batch",
        allow_large_delta=True,
        accountant="pld",
    ),
    tiny.content(
        {
            "name": "dp-sgd",
            "training": {
                "learning_rate": [{"epsilon_up_to": 0.7, "value": [0.1, 0.2]}, {"value": 0.3}],
                "optimizer": ["adam", "sgd"],
                "examples": 500,
            },
            "group_size": [{"epsilon_up_to": 2, "value": 2}, {"epsilon_up_to": 9, "value": 4}],
        },
        training={"lazy_noise": "never", "weight_decay": 1e-6, "momentum": 0.5, "base_rate": 0.3},
    ),
]
WORDS = [
    *TOP_LEVEL, *(key for section in DEFAULTS.values() for key in section), *OF_STUDIES,
    *catalog.mechanisms(), "value", "epsilon_up_to", "correction", "shape", "laplace", "forward",
    "account", "train", "pconvs", "pcvr", "utility", "sampling", "hash", "vocabulary", "rdp",
    ["forward", "none"], {"name": "dp-sgd"}, {"clip_norm": [3.0]}, [16, 8], [0.5, 0.25, 0.25],
]  # fmt: skip
TEXTS = [tomli_w.dumps(content) for content in VALID]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The study file; mechanisms are looked up once, which takes most of the time of a load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "find", functools.cache(study.find))
        yield tmp_path_factory.mktemp("fuzz") / "fuzzed.toml"


# --- what an accepted study keeps ----------------------------------------------------------------


def check(file, text: str | bytes, expanded: bool = False) -> None:
    """The file is a study that keeps all it was told, or is refused."""
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with one_clear_message("fuzzed.toml"):
        loaded = load(str(file))
        content = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        _check_kept(content, loaded)
        _check_again(file, loaded)
        for entry in loaded.entries:
            assert entry in select(loaded, mechanisms=[entry.label]).entries
    if expanded and "loaded" in locals() and _is_cheap(loaded):
        with one_clear_message("fuzzed.toml", DpcompareError):
            trials = expand(loaded)
            assert len({identity(trial) for trial in trials}) == len(trials) > 0


def _check_kept(content: dict[str, Any], loaded: Study) -> None:
    for key, value in content.items():
        if key == "epsilons":
            assert loaded.epsilons == tuple(sorted({float(f"{v:.12g}") for v in value}))
        elif key == "mechanisms":
            _check_entries(value, loaded)
        elif key in DEFAULTS:
            assert all(is_kept(v, getattr(loaded, key)[k]) for k, v in value.items())
        else:
            assert is_kept(value, getattr(loaded, key)), key


def _check_entries(mechanisms: list[dict[str, Any]], loaded: Study) -> None:
    entries = iter(loaded.entries)
    for content in mechanisms:
        sweep = dict(content.get("sweep", {}))
        sweep |= {f"training.{key}": value for key, value in sweep.pop("training", {}).items()}
        for place in range(len(next(iter(sweep.values()))) if sweep else 1):
            entry = next(entries)
            given_here = {key: value for key, value in content.items() if key != "sweep"}
            training = dict(given_here.pop("training", {}))
            for key, values in sweep.items():
                target = training if key.startswith("training.") else given_here
                target[key.removeprefix("training.")] = values[place]
            assert entry.plugin.name == given_here.pop("name")
            label = given_here.pop("label", entry.plugin.name)
            assert entry.label.startswith(label)
            assert sweep or entry.label == label
            assert all(is_kept(value, entry.training[key]) for key, value in training.items())
            for key, value in given_here.items():
                own = key in ("neighboring", "accountant", "private_selection")
                assert is_kept(value, getattr(entry, key) if own else entry.parameters[key]), key
    assert next(entries, None) is None


def is_kept(given: Any, found: Any) -> bool:
    """Whether a value is still the one that was given; whole numbers may have become numbers."""
    if isinstance(given, list) and given and isinstance(given[0], dict):
        return len(given) == len(found) and all(
            is_kept(row["value"], kept["value"])
            and kept["epsilon_up_to"] == float(row.get("epsilon_up_to", math.inf))
            for row, kept in zip(given, found, strict=True)
        )
    if isinstance(given, list):
        return len(given) == len(found) and all(map(is_kept, given, found))
    if isinstance(given, int) and isinstance(found, float) and not isinstance(given, bool):
        return found == float(given)
    return type(given) is type(found) and given == found


def _check_again(file, loaded: Study) -> None:
    """The resolved study is the same study."""
    again = file.with_name("again.toml")
    again.write_text(tomli_w.dumps(resolved(loaded)), encoding="utf-8")
    reloaded = replace(load(str(again)), name=loaded.name, source=loaded.source)
    if loaded.data["source"] != "synthetic":  # the rest of the table is about the synthetic log
        unused = {k: v for k, v in loaded.data.items() if k not in ("source", "split")}
        reloaded = replace(reloaded, data=reloaded.data | unused)
    assert reloaded == loaded


def _is_cheap(loaded: Study) -> bool:
    """Whether it has few trials, or so many that it is refused; private choices calibrate."""
    trials = 0
    for entry in loaded.entries:
        if entry.private_selection and loaded.kind == "train":
            return False
        candidates = 1
        for key, value in {**entry.parameters, **entry.training}.items():
            at = value[0]["value"] if _is_epsilon_table(value) else value
            candidates *= len(at) if isinstance(at, list) and key != "prior" else 1
        trials += candidates * loaded.seeds * len(loaded.epsilons)
    return not 60 < trials < 5 * MOST_TRIALS


def _is_epsilon_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


# --- the cases -----------------------------------------------------------------------------------


@settings(FUZZ, max_examples=2500)
@given(content=mutated(VALID, WORDS), expanded=st.integers(0, 3))
def test_mutated_studies_are_kept_or_refused(file, content, expanded):
    check(file, tomli_w.dumps(content), expanded == 0)


@settings(FUZZ, max_examples=1200)
@given(text=scribbled(TEXTS))
def test_scribbled_studies_are_kept_or_refused(file, text):
    check(file, text)


@settings(FUZZ, max_examples=300)
@given(content=st.binary(max_size=60))
def test_bytes_are_refused(file, content):
    check(file, content)
