"""From studies to trials: how many, in which order, and what tells them apart."""

import json
import math
import shutil
from collections import Counter

import pytest

from dpcompare import data
from dpcompare.configuration import identity, training_rows
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.expansion import expand
from dpcompare.study import load, select
from dpcompare.trial import run_trial
from tests import tiny_studies as tiny
from tests.tiny_studies import ALL, DP_SGD, NON_PRIVATE, RANDOMIZED_RESPONSE

PLUGIN = """
from dpcompare.mechanism import Mechanism

class Mine(Mechanism):
    strength: float = 2.0
"""


def ids(configurations):
    return [identity(configuration) for configuration in configurations]


def epsilon_of(configuration):
    return configuration["budget"]["epsilon"]


# --- how many ------------------------------------------------------------------------------------


def test_the_quickstart_has_57_trials_with_the_reference_once_per_seed():
    configurations = expand(load("quickstart"))
    counts = Counter(c["about"]["label"] for c in configurations)
    assert counts == {"non-private": 3, "dp-sgd": 27, "randomized-response": 27}
    assert len(set(ids(configurations))) == 57
    reference = [c for c in configurations if c["about"]["label"] == "non-private"]
    assert [(c["seed"], epsilon_of(c)) for c in reference] == [(0, "inf"), (1, "inf"), (2, "inf")]


def test_equal_epsilons_give_one_trial(tmp_path):
    epsilons = [1, 1.0, 0.1 + 0.2, 0.3]
    configurations = tiny.trials(tmp_path, DP_SGD, epsilons=epsilons)
    assert [epsilon_of(c) for c in configurations] == [0.3, 1.0]
    asked = select(tiny.study(tmp_path, DP_SGD), epsilons=["0.30000000000000004", "1e0"])
    assert ids(expand(asked)) == ids(configurations)


def test_every_combination_of_candidates_is_a_trial(tmp_path):
    table = [{"epsilon_up_to": 1, "value": [0.1, 0.2]}, {"value": 0.3}]
    mechanism = {**DP_SGD, "clip_norm": [1, 2, 2.0], "training": {"learning_rate": table}}
    configurations = tiny.trials(tmp_path, mechanism, epsilons=[1, 3])
    tried = [
        (epsilon_of(c), c["mechanism"]["parameters"]["clip_norm"], c["training"]["learning_rate"])
        for c in configurations
    ]
    small = [(1.0, clip, rate) for rate in (0.1, 0.2) for clip in (1.0, 2.0)]
    assert sorted(tried) == sorted([*small, (3.0, 1.0, 0.3), (3.0, 2.0, 0.3)])
    assert configurations[0]["about"]["candidate"] == {
        "training.learning_rate": 0.1,
        "clip_norm": 1.0,
    }
    assert configurations[-1]["about"]["candidate"] == {"clip_norm": 2.0}


def test_a_table_over_epsilon_is_read_up_to_and_including_its_limits(tmp_path):
    table = [{"epsilon_up_to": 0.3, "value": 1}, {"epsilon_up_to": 1, "value": 2}, {"value": 3}]
    mechanism = {**DP_SGD, "training": {"epochs": table}}
    configurations = tiny.trials(
        tmp_path, mechanism, NON_PRIVATE, epsilons=[0.1, 0.3, 0.31, 1, 1.01, 50]
    )
    epochs = [c["training"]["epochs"] for c in configurations if epsilon_of(c) != "inf"]
    assert epochs == [1, 1, 2, 2, 3, 3]


def test_a_table_in_the_shared_section_holds_for_the_reference_too(tmp_path):
    table = [{"epsilon_up_to": 2, "value": 1}, {"value": 4}]
    configurations = tiny.trials(tmp_path, NON_PRIVATE, DP_SGD, training={"epochs": table})
    assert [(epsilon_of(c), c["training"]["epochs"]) for c in configurations] == [
        ("inf", 4.0),
        (1.0, 1.0),
    ]
    with pytest.raises(UsageError, match=r"'non-private': training.epochs.*below epsilon inf"):
        tiny.trials(tmp_path, NON_PRIVATE, training={"epochs": table[:1]})


# --- order ---------------------------------------------------------------------------------------


