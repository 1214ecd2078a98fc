"""Study files: what is read from them, and what each mistake is told."""

import math
import re
import time

import pytest
import tomli_w

from dpcompare import catalog
from dpcompare.configuration import identity, schedule_of
from dpcompare.errors import UsageError
from dpcompare.expansion import expand
from dpcompare.study import DEFAULTS, EPSILONS, load, parse_epsilons, resolved, select
from tests import tiny_studies as tiny
from tests.tiny_studies import ALL, DP_SGD, NON_PRIVATE, RANDOMIZED_RESPONSE


def refused(path, *parts):
    """Loading and expanding the study fails with one line that holds all parts."""
    with pytest.raises(UsageError) as caught:
        expand(load(str(path)))
    message = str(caught.value)
    for part in parts:
        assert part in message, f"{part!r} is not in {message!r}"
    return message


# --- what is read --------------------------------------------------------------------------------


def test_an_almost_empty_study_gets_the_documented_defaults(tmp_path):
    path = tiny.write(tmp_path, {"task": "pctr", "mechanisms": [NON_PRIVATE]})
    study = load(str(path))
    assert study.name == "tiny"
    assert study.epsilons == tuple(EPSILONS) == (0.1, 0.25, 0.5, 1, 3, 5, 10, 30, 50)
    assert study.seeds == 5
    assert (study.neighboring, study.accountant, study.delta) == ("zero-out", "pld", None)
    assert {"data": study.data, "model": study.model, "training": study.training} == DEFAULTS


@pytest.mark.parametrize("name", list(catalog.studies()))
def test_every_bundled_study_is_valid(name):
    study = load(name)
    assert study.name == name
    on_synthetic_rows = select(study, data_path="synthetic")
    assert len(expand(on_synthetic_rows)) >= len(study.entries)


def test_a_sweep_gives_one_curve_for_each_place(tmp_path):
    swept = {"name": "dp-sgd", "sweep": {"clip_norm": [1.0, 2.5], "training": {"epochs": [1, 3]}}}
    study = tiny.study(tmp_path, {**swept, "training": {"batch_size": 50}})
    assert [entry.label for entry in study.entries] == [
        "dp-sgd (clip_norm=1 epochs=1)",
        "dp-sgd (clip_norm=2.5 epochs=3)",
    ]
    assert [entry.parameters["clip_norm"] for entry in study.entries] == [1.0, 2.5]
    training = [entry.training for entry in study.entries]
    assert [(t["epochs"], t["batch_size"]) for t in training] == [(1.0, 50), (3.0, 50)]
    whole = select(study, mechanisms=["dp-sgd"])
    assert whole.entries == study.entries
    (one,) = select(study, mechanisms=["dp-sgd (clip_norm=1 epochs=1)"]).entries
    assert one == study.entries[0]


@pytest.mark.parametrize("steps", [1, 7, 1603, 123_457])
@pytest.mark.parametrize("batch_size", [1, 33, 1600])
def test_steps_stand_in_place_of_epochs(tmp_path, steps, batch_size):
    training = {"steps": steps, "batch_size": batch_size}
    (trial,) = tiny.trials(tmp_path, NON_PRIVATE, training=training)
    assert schedule_of(trial, tiny.TRAIN_ROWS).steps == steps


def test_a_curve_may_have_its_own_relation_and_accountant(tmp_path):
    own = {**DP_SGD, "label": "own", "neighboring": "replace-one", "accountant": "rdp"}
    plain, other = (trial["budget"] for trial in tiny.trials(tmp_path, DP_SGD, own))
    assert (plain["neighboring"], plain["accountant"]) == ("zero-out", "pld")
    assert (other["neighboring"], other["accountant"]) == ("replace-one", "rdp")


def test_a_study_of_given_data_asks_for_them(tmp_path):
    path = tiny.write(tmp_path, tiny.content(data={"source": "--data"}))
    refused(path, str(path), "--data DIR", "dpcompare prepare")


