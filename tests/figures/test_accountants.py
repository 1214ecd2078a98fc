"""Accountants compared: noise, ratio and, where there are scores, the metric."""

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from dpcompare.figures.accountants import accountants
from dpcompare.figures.style import NothingToDraw, render
from dpcompare.summary import summarize
from tests.fabricated_records import account_record, failed, metrics, record, study
from tests.figures.readable import cut_or_overlapping

NOISE = {  # epsilon: noise multiplier by PLD and by RDP, batches of 65,536 of 36,672,493 rows
    0.5: (4.9755, 5.2789),
    1.0: (2.6507, 2.7980),
    3.0: (1.1351, 1.1781),
    10.0: (0.6587, 0.6735),
}


def caption(figure: Figure) -> str:
    return " ".join(figure.texts[-1].get_text().split())


def accounted(
    epsilon: float, label: str, accountant: str, sigma: float, size: int = 65536
) -> dict[str, Any]:
    made = account_record(epsilon, label, sigma, size)
    return made | {"guarantee": made["guarantee"] | {"accountant": accountant}}


def account_only(size: int = 65536, label: str = "dp-sgd (accountant={})") -> list[dict[str, Any]]:
    return [
        accounted(epsilon, label.format(name), name, sigma, size)
        for place, name in enumerate(("pld", "rdp"))
        for epsilon, sigma in ((e, both[place]) for e, both in NOISE.items())
    ]


def trained(seeds: int = 3) -> list[dict[str, Any]]:
    made = []
    for one in account_only():
        worse = 0.004 * (one["guarantee"]["accountant"] == "rdp")
        for seed in range(seeds):
            auc = 0.78 - (0.02 + worse) / one["epsilon"] ** 0.5 + 0.001 * seed
            rows = {"train": 100000, "validation": 12500, "test": 12500}
            scores = {"test": metrics(auc, 0.9), "validation": metrics(auc, 0.9), "rows": rows}
            made.append(one | scores | {"seed": seed, "id": f"{one['id']}{seed}"})
    reference = [record("non-private", math.inf, s, test=metrics(0.79, 0.82)) for s in range(seeds)]
    return made + reference


def test_noise_and_ratio_equal_the_records() -> None:
    figure, numbers = accountants(account_only())
    noise, ratio = figure.axes
    for line, place in zip(noise.lines, (0, 1), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), list(NOISE))
        np.testing.assert_array_equal(line.get_ydata(), [both[place] for both in NOISE.values()])
    expected = [rdp / pld for pld, rdp in NOISE.values()]
    np.testing.assert_allclose(ratio.lines[0].get_ydata(), expected, rtol=1e-15)
    np.testing.assert_allclose(numbers.loc[numbers["panel"] == "ratio", "mean"], expected)
    assert set(numbers["panel"]) == {"noise_multiplier", "ratio"}
    assert (noise.get_xscale(), noise.get_yscale()) == ("log", "log")
    assert cut_or_overlapping(figure) == []


def test_the_caption_states_ratios_and_both_accountants() -> None:
    text = caption(accountants(account_only())[0])
    for part in (
        "dp-sgd (accountant=rdp) takes 1.061 times the noise of dp-sgd (accountant=pld) at epsilon "
        "0.5 (the most) and 1.022 times at 10 (the least).",
        "Computed; nothing was trained.",
        "Accountant: pld for dp-sgd (accountant=pld); rdp for dp-sgd (accountant=rdp).",
    ):
        assert part in text


