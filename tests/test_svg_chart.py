"""The charts of a report: every value is there, can be focused, and is escaped."""

import math
from xml.etree import ElementTree as ET

import pytest
from matplotlib.colors import to_hex

from dpcompare.figures.style import curve_styles
from dpcompare.summary import summarize
from dpcompare.svg_chart import chart, legend
from tests import fabricated_records as made
from tests.fabricated_records import EPSILONS, RR_AUC, SGD_AUC


def points(svg):
    return ET.fromstring(svg).findall("g[@class='point']")


def labels(svg):
    return [point.get("aria-label") for point in points(svg)]


def test_every_value_has_a_point_that_can_be_focused_and_reads_itself():
    svg = chart(summarize(made.study()), "auc", "one")
    found = points(svg)
    assert len(found) == 2 * len(EPSILONS)
    assert {(p.get("tabindex"), p.get("role")) for p in found} == {("0", "img")}
    for label, means in (("dp-sgd", SGD_AUC), ("randomized-response", RR_AUC)):
        for epsilon, mean in zip(EPSILONS, means, strict=True):
            start = f"{label}; epsilon {epsilon:g}, protects one "
            (text,) = (text for text in labels(svg) if text.startswith(start))
            assert f"; AUC {mean:.4f} ± " in text
            assert "(3 seeds)" in text
    for point in found:
        shown = [text.text for text in point.findall("g[@class='tip']/text")]
        assert "".join("; ".join(shown).split()) in "".join(point.get("aria-label").split())


def test_points_lie_where_their_values_are():
    summary = summarize(made.study())
    places = {}
    for point in points(chart(summary, "auc", "one")):
        circle = point.find("circle[@class='reach']")
        label, epsilon = point.get("aria-label").split("; ")[:2]
        key = label, float(epsilon.split(",")[0].removeprefix("epsilon "))
        places[key] = float(circle.get("cx")), float(circle.get("cy"))
    # x is linear in log epsilon, y in the value
    (x0, y0), (x1, y1) = places["dp-sgd", 0.1], places["dp-sgd", 50.0]
    for epsilon, value in zip(EPSILONS, SGD_AUC, strict=True):
        share = math.log(epsilon / 0.1) / math.log(500)
        rise = (value - SGD_AUC[0]) / (SGD_AUC[-1] - SGD_AUC[0])
        x, y = places["dp-sgd", epsilon]
        assert x == pytest.approx(x0 + share * (x1 - x0), abs=0.2)
        assert y == pytest.approx(y0 + rise * (y1 - y0), abs=0.2)
    assert y1 < y0  # higher is better, and higher up


def test_points_on_each_other_tell_each_other():
    records = [made.record(name, 1.0, 0) for name in ("dp-sgd", "laplace")]
    first, second = labels(chart(summarize(records), "auc", "one"))
    assert "also here: laplace 0.7800" in first
    assert "also here: dp-sgd 0.7800" in second
    assert "(1 seed)" in first


def test_tooltips_are_drawn_above_all_curves():
    root = ET.fromstring(chart(summarize(made.study()), "auc", "one"))
    kinds = [child.get("class") for child in root]
    assert kinds == [None] + ["point"] * (len(kinds) - 1)
    assert root[0].get("aria-hidden") == "true"


def test_tooltips_stay_inside_the_chart():
    for name in ("poisson_loss", "calibration"):
        root = ET.fromstring(chart(summarize(made.conversions("pconvs")), name, "one"))
        _, _, width, height = map(float, root.get("viewBox").split())
        for box in root.iterfind("g/g[@class='tip']/rect"):
            x, y, w, h = (float(box.get(key)) for key in ("x", "y", "width", "height"))
            assert x >= 0
            assert x + w <= width
            assert y >= 0
            assert y + h <= height or h > height - 10


def test_values_beyond_the_axis_are_written_and_can_be_focused():
    summary = summarize(made.conversions("pconvs"))
    svg = chart(summary, "poisson_loss", "one")
    written = [e.text for e in ET.fromstring(svg).iter("text") if (e.text or "").startswith("↑")]
    assert len(written) > 3
    assert len(points(svg)) == 6 * len(EPSILONS)


def test_curves_look_as_in_the_other_figures():
    summary = summarize(made.study())
    for name in ("auc", "calibration"):
        drawn = {
            path.get("stroke") for path in ET.fromstring(chart(summary, name, "a")).iter("path")
        }
        for style in curve_styles(["dp-sgd", "randomized-response"]).values():
            assert to_hex(style["color"]) in drawn
    samples = {entry.text: entry.sample for entry in legend(summary, ["auc"])}
    assert samples.keys() == {
        "dp-sgd", "randomized-response", "non-private (epsilon = inf)", "best possible"
    }  # fmt: skip
    assert "stroke-dasharray" in samples["randomized-response"]
    assert "stroke-dasharray" not in samples["dp-sgd"]


def test_a_single_seed_has_a_hollow_marker_and_no_error():
    svg = chart(summarize(made.study(seeds=1)), "auc", "one")
    markers = [e for e in ET.fromstring(svg).iter("path") if "scale" in (e.get("transform") or "")]
    assert {marker.get("fill") for marker in markers} == {"#ffffff"}
    assert "±" not in svg


def test_text_from_records_is_escaped():
    bad = "<script>alert(1)</script> a & b \" ' $x$"
    svg = chart(summarize([made.record("dp-sgd", 1.0, 0, label=bad)]), "auc", "one")
    assert "<script" not in svg
    assert "&lt;script&gt;alert(1)&lt;/script&gt; a &amp; b" in svg
    assert labels(svg)[0].startswith(bad)


def test_ids_differ_between_charts():
    summary = summarize(made.study())
    texts = [chart(summary, name, prefix) for name in ("auc", "calibration") for prefix in "ab"]
    ids = [e.get("id") for text in texts for e in ET.fromstring(text).iter() if e.get("id")]
    assert len(ids) == len(set(ids)) == 4


def test_gaps_and_missing_values_are_survived():
    records = [r for r in made.study() if not (r["label"] == "dp-sgd" and r["epsilon"] == 1.0)]
    assert len(points(chart(summarize(records), "auc", "one"))) == 2 * len(EPSILONS) - 1
    undefined = [made.record("dp-sgd", 1.0, 0, test=made.metrics(None, None))]
    assert chart(summarize(undefined), "auc", "one") == ""
    assert chart(summarize([made.record("non-private", math.inf, 0)]), "auc", "one") == ""