def test_the_order_is_by_seed_then_as_the_study_lists_it(tmp_path):
    study = tiny.study(tmp_path, *ALL, epsilons=[3, 1], seeds=2)
    configurations = expand(study)
    found = [(c["seed"], c["about"]["label"], epsilon_of(c)) for c in configurations]
    private = [(label, e) for label in ("dp-sgd", "randomized-response") for e in (1.0, 3.0)]
    assert found == [(s, *what) for s in (0, 1) for what in [("non-private", "inf"), *private]]
    assert ids(expand(study)) == ids(configurations)
    subset = expand(select(study, seeds=1, epsilons=[3], mechanisms=["dp-sgd"]))
    assert set(ids(subset)) < set(ids(configurations)), "a subset repeats trials of the whole"


# --- identity ------------------------------------------------------------------------------------

RESULT_CHANGING = {
    "epsilon": {"epsilons": [2.0]},
    "delta": {"delta": 1e-5},
    "neighboring": {"neighboring": "replace-one"},
    "accountant": {"accountant": "rdp"},
    "allow_large_delta": {"allow_large_delta": True},
    "rows": {"data": {"rows": 2005}},
    "data seed": {"data": {"seed": 1}},
    "base rate": {"data": {"base_rate": 0.2}},
    "split": {"data": {"split": [0.7, 0.2, 0.1]}},
    "buckets": {"model": {"buckets": 21}},
    "tower": {"model": {"tower": [5]}},
    "categories": {"model": {"categories": "vocabulary"}},
    "optimizer": {"training": {"optimizer": "sgd"}},
    "learning rate": {"training": {"learning_rate": 0.11}},
    "decay": {"training": {"decay": "constant"}},
    "momentum": {"training": {"momentum": 0.8}},
    "batch size": {"training": {"batch_size": 101}},
    "epochs": {"training": {"epochs": 2}},
    "chunk size": {"training": {"chunk_size": 50}},
    "clip norm": {"mechanisms": [{**DP_SGD, "clip_norm": 1.5}]},
    "group size": {"mechanisms": [{**DP_SGD, "group_size": 2}]},
    "mechanism": {"mechanisms": [RANDOMIZED_RESPONSE]},
}


def test_every_setting_that_may_change_a_result_changes_the_identity(tmp_path):
    found = {"nothing": ids(tiny.trials(tmp_path, DP_SGD))[0]}
    for name, changes in RESULT_CHANGING.items():
        found[name] = ids(tiny.trials(tmp_path, DP_SGD, **changes))[0]
    second_seed = tiny.trials(tmp_path, DP_SGD, seeds=2)[1]
    found["seed"] = identity(second_seed)
    found["version of dpcompare"] = identity({**second_seed, "dpcompare": "0.0.0"})
    repeated = [key for key, count in Counter(found.values()).items() if count > 1]
    assert [name for name, key in found.items() if key in repeated] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"title": "Another title"},
        {"metric": "log_loss"},
        {"mechanisms": [{**DP_SGD, "label": "another label"}]},
        {"mechanisms": [{**DP_SGD, "clip_norm": [1.0]}]},
        {"mechanisms": [{**DP_SGD, "training": {"epochs": [{"value": 1}]}}]},
        {"training": {"epochs": 1.0, "chunk_size": 0}},
        {"model": {"min_count": 7}},  # read by vocabularies only
        {"epsilons": [1]},
    ],
)
def test_what_cannot_change_a_result_does_not_change_the_identity(tmp_path, changes):
    assert ids(tiny.trials(tmp_path, DP_SGD, **changes)) == ids(tiny.trials(tmp_path, DP_SGD))


def test_the_name_of_the_study_file_does_not_count(tmp_path):
    made = tiny.content(DP_SGD)
    first, second = (tiny.write(tmp_path, made, name) for name in ("one.toml", "two.toml"))
    assert ids(expand(load(str(first)))) == ids(expand(load(str(second))))


