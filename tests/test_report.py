"""The page of a report: complete, self-contained, escaped, and the same for equal records."""

import base64
import hashlib
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from dpcompare import report
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.figures import draw
from dpcompare.results import ResultsFolder
from tests import fabricated_records as made

REFERENCE = Path(__file__).resolve().parents[1] / "results" / "reference"
VOID = {"meta", "link", "img", "br", "hr", "input", "col"}
FETCHING = {"src", "srcset", "poster", "data", "action", "formaction", "background", "xlink:href"}


class Page(HTMLParser):
    """Elements with their attributes, and the text of the page; elements must be balanced."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.open = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


def folder_of(path, records, figure=None):
    folder = ResultsFolder(path)
    with folder.lock():
        for record in records:
            folder.append(record)
    if figure:
        draw(folder, figure=figure)
    return path


def written(tmp_path, *studies):
    folders = [folder_of(tmp_path / f"study{n}", records) for n, records in enumerate(studies)]
    return report.write(folders, tmp_path / "out" / "page.html").read_text()


def assert_self_contained(text):
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "embed", "base"} & {
        t for t, _ in page.elements
    }
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in FETCHING:
                assert value.startswith("data:image/"), (tag, name)
            if name == "href":
                assert value.startswith("#")
            assert "url(" not in (value or "") or value.startswith("url(#"), (tag, name)
            assert name != "style"  # the policy of the page allows its style sheet only
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in style
    return page, style


def test_the_page_fetches_nothing_and_its_policy_says_so(tmp_path):
    folders = [REFERENCE / "quickstart", REFERENCE / "pconvs"]
    text = report.write(folders, tmp_path / "page.html").read_text()
    page, style = assert_self_contained(text)
    (policy,) = (m["content"] for m in page.all("meta") if "http-equiv" in m)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert f"style-src 'sha256-{digest}'" in policy
    assert "script-src" not in policy
    assert "unsafe" not in policy
    (html,) = page.all("html")
    assert html["lang"] == "en"


@pytest.mark.parametrize("name", sorted(path.name for path in REFERENCE.iterdir()))
def test_every_committed_study_has_a_page(tmp_path, name):
    page, _ = assert_self_contained(
        report.write([REFERENCE / name], tmp_path / "page.html").read_text()
    )
    for image in page.all("img"):
        assert len(image["alt"]) > 20
    assert f"dpcompare run-study {name}" in page.words


@pytest.mark.parametrize("count", [1, 2])
def test_headings_are_in_order_and_anchors_lead_somewhere(tmp_path, count):
    text = written(tmp_path, *[made.study()] * count)
    page = Page(text)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for a in page.all("a")} <= set(ids)


def test_the_verdict_and_what_it_rests_on_is_there(tmp_path):
    words = Page(written(tmp_path, made.study())).words
    for text in (
        "By validation log loss, take dp-sgd at epsilon",
        "Hanley and McNeil 1982",
        "Equal epsilon is not equal privacy",
        "epsilon protects one example under zero-out, delta 3.2e-06",
        "Features, under label mechanisms",
        "Someone who owns many rows",
        "seeds are published",
        "Epsilon is that of one trial",
        "jax 0.10.2",
        "random numbers threefry2x32",
        "train 100,000; validation 12,500; test 12,500",
        "dpcompare run-study quickstart",
        "No trial failed",
    ):
        assert text in words, text


def test_the_table_of_numbers_has_every_row_with_its_error(tmp_path):
    text = written(tmp_path, made.study())
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", text)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
    curve = {row[1]: row for row in cells if row[0] == "dp-sgd" and "±" in row[2]}
    assert list(curve) == [f"{epsilon:g}" for epsilon in made.EPSILONS]
    for epsilon, mean in zip(made.EPSILONS, made.SGD_AUC, strict=True):
        error = 0.004 * (1 + 0.3 / epsilon**0.5) / 3**0.5
        assert curve[f"{epsilon:g}"][2] == f"{mean:.4f} ± {error:.4f}"
    assert '<th scope="row">' in text
    assert '<th scope="col">' in text
    assert text.count("<caption>") == text.count("<table")


def test_what_comes_from_records_is_escaped(tmp_path):
    bad = "<script>alert(1)</script> a & b"
    records = made.study()
    for r in records:
        r["title"] = f"T {bad}"
        r["label"] = f"{r['label']} {bad}"
        r["notes"] = [f"N {bad}"]
        r["versions"] = {"jax": f"V {bad}"}
        r["configuration"] = r["configuration"] | {
            "data": {"source": f"D {bad}"},
            "training": {"optimizer": f"O {bad}"},
        }
    records.insert(0, made.failed("dp-sgd", 1.0, 9, f"R {bad}"))
    text = written(tmp_path, records)
    page, _ = assert_self_contained(text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; a &amp; b" in text
    for start in ("T", "N", "V", "D", "O", "R"):
        assert f"{start} {bad}" in page.words, start


def test_a_study_name_is_quoted_for_the_shell(tmp_path):
    records = [r | {"study": "my study; rm x"} for r in made.study()]
    assert "dpcompare run-study 'my study; rm x'" in Page(written(tmp_path, records)).words


def test_equal_records_give_equal_bytes(tmp_path):
    first = written(tmp_path / "a", made.study(), made.conversions("pconvs"))
    assert written(tmp_path / "b", made.study(), made.conversions("pconvs")) == first
    assert str(tmp_path) not in first


def test_failed_missing_and_undefined_trials_are_named(tmp_path):
    records = [r for r in made.study() if (r["label"], r["epsilon"], r["seed"]) != ("dp-sgd", 3, 1)]
    records.append(made.failed("rr-on-bins", 1.0, 0, "the loss is not finite"))
    undefined = made.metrics(None, 0.9)
    records.append(made.record("laplace", 1.0, 0, test=undefined, notes=["a remark on it"]))
    words = Page(written(tmp_path, records)).words
    assert "Failed: rr-on-bins at epsilon 1: seed 0: the loss is not finite." in words
    assert "Missing: dp-sgd at epsilon 3: seed 1." in words
    assert "AUC has no value in 1 trial, left out of its mean." in words
    assert "laplace: a remark on it." in words
    assert "1 failed, some without a record yet" in words


@pytest.mark.parametrize(
    "records",
    [
        [made.record("non-private", math.inf, 0)],
        [made.record("dp-sgd", 1.0, 0)],
        [made.failed("dp-sgd", 1.0, 0, "no memory")],
        [made.record("dp-sgd", 1.0, 0, test=made.metrics(None, None))],
        made.study(seeds=1),
        made.conversions("pcvr", seeds=2),
        made.sample_sizes(seeds=2),
    ],
    ids=["no privacy", "one point", "failed", "undefined", "one seed", "pcvr", "sizes"],
)
def test_odd_studies_have_a_page(tmp_path, records):
    page, _ = assert_self_contained(written(tmp_path, records))
    assert not re.search(r"\bnan\b|\bNone\b|\binf%", page.words)


def test_a_study_that_only_accounts_shows_its_noise(tmp_path):
    records = [
        made.account_record(epsilon, f"dp-sgd (batch_size={size})", 4 / epsilon, size)
        for size in (1024, 4096)
        for epsilon in (1.0, 3.0)
    ]
    page, _ = assert_self_contained(written(tmp_path, records))
    assert "This study trains nothing" in page.words
    assert "The noise that each budget needs" in page.words
    assert "dp-sgd (batch_size=4096) 3 2.9997" in page.words
    assert f"{4 / 3:.5g} {4 / 3 / 4096:.5g} 4,096" in page.words
    assert "has no value" not in page.words
    assert "Curves" not in page.words


def test_figures_of_the_folder_are_embedded_as_they_are(tmp_path):
    path = folder_of(tmp_path / "sizes", made.sample_sizes(seeds=2), "effective-sample-size")
    draw(ResultsFolder(path), figure="utility")
    page = Page(report.write([path], tmp_path / "page.html").read_text())
    (shown, behind_details) = page.all("img")
    content = base64.b64decode(shown["src"].removeprefix("data:image/svg+xml;base64,"))
    assert content == (path / "figures" / "effective-sample-size.svg").read_bytes()
    assert shown["alt"].startswith("Figure effective-sample-size of the study quickstart")
    assert "utility" in behind_details["alt"]
    (path / "figures" / "effective-sample-size.svg").unlink()
    page = Page(report.write([path], tmp_path / "page.html").read_text())
    assert page.all("img")[0]["src"].startswith("data:image/png;base64,")


def test_only_the_trials_of_the_plan_count(tmp_path):
    records = made.study()
    path = folder_of(tmp_path / "planned", records)
    ResultsFolder(path).write_plan(r["id"] for r in records if r["label"] != "randomized-response")
    words = Page(report.write([path], tmp_path / "page.html").read_text()).words
    assert "randomized-response" not in words


def test_what_cannot_be_read_or_written_is_said(tmp_path):
    with pytest.raises(UsageError, match="at least one results folder"):
        report.write([], tmp_path / "page.html")
    with pytest.raises(DpcompareError, match="does not exist"):
        report.write([tmp_path / "nothing"], tmp_path / "page.html")
    path = folder_of(tmp_path / "study", made.study())
    with pytest.raises(DpcompareError, match="cannot write"):
        report.write([path], path / "trials.jsonl" / "page.html")


def test_a_report_loads_neither_jax_nor_the_trainer(tmp_path):
    program = (
        "import sys; from pathlib import Path; from dpcompare import report; "
        f"report.write([Path({str(REFERENCE / 'quickstart')!r})], Path('page.html')); "
        "assert 'jax' not in sys.modules and 'dpcompare.trainer' not in sys.modules"
    )
    root = Path(report.__file__).parents[1]
    subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, check=True, env={"PYTHONPATH": str(root)}
    )
    assert (tmp_path / "page.html").stat().st_size > 100_000


def luminance(color):
    """Relative luminance of "#rgb" or "#rrggbb", WCAG 2.1."""
    digits = color[1:] if len(color) == 7 else "".join(2 * c for c in color[1:])
    shares = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [s / 12.92 if s <= 0.03928 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_text_has_the_contrast_of_wcag_aa():
    style = (Path(report.__file__).parent / "report_template" / "page.css").read_text()
    inks = set(re.findall(r"[{; ]color: (#\w+)", style))
    grounds = set(re.findall(r"background: (#\w+)", style))
    assert len(inks) >= 3
    assert len(grounds) >= 3
    for ink in inks:
        for ground in grounds:
            bright, dark = sorted((luminance(ink), luminance(ground)), reverse=True)
            assert (bright + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


@pytest.mark.parametrize("name", ["trials.jsonl", "summary.csv", "page", "."])
def test_only_pages_are_written(name, tmp_path):
    """A results folder holds files that cannot be made again."""
    folder = tmp_path / "results"
    folder.mkdir()
    with pytest.raises(UsageError, match=r"ends in \.html"):
        report.write([folder], folder / name)
    assert list(folder.iterdir()) == []