def test_a_mechanism_may_have_its_own_training_settings_and_label(tmp_path):
    own = {**DP_SGD, "label": "large batches", "training": {"batch_size": 400}}
    study = tiny.study(tmp_path, NON_PRIVATE, own)
    plain, large = study.entries
    assert (plain.label, large.label) == ("non-private", "large batches")
    assert (plain.training["batch_size"], large.training["batch_size"]) == (100, 400)
    assert large.training["epochs"] == plain.training["epochs"] == 1.0
    assert large.parameters == {"clip_norm": 1.0, "group_size": 1, "noise_for_group_size": 0}


def test_whole_numbers_are_read_as_numbers_and_kept_apart_from_counts(tmp_path):
    study = tiny.study(tmp_path, {**DP_SGD, "clip_norm": 2}, training={"epochs": 3})
    clip_norm = study.entries[0].parameters["clip_norm"]
    assert isinstance(clip_norm, float)
    assert isinstance(study.training["epochs"], float)
    assert isinstance(study.training["batch_size"], int)


def test_a_byte_order_mark_is_accepted(tmp_path):
    path = tiny.write(tmp_path, tiny.content())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load(str(path)).task == "pctr"


def test_epsilons_are_sorted_and_each_is_kept_once():
    assert parse_epsilons([3, 1, 1.0, 0.1 + 0.2, 0.3], "here") == (0.3, 1.0, 3.0)
    assert parse_epsilons([1e-13, 2e-13], "here") == (1e-13, 2e-13)


def test_the_resolved_study_is_a_file_that_gives_the_same_trials(tmp_path):
    table = [{"epsilon_up_to": 0.5, "value": [0.1, 0.2]}, {"value": 0.3}]
    study = tiny.study(
        tmp_path,
        NON_PRIVATE,
        {**DP_SGD, "training": {"learning_rate": table}},
        {**RANDOMIZED_RESPONSE, "label": "rr", "correction": ["forward", "backward"]},
        epsilons=[0.1, 1],
        delta=1e-5,
    )
    path = tmp_path / "resolved.toml"
    path.write_text(tomli_w.dumps(resolved(study)))
    again = load(str(path))
    assert [identity(c) for c in expand(again)] == [identity(c) for c in expand(study)]
    assert [c["about"]["label"] for c in expand(again)] == [
        c["about"]["label"] for c in expand(study)
    ]


def test_a_resolved_study_of_prepared_data_does_not_state_what_only_the_synthetic_log_reads(
    tmp_path,
):
    study = select(tiny.study(tmp_path), data_path=tmp_path / "prepared")
    source = str(tmp_path / "prepared")
    assert resolved(study)["data"] == {"source": source, "split": [0.8, 0.1, 0.1]}


def test_a_count_study_keeps_its_cap_figure_and_metric_when_resolved(tmp_path):
    study = tiny.study(
        tmp_path, {"name": "rr-on-bins", "prior": [0.9, 0.06, 0.04]}, task="pconvs", cap=2,
        figure="effective-sample-size", metric="d2",
    )  # fmt: skip
    path = tmp_path / "resolved.toml"
    path.write_text(tomli_w.dumps(resolved(study)))
    again = load(str(path))
    assert (again.cap, again.figure, again.metric) == (2, "effective-sample-size", "d2")
    assert again.entries[0].parameters["prior"] == [0.9, 0.06, 0.04]
    assert [identity(c) for c in expand(again)] == [identity(c) for c in expand(study)]


def test_tasks_choose_their_own_metric(tmp_path):
    chosen = {task: tiny.study(tmp_path, task=task).metric for task in ("pctr", "pcvr")}
    chosen["pconvs"] = tiny.study(tmp_path, task="pconvs", cap=5).metric
    assert chosen == {"pctr": "auc", "pcvr": "auc", "pconvs": "poisson_loss"}


# --- files ---------------------------------------------------------------------------------------