def test_the_code_of_a_mechanism_counts_and_its_label_does_not(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    mechanism = {"name": f"{path}:Mine"}
    first = ids(tiny.trials(tmp_path, mechanism))
    assert ids(tiny.trials(tmp_path, {**mechanism, "label": "mine"})) == first
    assert ids(tiny.trials(tmp_path, {**mechanism, "strength": 3})) != first
    path.write_text(PLUGIN + "\n# edited\n")
    assert ids(tiny.trials(tmp_path, mechanism)) != first


def test_the_rows_of_a_prepared_data_set_count_and_its_place_does_not(tmp_path):
    def prepared(name, rows, seed=0):
        text = tmp_path / f"{name}.txt"
        data.write_text(text, rows, seed)
        data.prepare("criteo-kaggle", [text], tmp_path / name)
        return tmp_path / name

    def trial_on(folder):
        return expand(select(tiny.study(tmp_path, DP_SGD), data_path=folder))[0]

    first = trial_on(prepared("first", 500))
    assert first["data"]["rows"] == 500, "rows of the synthetic log do not count here"
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    assert identity(trial_on(tmp_path / "copy")) == identity(first)
    assert identity(trial_on(prepared("longer", 501))) != identity(first)
    assert identity(trial_on(prepared("other", 500, seed=1))) != identity(first)
    with pytest.raises(DpcompareError, match="nothing here"):
        trial_on(tmp_path / "nothing here")


def test_configurations_are_strict_json_and_survive_it(tmp_path):
    configurations = tiny.trials(tmp_path, *ALL, epsilons=[0.1, 50])
    again = [json.loads(json.dumps(c, allow_nan=False)) for c in configurations]
    assert again == configurations
    assert ids(again) == ids(configurations)


# --- curves that are the same --------------------------------------------------------------------


def test_curves_that_share_a_trial_are_refused_since_one_would_lack_it(tmp_path):
    tuned = {**DP_SGD, "label": "tuned", "clip_norm": [1.0, 2.0]}
    with pytest.raises(UsageError, match="'tuned': it trains the same as mechanism 'dp-sgd'"):
        tiny.trials(tmp_path, DP_SGD, tuned)
    other = {**DP_SGD, "label": "tuned", "clip_norm": [2.0, 3.0]}
    assert len(tiny.trials(tmp_path, DP_SGD, other)) == 3


def test_selections_among_other_candidates_share_nothing(tmp_path):
    """Not the number of candidates either: their generators differ, and so do all trials."""
    entries = [
        {**DP_SGD, "label": label, "private_selection": 3.0, "training": {"learning_rate": rates}}
        for label, rates in (("a", [0.1, 0.3]), ("b", [0.1, 1.0]))
    ]
    trials = tiny.trials(tmp_path, *entries, seeds=8)
    places = [(trial["about"]["label"], trial["seed"]) for trial in trials]
    counts = [[places.count((label, seed)) for seed in range(8)] for label in "ab"]
    assert counts[0] != counts[1]
    assert min(counts[0] + counts[1]) >= 1
    assert len({trial["selection"]["among"] for trial in trials}) == 2 * 8


def test_the_default_delta_follows_the_training_rows(tmp_path):
    configuration = tiny.trials(tmp_path, DP_SGD)[0]
    assert configuration["budget"]["delta"] == pytest.approx(1603**-1.1)
    assert math.isfinite(epsilon_of(configuration))


# --- training rows, priors, base rates ------------------------------------------------------------


def test_fewer_training_examples_are_another_trial_with_a_delta_of_its_own(tmp_path):
    few = {**DP_SGD, "label": "few", "training": {"examples": 400}}
    all_rows, subset = tiny.trials(tmp_path, DP_SGD, few)
    assert subset["budget"]["delta"] == pytest.approx(400**-1.1)
    assert all_rows["budget"]["delta"] == pytest.approx(tiny.TRAIN_ROWS**-1.1)
    assert training_rows(subset) == 400
    assert training_rows(all_rows) == tiny.TRAIN_ROWS == all_rows["data"]["parts"][0]


def test_examples_beyond_the_training_rows_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"training.examples must lie between 1 and the 1,603"):
        tiny.trials(tmp_path, training={"examples": 1604})


def test_a_public_prior_is_a_value_and_a_list_of_candidates_is_not(tmp_path):
    bins = {"name": "rr-on-bins", "prior_share": [0.05, 0.1]}
    configurations = tiny.trials(tmp_path, bins, task="pconvs", cap=2)
    assert [c["mechanism"]["parameters"]["prior_share"] for c in configurations] == [0.05, 0.1]
    assert all(c["mechanism"]["parameters"]["prior"] == [] for c in configurations)
    public = {"name": "rr-on-bins", "prior": [0.9, 0.06, 0.04]}
    (configuration,) = tiny.trials(tmp_path, public, task="pconvs", cap=2)
    assert configuration["about"]["candidate"] == {}


def test_a_base_rate_that_cannot_be_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(UsageError, match=r"base_rate of pctr must lie between 0 and 1, got 1.5"):
        tiny.trials(tmp_path, training={"base_rate": 1.5})
    tiny.trials(tmp_path, training={"base_rate": 1.5}, task="pconvs", cap=2)


