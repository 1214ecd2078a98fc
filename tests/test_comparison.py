"""Two results folders side by side."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from scipy import stats

from dpcompare.comparison import Difference, compare, comparison_text, differing_settings
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.results import ResultsFolder
from tests.fabricated_records import account_record, conversions, failed, metrics, record, study

REFERENCE = Path(__file__).resolve().parents[1] / "results" / "reference"
STUDY: dict[str, Any] = {
    "title": "Clicks",
    "task": "pctr",
    "seeds": 3,
    "data": {"rows": 1000},
    "mechanisms": [
        {"name": "dp-sgd", "label": "dp-sgd", "clip_norm": 1.0, "training": {"epochs": 4.0}},
        {"name": "dp-sgd", "label": "other", "clip_norm": 1.0, "training": {"epochs": 4.0}},
    ],
}


def written(path: Path, records: list, content: dict[str, Any] | None = None) -> Path:
    folder = ResultsFolder(path)
    for made in records:
        folder.append(made)
    if content is not None:
        folder.study.write_text(tomli_w.dumps(content))
    return path


def trials(scores: dict[int, float | None], label: str = "dp-sgd", **changes: Any) -> list:
    return [
        record("dp-sgd", 1.0, seed, label=label, test=metrics(score, 0.8), **changes)
        for seed, score in scores.items()
    ]


def other(records: list) -> list:
    """The same places with other identities."""
    return [made | {"id": f"b{made['id']}"} for made in records]


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_shared_seeds_are_paired_as_scipy_does(tmp_path: Path, random: np.random.Generator) -> None:
    first = 0.7 + 0.05 * random.standard_normal(5)
    second = first + 0.01 + 0.003 * random.standard_normal(5)
    a = written(tmp_path / "a", trials(dict(enumerate(map(float, first)))))
    b = written(tmp_path / "b", other(trials(dict(enumerate(map(float, second))))))
    row = compare(a, b).iloc[0]
    expected = stats.ttest_rel(second, first).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx(tuple(expected), rel=1e-9)
    assert (row["interval"], row["n_pairs"]) == ("paired", 5)
    assert row["decided"]
    assert row["difference"] == pytest.approx(row["mean_b"] - row["mean_a"])
    assert row["standard_error_a"] == pytest.approx(stats.sem(first))


def test_other_seeds_or_other_data_are_not_paired(
    tmp_path: Path, random: np.random.Generator
) -> None:
    first, second = 0.7 + 0.05 * random.standard_normal(5), 0.7 + 0.01 * random.standard_normal(3)
    expected = stats.ttest_ind(second, first, equal_var=False).confidence_interval(0.95)
    a = written(tmp_path / "a", trials(dict(enumerate(map(float, first)))))
    later = dict(enumerate(map(float, second), start=5))
    same = dict(enumerate(map(float, second)))
    other_data = {"configuration": {"data": {"checksum": "b" * 64}}}
    for name, made in {"seeds": trials(later), "data": trials(same, **other_data)}.items():
        b = written(tmp_path / name, other(made))
        row = compare(a, b).iloc[0]
        assert (row["low"], row["high"]) == pytest.approx(tuple(expected), rel=1e-9)
        assert (row["interval"], row["n_pairs"], row["decided"]) == ("Welch", 0, False)
        assert "Welch" in comparison_text(a, b)


def test_where_data_lies_does_not_matter(tmp_path: Path) -> None:
    sides = []
    for name in ("a", "b"):
        data = {"checksum": "c" * 64, "path": f"somewhere/{name}"}
        made = trials({0: 0.7, 1: 0.71}, configuration={"data": data})
        sides.append(written(tmp_path / name, made))
    assert compare(*sides)["interval"].tolist() == ["paired"]


def test_a_paired_interval_covers_as_often_as_it_says(
    tmp_path: Path, random: np.random.Generator
) -> None:
    made: dict[str, list] = {"a": [], "b": []}
    for curve in range(400):
        shared = random.standard_normal(4)
        for name, noise in (("a", 0.3), ("b", 0.6)):
            scores = 0.7 + 0.01 * (shared + noise * random.standard_normal(4))
            made[name] += trials(dict(enumerate(map(float, scores))), label=f"curve {curve}")
    lines = {name: written_at_once(tmp_path / name, records) for name, records in made.items()}
    missed = compare(lines["a"], lines["b"])["decided"].mean()
    assert missed == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 400))


def written_at_once(path: Path, records: list) -> Path:
    from dpcompare.results import encode

    path.mkdir()
    (path / "trials.jsonl").write_text("".join(f"{encode(made)}\n" for made in records))
    return path


def test_one_seed_has_a_difference_without_an_interval(tmp_path: Path) -> None:
    a = written(tmp_path / "a", trials({0: 0.7}))
    b = written(tmp_path / "b", trials({0: 0.75}))
    row = compare(a, b).iloc[0]
    assert row["difference"] == pytest.approx(0.05)
    assert math.isnan(row["low"])
    assert (row["interval"], row["decided"]) == ("", False)
    assert "No interval where a folder has one seed only." in comparison_text(a, b)


def test_the_same_trials_are_called_the_same(tmp_path: Path) -> None:
    records = study()
    a, b = written(tmp_path / "a", records), written(tmp_path / "b", records)
    frame = compare(a, b)
    assert frame["same_trials"].all()
    assert (frame["difference"] == 0).all()
    assert not frame["decided"].any()
    assert "These are the same trials, with the same results." in comparison_text(a, b)
    changed = [made | {"test": metrics(0.5, 1.0)} for made in records[:1]]
    b = written(tmp_path / "b", changed)
    assert "but their results are not the same" in comparison_text(a, b)
    c = written(tmp_path / "c", [*records[:4], *other(records[4:])])
    assert "4 trials are the same in both, with the same results." in comparison_text(a, c)


def test_what_only_one_folder_has_is_named(tmp_path: Path) -> None:
    a = written(tmp_path / "a", [*trials({0: 0.7, 1: 0.71}), record("old", 0.5, 0)])
    b = written(tmp_path / "b", [*trials({0: 0.7, 1: 0.72}), record("new", 3.0, 0)])
    frame = compare(a, b).set_index(["label", "epsilon"])
    assert frame.loc[("old", 0.5), "absent_b"] == "not in the study"
    assert frame.loc[("new", 3.0), "absent_a"] == "not in the study"
    text = comparison_text(a, b)
    # dp-sgd has no trial at 0.5 and 3, but its study has.
    assert "Only in A: dp-sgd at epsilon 0.5; old at epsilon 0.5, 1." in text
    assert "Only in B: dp-sgd at epsilon 3; new at epsilon 1, 3." in text


def test_failed_and_undefined_trials_are_in_words(tmp_path: Path) -> None:
    lost = [failed("dp-sgd", 1.0, seed, "diverged") for seed in (0, 1)]
    a = written(tmp_path / "a", [*lost, *trials({0: None, 1: None}, label="constant")])
    b = written(
        tmp_path / "b", [*trials({0: 0.7, 1: 0.71}), *trials({0: 0.7, 1: 0.7}, label="constant")]
    )
    frame = compare(a, b).set_index("label")
    assert frame["absent_a"].to_dict() == {"dp-sgd": "failed", "constant": "-"}
    assert frame["absent_b"].to_dict() == {"dp-sgd": "", "constant": ""}
    (line,) = (line for line in comparison_text(a, b).splitlines() if line.startswith("dp-sgd "))
    assert line.split()[1:4] == ["1", "failed", "0.7050"]


def test_settings_that_differ_are_named_once(tmp_path: Path) -> None:
    changed = STUDY | {
        "seeds": 5,
        "mechanisms": [
            entry
            | {
                "clip_norm": [
                    {"epsilon_up_to": 2.0, "value": 1.0},
                    {"epsilon_up_to": math.inf, "value": 3.0},
                ],
                "training": {"epochs": 8.0},
            }
            for entry in STUDY["mechanisms"]
        ],
    }
    a = written(tmp_path / "a", trials({0: 0.7}), STUDY)
    b = written(tmp_path / "b", trials({0: 0.7}, versions={"jax": "0.11.0"}), changed)
    assert differing_settings(a, b) == [
        Difference("seeds", "3", "5"),
        Difference("dp-sgd, other: clip_norm", "1", "1 up to epsilon 2, 3 above"),
        Difference("dp-sgd, other: training.epochs", "4", "8"),
        Difference("version of jax", "0.10.2", "0.11.0"),
    ]
    assert "  dp-sgd, other: training.epochs: 4 → 8" in comparison_text(a, b).splitlines()
    assert differing_settings(a, a) == []
    assert "No setting differs." in comparison_text(a, a)


def test_code_and_data_are_compared_by_the_records(tmp_path: Path) -> None:
    sides = []
    for name in ("a", "b"):
        configuration = {
            "data": {"checksum": name * 64},
            "mechanism": {"version": f"dpcompare==0.1.0 sha256:{name}"},
        }
        sides.append(written(tmp_path / name, trials({0: 0.7}, configuration=configuration)))
    assert [found.setting for found in differing_settings(*sides)] == [
        "checksum of the data",
        "code of dp-sgd",
    ]
    assert "has no study.toml that can be read" in " ".join(comparison_text(*sides).split())


def test_noise_is_compared_where_nothing_is_trained(tmp_path: Path) -> None:
    label = "dp-sgd (batch_size=1024)"
    a = written(tmp_path / "a", [account_record(1.0, label, 2.0, 1024)])
    b = written(tmp_path / "b", [account_record(1.0, label, 3.0, 1024)])
    row = compare(a, b).iloc[0]
    assert (row["metric"], row["mean_a"], row["mean_b"]) == ("noise_multiplier", 2, 3)
    assert row["interval"] == ""
    (line,) = (line for line in comparison_text(a, b).splitlines() if line.startswith(label))
    assert line.split()[2:] == ["1", "2.0000", "3.0000", "1.5000"]
    trained = written(tmp_path / "c", study())
    with pytest.raises(UsageError, match="compare two of one kind"):
        compare(a, trained)


def test_other_tasks_and_empty_folders_are_clear_errors(tmp_path: Path) -> None:
    a = written(tmp_path / "a", study())
    b = written(tmp_path / "b", conversions("pconvs", seeds=1))
    with pytest.raises(
        UsageError, match=r"task pctr .* of task pconvs; compare results of one task"
    ):
        compare(a, b)
    with pytest.raises(DpcompareError, match="does not exist"):
        comparison_text(a, tmp_path / "nowhere")


def test_a_damaged_last_line_is_said(tmp_path: Path) -> None:
    a, b = written(tmp_path / "a", study(seeds=1)), written(tmp_path / "b", study(seeds=1))
    with (a / "trials.jsonl").open("a") as file:
        file.write('{"torn')
    assert "is damaged" in " ".join(comparison_text(a, b).split())


def test_infinite_scores_have_no_interval(tmp_path: Path) -> None:
    infinite = metrics(0.5, 0.8) | {"auc": math.inf}
    a = written(tmp_path / "a", [record("x", 1.0, seed, test=infinite) for seed in (0, 1)])
    b = written(tmp_path / "b", [record("x", 1.0, seed) for seed in (0, 1)])
    row = compare(a, b).iloc[0]
    assert row["interval"] == ""
    assert not row["decided"]
    assert "inf" in comparison_text(a, b)


@pytest.mark.parametrize(
    ("first", "second"), [("pconvs", "pconvs-rows"), ("quickstart", "effective-sample-size")]
)
def test_real_results_fit_the_terminal(first: str, second: str) -> None:
    text = comparison_text(REFERENCE / first, REFERENCE / second)
    assert max(map(len, text.splitlines())) <= 100
    assert "Only in A: " in text


def test_long_labels_and_large_numbers_fit_the_terminal(tmp_path: Path) -> None:
    label = "a mechanism of a very long name " * 4 + "(variant)"
    for name, auc in (("a", 1.5e8), ("b", 3.5e-8)):
        scores = {seed: -auc * (1 + seed) for seed in range(3)}
        written(tmp_path / name, trials(scores, label=label))
    text = comparison_text(tmp_path / "a", tmp_path / "b")
    assert max(map(len, text.splitlines())) <= 100
    assert "(variant)" in text