def test_files_that_cannot_be_read(tmp_path):
    refused(tmp_path / "absent.toml", "absent.toml", "neither a file nor a bundled study")
    refused("x" * 5000, "cannot be read: File name too long")
    refused("quikstart", "did you mean 'quickstart'", "bundled are: ")
    refused(tmp_path, "is a folder")
    garbage = tmp_path / "garbage.toml"
    garbage.write_bytes(bytes(range(128, 256)))
    refused(garbage, "garbage.toml", "UTF-8")
    garbage.write_text("task = \n")
    refused(garbage, "garbage.toml", "not valid TOML", "line 1")
    garbage.write_text("")
    refused(garbage, "garbage.toml", "task is missing")


# --- keys and values -----------------------------------------------------------------------------

LIMITS = [{"epsilon_up_to": 1.0, "value": 0.1}, {"epsilon_up_to": 0.5, "value": 0.2}]
MISTAKES = {
    "unknown key": ({"epsilon": [1.0]}, "unknown key epsilon", "did you mean 'epsilons'"),
    "unknown data key": ({"data": {"row": 10}}, "data.row", "did you mean 'rows'", "base_rate"),
    "unknown model key": ({"model": {"towr": []}}, "model.towr", "did you mean 'tower'"),
    "unknown training key": ({"training": {"epoch": 1}}, "training.epoch", "'epochs'"),
    "section is no table": ({"data": 3}, "data must be a table", "got 3"),
    "no task": ({"task": ""}, "task is missing"),
    "unknown task": ({"task": "pctt"}, "task must be one of pctr", "'pctt'", "did you mean 'pctr'"),
    "task of another type": ({"task": 3}, "task must be text"),
    "unknown kind": ({"kind": "trian"}, "kind must be one of train", "did you mean 'train'"),
    "unknown figure": ({"figure": "pie"}, "figure must be one of utility", "'pie'"),
    "unknown metric": ({"metric": "acu"}, "metric must be one of auc, ", "mean 'auc'"),
    "metric of another task": ({"metric": "d2"}, "metric must be one of auc, ", "'d2'"),
    "cap of a binary task": ({"cap": 3}, "task: cap is for counts", "'pctr'"),
    "count without a cap": ({"task": "pconvs"}, "task: task 'pconvs' needs cap", "public"),
    "cap of zero": (
        {"task": "pconvs", "cap": 0},
        "task: cap of pconvs must lie between 1 and 1,000",
    ),
    "cap that is no count": ({"task": "pconvs", "cap": 2.5}, "cap must be a whole number"),
    "unknown relation": ({"neighboring": "zero_out"}, "neighboring", "did you mean 'zero-out'"),
    "unknown accountant": ({"accountant": "pdl"}, "accountant", "pld, rdp", "did you mean 'pld'"),
    "no seeds": ({"seeds": 0}, "seeds must be at least 1", "got 0"),
    "negative seeds": ({"seeds": -1}, "seeds must be at least 1", "got -1"),
    "half a seed": ({"seeds": 1.5}, "seeds must be a whole number", "got 1.5"),
    "seeds true": ({"seeds": True}, "seeds must be a whole number", "got True"),
    "epsilon zero": ({"epsilons": [1, 0]}, "epsilons", "above 0", "got 0", "non-private"),
    "epsilon negative": ({"epsilons": [-1.0]}, "epsilons", "above 0", "got -1.0"),
    "epsilon nan": ({"epsilons": [math.nan]}, "epsilons", "finite number above 0", "got nan"),
    "epsilon inf": ({"epsilons": [math.inf]}, "epsilons", "'non-private'", "got inf"),
    "epsilon text": ({"epsilons": ["1"]}, "epsilons", "finite number", "got '1'"),
    "epsilon true": ({"epsilons": [True]}, "epsilons", "got True"),
    "no epsilons": ({"epsilons": []}, "epsilons: name at least one"),
    "epsilons a number": ({"epsilons": 1.0}, "epsilons must be a list"),
    "delta zero": ({"delta": 0.0}, "delta must lie between 0 and 1", "got 0"),
    "delta one": ({"delta": 1}, "delta must lie between 0 and 1"),
    "delta nan": ({"delta": math.nan}, "delta must be a finite number", "nan"),
    "delta text": ({"delta": "1e-5"}, "delta must be a finite number", "'1e-5'"),
    "delta above 1/n": ({"delta": 1e-3}, "1/n = 0.000623", "allow_large_delta = true"),
    "allow text": ({"allow_large_delta": "yes"}, "allow_large_delta must be true or false"),
    "rows text": ({"data": {"rows": "many"}}, "data.rows must be a whole number", "'many'"),
    "rows true": ({"data": {"rows": True}}, "data.rows must be a whole number"),
    "rows a list": ({"data": {"rows": [1000, 2000]}}, "data.rows must be a whole number"),
    "rows zero": ({"data": {"rows": 0}}, "rows", "at least 1"),
    "too few rows to split": ({"data": {"rows": 2}}, "2 rows are too few", "split"),
    "data seed": ({"data": {"seed": -1}}, "seed", "between 0 and 2**64 - 1"),
    "base rate": ({"data": {"base_rate": 1.0}}, "base_rate must lie between 0 and 1"),
    "split sums": ({"data": {"split": [0.8, 0.1, 0.2]}}, "split", "add up to 1"),
    "split of two": ({"data": {"split": [0.8, 0.2]}}, "split", "three numbers above 0"),
    "split with zero": ({"data": {"split": [0.9, 0.1, 0.0]}}, "split", "above 0"),
    "split nan": ({"data": {"split": [math.nan, 0.5, 0.5]}}, "data.split", "finite number"),
    "split true": ({"data": {"split": [True, 0.1, 0.1]}}, "data.split: each item", "got True"),
    "source a number": ({"data": {"source": 3}}, "data.source must be text"),
    "tower text": ({"model": {"tower": ["64"]}}, "model.tower: each item", "whole number"),
    "tower fraction": ({"model": {"tower": [6.5]}}, "model.tower: each item", "whole number"),
    "tower zero": ({"model": {"tower": [4, 0]}}, "tower widths must be at least 1"),
    "tower a number": ({"model": {"tower": 64}}, "model.tower must be a list"),
    "buckets": ({"model": {"buckets": 1}}, "buckets must lie between 2 and"),
    "buckets a list": ({"model": {"buckets": [20, 30]}}, "model.buckets must be a whole number"),
    "categories": ({"model": {"categories": "hsah"}}, "model.categories", "did you mean 'hash'"),
    "min count": ({"model": {"min_count": 0}}, "model.min_count must be at least 1"),
    "optimizer": ({"training": {"optimizer": "adamm"}}, "optimizer must be one of", "'adamm'"),
    "decay": ({"training": {"decay": "slow"}}, "decay must be one of cosine, constant"),
    "learning rate": ({"training": {"learning_rate": 0}}, "learning_rate must be above 0"),
    "learning rate inf": ({"training": {"learning_rate": math.inf}}, "training.learning_rate"),
    "huge number": (
        {"training": {"learning_rate": 10**400}},
        "training.learning_rate: a whole number must lie between -2**63 and 2**64 - 1",
    ),
    "momentum": ({"training": {"momentum": 1}}, "momentum must be in [0, 1)"),
    "batch size": ({"training": {"batch_size": 0}}, "batch_size", "at least 1"),
    "batch size true": ({"training": {"batch_size": True}}, "training.batch_size", "whole number"),
    "batch size fraction": ({"training": {"batch_size": 10.5}}, "training.batch_size", "10.5"),
    "batch above n": ({"training": {"batch_size": 1604}}, "batch_size 1,604", "at most 1,603"),
    "epochs": ({"training": {"epochs": 0}}, "epochs must be a number above 0"),
    "epochs negative": ({"training": {"epochs": -2}}, "epochs must be a number above 0"),
    "chunk size": ({"training": {"chunk_size": -1}}, "chunk_size must be at least 1"),
    "no candidates": ({"training": {"epochs": []}}, "training.epochs", "empty list"),
    "bad candidate": ({"training": {"epochs": [1, "2"]}}, "training.epochs", "got '2'"),
    "table with another key": (
        {"training": {"epochs": [{"epsilon": 1, "value": 2}]}},
        "training.epochs",
        "epsilon_up_to = ..., value = ...",
    ),
    "table out of order": ({"training": {"learning_rate": LIMITS}}, "grow from row to row"),
    "table limit nan": (
        {"training": {"epochs": [{"epsilon_up_to": math.nan, "value": 1}]}},
        "training.epochs",
        "epsilon_up_to must be above 0",
    ),
    "table value": ({"training": {"epochs": [{"value": True}]}}, "training.epochs", "got True"),
    "table in a table": (
        {"training": {"epochs": [{"value": [{"value": 1}]}]}},
        "training.epochs must be a finite number",
    ),
    "table ends early": (
        {"training": {"epochs": [{"epsilon_up_to": 0.5, "value": 1}]}},
        "training.epochs",
        "ends at 0.5, below epsilon 1",
        "mechanism 'dp-sgd'",
    ),
    "no mechanisms": ({"mechanisms": []}, "mechanisms is missing"),
    "mechanisms a table": ({"mechanisms": NON_PRIVATE}, "mechanisms must be a list"),
    "mechanism a text": ({"mechanisms": ["dp-sgd"]}, "mechanisms[1]", "name is missing"),
    "mechanism nameless": ({"mechanisms": [NON_PRIVATE, {}]}, "mechanisms[2]", "name is missing"),
    "mechanism name": ({"mechanisms": [{"name": 3}]}, "mechanisms[1]: name must be text"),
    "unknown mechanism": (
        {"mechanisms": [{"name": "dp-sdg"}]},
        "mechanisms[1]",
        "'dp-sdg' is unknown",
        "did you mean 'dp-sgd'",
        "installed are: ",
    ),
    "mechanism file": ({"mechanisms": [{"name": "no.py:Mine"}]}, "mechanisms[1]", "no file no.py"),
    "unknown parameter": (
        {"mechanisms": [{"name": "dp-sgd", "clip_nrom": 1.0}]},
        "mechanisms[1]: unknown key clip_nrom",
        "did you mean 'clip_norm'",
        "allowed are: name, label, sweep, training, neighboring",
    ),
    "what calibration finds": (
        {"mechanisms": [{**DP_SGD, "noise_multiplier": 1.0}]},
        "unknown key noise_multiplier",
    ),
    "unknown own training key": (
        {"mechanisms": [{**DP_SGD, "training": {"epoch": 1}}]},
        "mechanisms[1]",
        "training.epoch",
        "'epochs'",
    ),
    "own training a number": (
        {"mechanisms": [{**DP_SGD, "training": 3}]},
        "mechanisms[1]: training must be a table",
    ),
    "own training value": (
        {"mechanisms": [{**DP_SGD, "training": {"batch_size": "1"}}]},
        "mechanisms[1]: training.batch_size must be a whole number",
    ),
    "own batch above n": (
        {"mechanisms": [NON_PRIVATE, {**DP_SGD, "training": {"batch_size": 10**18}}]},
        "mechanism 'dp-sgd'",
        "batch_size",
        "at most 1,603",
    ),
    "parameter text": (
        {"mechanisms": [{**DP_SGD, "clip_norm": "1"}]},
        "mechanisms[1]: clip_norm must be a finite number",
    ),
    "parameter true": ({"mechanisms": [{**DP_SGD, "clip_norm": True}]}, "clip_norm", "got True"),
    "clip norm inf": ({"mechanisms": [{**DP_SGD, "clip_norm": math.inf}]}, "clip_norm", "finite"),
    "clip norm zero": (
        {"mechanisms": [{**DP_SGD, "clip_norm": 0}]},
        "clip_norm must be at least",
    ),
    "clip norm negative": ({"mechanisms": [{**DP_SGD, "clip_norm": -1}]}, "clip_norm", "-1.0"),
    "one bad candidate": ({"mechanisms": [{**DP_SGD, "clip_norm": [1, -1]}]}, "clip_norm", "-1.0"),
    "group size": ({"mechanisms": [{**DP_SGD, "group_size": 1.5}]}, "group_size", "whole number"),
    "correction": (
        {"mechanisms": [{**RANDOMIZED_RESPONSE, "correction": "sideways"}]},
        "correction must be one of forward, backward",
    ),
    "duplicate labels": (
        {"mechanisms": [DP_SGD, {**DP_SGD, "clip_norm": 2.0}]},
        "mechanisms[2]: two mechanisms are called 'dp-sgd'",
        "label of its own",
    ),
    "empty label": ({"mechanisms": [{**DP_SGD, "label": ""}]}, "mechanisms[1]: label must be"),
    "label with commas": ({"mechanisms": [{**DP_SGD, "label": "a,b"}]}, "without commas"),
    "unknown key of two lines": ({"a\nb": 1}, "unknown key 'a\\nb'"),
    "title of two lines": ({"title": "a\nb"}, "title must be one line", "'a\\nb'"),
    "source with a zero": ({"data": {"source": "a\0"}}, "data.source must not hold a zero"),
    "source too long": ({"data": {"source": "x" * 5000}}, "data.source 'xxx", "name too long"),
    "table limit of many digits": (
        {"training": {"epochs": [{"epsilon_up_to": 10**400, "value": 1}]}},
        "training.epochs[1].epsilon_up_to: a whole number must lie between",
    ),
    "table limits that are one number": (
        {
            "training": {
                "epochs": [
                    {"epsilon_up_to": 2**53, "value": 1},
                    {"epsilon_up_to": 2**53 + 1, "value": 2},
                ]
            }
        },
        "training.epochs: epsilon_up_to must be above 0 and grow from row to row",
    ),
    "value of many entries": ({"seeds": list(range(5000))}, "seeds must be a whole number", "..."),
    "too many trials": ({"seeds": 10**12}, "trials", "at most 100,000"),
    "too many candidates": (
        {"training": {key: [0.1, 0.2] * 500 for key in ("learning_rate", "momentum", "epochs")}},
        "it has 1,000,000,000 trials",
    ),
    "too many steps": ({"training": {"steps": 10**15}}, "1e+15 steps; a trial may have at most"),
    "too many epochs": ({"training": {"epochs": 1e308}}, "training.epochs 1e+308 are inf steps"),
    "mechanism file with a long name": (
        {"mechanisms": [{"name": "x" * 300 + ".py:Mine"}]},
        "mechanisms[1]: mechanism 'xxx",
        "cannot be read: File name too long",
    ),
    "mechanism with a longer name": (
        {"mechanisms": [{"name": "x" * 5000}]},
        "mechanisms[1]: mechanism 'xxx",
        "its name is too long",
    ),
    "label of two lines": ({"mechanisms": [{**DP_SGD, "label": "a\nb"}]}, "label must be one line"),
    "label with spaces around": (
        {"mechanisms": [{**DP_SGD, "label": "a "}]},
        "label must be a text without commas and without spaces around it, got 'a '",
    ),
    "label too long": (
        {"mechanisms": [{**DP_SGD, "label": "a" * 201}]},
        "label must have at most 200 characters",
    ),
    "label a number": ({"mechanisms": [{**DP_SGD, "label": 1}]}, "label must be text"),
    "sweep a list": (
        {"mechanisms": [{**DP_SGD, "label": "a", "sweep": [1.0]}]},
        "mechanisms[1]: sweep must be a table of lists",
    ),
    "sweep a number": (
        {"mechanisms": [{"name": "dp-sgd", "sweep": {"clip_norm": 1.0}}]},
        "sweep.clip_norm must be a list of values",
    ),
    "sweep of tables": (
        {"mechanisms": [{"name": "dp-sgd", "sweep": {"clip_norm": [{"value": 1.0}]}}]},
        "sweep.clip_norm must list numbers",
    ),
    "sweep of other lengths": (
        {"mechanisms": [{"name": "dp-sgd", "sweep": {"clip_norm": [1.0], "group_size": [1, 2]}}]},
        "walked together",
        "clip_norm 1, group_size 2",
    ),
    "swept texts": (
        {"mechanisms": [{**RANDOMIZED_RESPONSE, "sweep": {"correction": ["a b"]}}]},
        "sweep.correction name curves",
        "without spaces",
    ),
    "swept training of a text": (
        {"mechanisms": [{**DP_SGD, "training": "x", "sweep": {"training": {"epochs": [1]}}}]},
        "mechanisms[1]: training must be a table",
    ),
    "relation of labels": (
        {"mechanisms": [{**RANDOMIZED_RESPONSE, "neighboring": "replace-one"}]},
        "neighboring is for mechanisms that release gradients",
    ),
    "swept and set": (
        {"mechanisms": [{**DP_SGD, "sweep": {"clip_norm": [2.0]}}]},
        "mechanisms[1]: clip_norm is swept and set",
    ),
    "training swept and set": (
        {
            "mechanisms": [
                {**DP_SGD, "training": {"epochs": 1}, "sweep": {"training": {"epochs": [2, 3]}}}
            ]
        },
        "training.epochs is swept and set",
    ),
    "unknown swept": (
        {"mechanisms": [{**DP_SGD, "sweep": {"clip": [2.0]}}]},
        "mechanisms[1]: unknown key clip",
    ),
    "swept value": (
        {"mechanisms": [{"name": "dp-sgd", "sweep": {"clip_norm": ["2"]}}]},
        "mechanisms[1]: clip_norm must be a finite number",
    ),
    "sweep of sweeps": (
        {"mechanisms": [{"name": "dp-sgd", "sweep": {"sweep": [1, 2]}}]},
        "mechanisms[1]: sweep cannot be swept",
    ),
    "swept twice": (
        {
            "mechanisms": [
                {
                    "name": "dp-sgd",
                    "sweep": {"training": {"epochs": [1]}, "training.epochs": [2]},
                }
            ]
        },
        "mechanisms[1]: sweep names training.epochs twice",
    ),
    "own neighboring a number": (
        {"mechanisms": [{**DP_SGD, "neighboring": 3}]},
        "mechanisms[1]: neighboring must be text, got 3",
    ),
    "selection above all": (
        {"mechanisms": [{**DP_SGD, "private_selection": 1e300}]},
        "mechanisms[1]: private_selection is a mean number of candidates, at least 1 and at most",
    ),
    "own neighboring": (
        {"mechanisms": [{**DP_SGD, "neighboring": "replace-two"}]},
        "mechanisms[1]: neighboring must be one of zero-out",
    ),
    "own accountant": (
        {"mechanisms": [{**DP_SGD, "accountant": "prv"}]},
        "mechanisms[1]: accountant must be one of pld, rdp",
    ),
    "selection below one": (
        {"mechanisms": [{**DP_SGD, "private_selection": 0.5}]},
        "mechanisms[1]: private_selection is a mean number of candidates, at least 1",
    ),
    "steps": ({"training": {"steps": -1}}, "training.steps must be at least 1"),
    "tuning seeds": ({"tuning_seeds": 2}, "tuning_seeds must lie between 1 and the 1 seeds, got 2"),
    "tuning seeds none": ({"tuning_seeds": 0}, "tuning_seeds must lie between", "got 0"),
    "account seeds": ({"kind": "account", "seeds": 2}, "no randomness; leave out seeds"),
    "account candidates": (
        {"kind": "account", "mechanisms": [{**DP_SGD, "clip_norm": [1.0, 2.0]}]},
        "mechanism 'dp-sgd'",
        "clip_norm: a list is a list of candidates",
        "use sweep",
    ),
    "equal curves": (
        {"mechanisms": [DP_SGD, {**DP_SGD, "label": "again"}]},
        "mechanism 'again'",
        "the same as mechanism 'dp-sgd' at epsilon 1.0",
    ),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_every_mistake_is_named_with_file_key_and_what_is_allowed(tmp_path, mistake):
    changes, *parts = MISTAKES[mistake]
    path = tiny.write(tmp_path, tiny.content(DP_SGD, **changes))
    message = refused(path, str(path), *parts)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a = " + "[" * 5000, "is nested more than 20 levels deep"),
        ("a = " + "{a = " * 5000, "is nested more than 20 levels deep"),
        ("task" + ".a" * 800 + " = 1", "is nested more than 20 levels deep"),
        ("seeds = " + "1" * 5000, "holds a number with thousands of digits"),
        ("data.seed = 0x" + "f" * 5000, "data.seed: a whole number must lie between -2**63 and"),
    ],
)
def test_text_that_would_break_a_parser(tmp_path, text, part):
    path = tmp_path / "deep.toml"
    path.write_text(text)
    refused(path, "deep.toml", part)