def test_the_cap_is_part_of_a_trials_identity(tmp_path):
    of_cap = [tiny.trials(tmp_path, NON_PRIVATE, task="pconvs", cap=cap)[0] for cap in (2, 3)]
    assert len({*ids(of_cap)}) == 2


def test_a_prepared_task_with_rows_of_its_own_is_split_by_them(tmp_path):
    """Clicked rows only, and journeys are not cut: the plan says how many rows train."""
    schema = tmp_path / "own.toml"
    schema.write_text(
        "rows_in_time_order = true\njourney = ['user']\ncolumns = ["
        "{name='user', role='ignore'}, {name='x', role='numeric'}, {name='click', role='label'},"
        "{name='buy', role='label'}]\n[tasks]\npctr = 'click'\n"
        "pcvr = {label = 'buy', rows = 'click'}\n"
    )
    lines = [f"{row // 4},{row},{row % 2},{int(row % 10 == 1)}" for row in range(400)]
    log = tmp_path / "log.csv"
    log.write_text("user,x,click,buy\n" + "\n".join(lines) + "\n")
    data.prepare(schema, [log], tmp_path / "prepared")
    made = {"source": str(tmp_path / "prepared")}
    training = {"batch_size": 10}
    (clicks,) = tiny.trials(tmp_path, data=made, training=training)
    (sales,) = tiny.trials(tmp_path, data=made, training=training, task="pcvr")
    assert clicks["data"]["parts"] == [320, 40, 40]
    assert sales["data"]["parts"] == [160, 20, 20]
    record = run_trial(sales)
    assert record["rows"] == {"train": 160, "validation": 20, "test": 20}
    with pytest.raises(DpcompareError, match=r"pconvs.*pctr, pcvr"):
        tiny.trials(tmp_path, data=made, task="pconvs", cap=2)


IMPOSSIBLE = {
    "prior of another length": (
        {"name": "rr-on-bins", "prior": [0.5, 0.5]},
        1.0,
        "3 probabilities",
    ),
    "noise beyond doubles": ({"name": "additive-noise"}, 1e-7, "take at least"),
    "a tiny histogram": ({"name": "rr-on-bins"}, 1e-4, "prior_share 0.05 of epsilon 0.0001"),
    "no privacy": ({"name": "randomized-response"}, 1000.0, "at most 700, or inf"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_label_mechanisms_that_cannot_work_are_refused_before_anything_runs(tmp_path, name):
    mechanism, epsilon, message = IMPOSSIBLE[name]
    with pytest.raises(UsageError, match=message):
        tiny.trials(tmp_path, mechanism, epsilons=[epsilon], task="pconvs", cap=2)


def test_a_cap_too_large_to_design_for_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"cap of pconvs can be at most 50, got 60"):
        tiny.trials(tmp_path, {"name": "unbiased-randomizer"}, task="pconvs", cap=60)


@pytest.mark.parametrize("rate", [1e-5, 500.0])
def test_a_base_rate_that_is_never_predicted_is_refused(tmp_path, rate):
    with pytest.raises(UsageError, match=r"from 4.5e-05 to 14.8 at cap 2"):
        tiny.trials(tmp_path, training={"base_rate": rate}, task="pconvs", cap=2)


def test_all_examples_are_one_trial_however_they_are_written(tmp_path):
    configurations = tiny.trials(tmp_path, training={"examples": [0, tiny.TRAIN_ROWS]})
    assert len(configurations) == 1


def test_an_exposure_needs_a_base_rate(tmp_path):
    schema = tmp_path / "own.toml"
    schema.write_text(
        "rows_in_time_order = true\ncolumns = [{name='shown', role='exposure'},"
        "{name='x', role='numeric'}, {name='sales', role='label'}]\n[tasks]\npconvs = 'sales'\n"
    )
    log = tmp_path / "log.csv"
    lines = [f"{1000 + row},{row % 7},{row % 3}" for row in range(400)]
    log.write_text("shown,x,sales\n" + "\n".join(lines) + "\n")
    data.prepare(schema, [log], tmp_path / "prepared")
    made = {"task": "pconvs", "cap": 3, "data": {"source": str(tmp_path / "prepared")}}
    with pytest.raises(UsageError, match=r"exposure.*set training.base_rate"):
        tiny.trials(tmp_path, training={"batch_size": 10}, **made)
    training = {"batch_size": 10, "epochs": 5, "base_rate": 1 / 1200, "learning_rate": 0.01}
    record = run_trial(tiny.trials(tmp_path, training=training, **made)[0])
    assert record["test"]["calibration"] == pytest.approx(1, abs=0.25)