def test_scores_have_a_panel_with_bands_and_the_line_without_privacy() -> None:
    figure, numbers = accountants(trained())
    summary = summarize(trained())
    assert [ax.get_label() for ax in figure.axes] == ["noise_multiplier", "ratio", "auc"]
    drawn = {line.get_label(): line for line in figure.axes[2].lines}
    for name in ("pld", "rdp"):
        label = f"dp-sgd (accountant={name})"
        rows = summary[summary["label"] == label]
        plotted = numbers[(numbers["panel"] == "auc") & (numbers["label"] == label)]
        np.testing.assert_array_equal(drawn[label].get_ydata(), rows["auc"])
        np.testing.assert_array_equal(plotted["standard_error"], rows["auc_se"])
    assert any("non-private 0.79" in text.get_text() for text in figure.axes[2].texts)
    text = caption(figure)
    assert "dp-sgd (accountant=pld) is ahead at epsilon 0.5, 1, 3, 10" in text
    assert "n = 3 seeds, mean ± standard error" in text
    assert "non-private" not in text
    assert cut_or_overlapping(figure) == []


def test_labels_are_paired_by_all_but_the_accountant() -> None:
    made = account_only(1024, "dp-sgd {}, small") + account_only(65536, "dp-sgd {}, large")
    made += [r for r in account_only(4096, "dp-sgd {}, odd") if "rdp" in r["label"]]
    figure, numbers = accountants(made)
    ratio = numbers[numbers["panel"] == "ratio"]
    assert list(dict.fromkeys(ratio["label"])) == ["dp-sgd rdp, small", "dp-sgd rdp, large"]
    text = caption(figure)
    assert "dp-sgd rdp, small takes 1.061 times the noise of dp-sgd pld, small" in text
    assert "No ratio, nothing differs in the accountant alone: dp-sgd rdp, odd." in text
    assert cut_or_overlapping(figure) == []


def test_two_labels_alone_are_paired_whatever_they_are_called() -> None:
    made = [*account_only(label="tight")[:4], *account_only(label="loose")[4:]]
    _, numbers = accountants(made)
    assert (numbers["panel"] == "ratio").sum() == len(NOISE)


def test_unpaired_labels_have_an_empty_ratio() -> None:
    made = account_only(1024, "small {}")[:4] + account_only(2048, "large {}")
    made = [r for r in made if "rdp" not in r["label"]] + account_only(512, "odd {}")[4:]
    figure, numbers = accountants(made)
    assert set(numbers["panel"]) == {"noise_multiplier"}
    assert "small pld, large pld, odd rdp" in caption(figure)


def test_one_epsilon_and_one_seed() -> None:
    made = [r for r in trained(1) if r["epsilon"] in (1.0, math.inf)]
    figure, numbers = accountants(made)
    assert len(numbers[numbers["panel"] == "ratio"]) == 1
    assert "takes 1.056 times the noise of dp-sgd (accountant=pld) at epsilon 1." in caption(figure)
    assert cut_or_overlapping(figure) == []


def test_failures_and_other_mechanisms_are_named() -> None:
    made = [
        failed("dp-sgd", r["epsilon"], r["seed"], "diverged", label=r["label"])
        if r["epsilon"] == 3.0 and "pld" in r["label"]
        else r
        for r in trained()
    ]
    made += [record("laplace", e, s) for e in NOISE for s in range(3)]
    figure, _ = accountants(made)
    text = caption(figure)
    assert "Failed: dp-sgd (accountant=pld) (3 trials, at epsilon 3)" in text
    assert "Not drawn for lack of a noise multiplier: laplace." in text
    assert np.isnan(figure.axes[0].lines[0].get_ydata()[2])
    assert len(figure.axes[1].lines[0].get_xdata()) == 3
    assert cut_or_overlapping(figure) == []


def test_equal_records_give_equal_files() -> None:
    assert render(accountants(trained())[0], "png") == render(accountants(trained())[0], "png")


def test_one_accountant_is_nothing_to_compare() -> None:
    with pytest.raises(NothingToDraw, match=r"pld and rdp.*pld alone.*rdp"):
        accountants(account_only()[:4])
    with pytest.raises(NothingToDraw, match="there is none"):
        accountants(study())
    with pytest.raises(NothingToDraw, match="there is none"):
        accountants([failed("dp-sgd", 1.0, 0, "no noise fits")])