def test_a_table_may_be_nested_as_deeply_as_any_study_needs(tmp_path):
    path = tmp_path / "deep.toml"
    path.write_text("unknown = " + "[" * 18 + "1" + "]" * 18)
    refused(path, "deep.toml: unknown key unknown")


def test_many_entries_of_one_mechanism_are_read_at_once(tmp_path):
    swept = {**RANDOMIZED_RESPONSE, "sweep": {"training": {"epochs": list(range(1, 1001))}}}
    start = time.thread_time()
    assert len(tiny.study(tmp_path, swept).entries) == 1000
    assert time.thread_time() - start < 1


def test_dates_are_of_no_allowed_type(tmp_path):
    path = tmp_path / "dates.toml"
    path.write_text("task = 'pctr'\nseeds = 1979-05-27\n")
    refused(path, "dates.toml", "seeds must be a whole number")


def test_delta_up_to_1_over_n_is_accepted_and_a_larger_one_on_demand(tmp_path):
    assert tiny.trials(tmp_path, delta=1 / 1603)[0]["budget"]["delta"] == 1 / 1603
    large = tiny.trials(tmp_path, delta=0.01, allow_large_delta=True)
    assert large[0]["budget"]["delta"] == 0.01
    assert tiny.trials(tmp_path)[0]["budget"]["delta"] == pytest.approx(1603**-1.1)


# --- what the command line overrides -------------------------------------------------------------


def test_subsets(tmp_path):
    study = tiny.study(tmp_path, *ALL, epsilons=[1, 3], seeds=4)
    chosen = select(study, seeds=2, epsilons=["0.5", "1e0", "1"], mechanisms=["dp-sgd"])
    assert (chosen.seeds, chosen.epsilons) == (2, (0.5, 1.0))
    assert [entry.label for entry in chosen.entries] == ["dp-sgd"]
    assert select(study) == study


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"seeds": 0}, ["--seeds must be at least 1"]),
        ({"epsilons": ["nan"]}, ["--epsilons", "finite number above 0", "nan"]),
        ({"epsilons": ["1", "inf"]}, ["--epsilons", "'non-private'"]),
        ({"epsilons": ["0"]}, ["--epsilons", "above 0"]),
        ({"epsilons": [10**400]}, ["--epsilons", "is not a number"]),
        ({"epsilons": ["one"]}, ["--epsilons", "'one' is not a number"]),
        ({"epsilons": []}, ["--epsilons", "at least one"]),
        ({"mechanisms": ["dp-sdg"]}, ["--mechanisms", "dp-sgd", "did you mean 'dp-sgd'"]),
        ({"mechanisms": []}, ["--mechanisms", "at least one"]),
    ],
)
def test_overrides_that_cannot_be(tmp_path, changes, parts):
    study = tiny.study(tmp_path, *ALL)
    with pytest.raises(UsageError, match=re.escape(parts[0])) as caught:
        select(study, **changes)
    assert all(part in str(caught.value) for part in parts)
