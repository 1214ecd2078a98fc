"""One HTML page about one or several studies: the question, the verdict, and all that it rests on.

The page needs no network and no script, and equal results give equal bytes. The words come from
:mod:`dpcompare.verdict` and :mod:`dpcompare.wording`, the look from `report_template/`.
"""

import base64
import hashlib
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dpcompare import attack_power, attack_words, svg_chart, wording
from dpcompare.attack_table import attack_table
from dpcompare.audit import report_section
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.metric_sets import METRICS, MetricSet, metric_set
from dpcompare.report_tables import (
    Table,
    bid_table,
    choice_table,
    cost_tables,
    noise_table,
    number_notes,
    number_table,
    pair_table,
)
from dpcompare.results import ResultsFolder, write_atomically
from dpcompare.summary import Records, is_swept, shown_trials, summarize
from dpcompare.svg_chart import LegendEntry
from dpcompare.table_grid import shown_metrics
from dpcompare.verdict import Verdict, verdict

_QUESTIONS = {
    "pctr": "How likely is a click? The label is 0 or 1.",
    "pcvr": "How likely is a conversion? The label is 0 or 1, and most are 0.",
    "pconvs": "How many conversions? The label is a count.",
}
_NOT_SETTINGS = {"chunk_size", "lazy_noise", "evaluations"}  # they do not change what is learnt


@dataclass(frozen=True)
class Picture:
    """A figure of the results folder.

    Attributes:
        name: of the file.
        uri: its content as a data URI.
        alt: what it shows, in words.
        replaced: whether the page has a chart of its own for it.
        of_audit: whether it belongs to the section on the audit.
    """

    name: str
    uri: str
    alt: str
    replaced: bool
    of_audit: bool = False


@dataclass(frozen=True)
class Section:
    """All that the page says about one study. Words are not escaped, `charts` are whole SVGs."""

    anchor: str
    title: str
    study: str
    facts: Sequence[tuple[str, str]]
    verdict: Verdict
    choices: Table | None
    pairs: Table | None
    costs: Sequence[Table]
    bids: Table | None
    charts: Sequence[Markup]
    legend: Sequence[LegendEntry]
    no_chart: str
    pictures: Sequence[Picture]
    numbers: Table
    number_notes: Sequence[str]
    privacy: Sequence[str]
    attack: Table | None
    attack_notes: Sequence[str]
    tuning: str
    settings: Table | None
    audit: Table | None
    audit_notes: Sequence[str]
    failures: Sequence[str]
    remarks: Sequence[str]
    versions: str
    command: str
    unit_note: str = field(default=wording.UNIT_NOTE)


def write(folders: Sequence[Path], out: Path) -> Path:
    """Write one self-contained HTML page about the present trials of results folders.

    Args:
        folders: one or several results folders; each becomes a section, in this order.
        out: the file to write; its folder is made if needed.

    Returns:
        The file written.

    Raises:
        UsageError: no folder is given, or the task of a record is unknown.
        DpcompareError: a folder holds no results or a damaged record, or the file cannot be
            written.
    """
    if not folders:
        raise UsageError("a report needs at least one results folder, for example results/pctr")
    if out.suffix.lower() not in (".html", ".htm") or out.is_dir():
        raise UsageError(
            f"a report is written to a file whose name ends in .html, got {str(out)!r}; for "
            f"example {Path(folders[0]) / 'report.html'}"
        )
    sections = [_section(Path(path), number) for number, path in enumerate(folders, start=1)]
    write_atomically(Path(out), _render(sections).encode())
    return Path(out)


def _render(sections: Sequence[Section]) -> str:
    environment = Environment(
        loader=PackageLoader("dpcompare", "report_template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    loader = environment.loader
    assert loader is not None
    style = loader.get_source(environment, "page.css")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = environment.get_template("page.html.j2")
    return page.render(sections=sections, style=Markup(style), style_hash=digest)


def _section(path: Path, number: int) -> Section:
    folder = ResultsFolder(path)
    records = folder.records(folder.plan())
    summary = summarize(records)
    found = verdict(records)
    metrics = metric_set(summary["task"].iloc[0])
    names = _drawn_metrics(summary, metrics)
    anchor = f"study-{number}"
    charts = [svg_chart.chart(summary, name, anchor) for name in names] if found.trained else []
    findings = report_section.read(path)
    pictures = list(_pictures(folder, summary))
    drawn = [Markup(chart) for chart in charts if chart]
    no_curves = _finite_epsilons(summary) < 2 or is_swept(summary)
    if no_curves and any(not (p.replaced or p.of_audit) for p in pictures):
        drawn = []
    # Settings that are swept would be too many rows; their figure of attack power can be drawn.
    power = attack_power.of_records([] if is_swept(summary) else records)
    sentences = summary
    if not found.trained:  # no metric is missing where none was asked for
        sentences = summary.assign(
            **{f"{name}_n": summary["n_seeds"] for name in shown_metrics(summary)}
        )
    return Section(
        anchor=anchor,
        title=str(summary["title"].iloc[0]),
        study=str(summary["study"].iloc[0]),
        facts=list(_facts(records, summary, found.trained)),
        verdict=found,
        choices=choice_table(found, summary, metrics),
        pairs=pair_table(found),
        costs=list(cost_tables(found, metrics)),
        bids=bid_table(found),
        charts=drawn,
        legend=svg_chart.legend(summary, names) if drawn else [],
        no_chart=_no_chart(found, summary, any(not p.of_audit for p in pictures)),
        pictures=pictures,
        numbers=number_table(summary, metrics) if found.trained else noise_table(summary),
        number_notes=list(number_notes(summary, metrics)) if found.trained else [],
        privacy=wording.protection_sentences(summary),
        attack=attack_table(power),
        attack_notes=[] if power.empty else attack_words.sentences(power),
        tuning=wording.tuning_sentence(summary),
        settings=_settings(records),
        audit=report_section.audit_table(findings),
        audit_notes=report_section.audit_sentences(findings, [str(r["id"]) for r in records]),
        failures=wording.failure_sentences(summary),
        remarks=[*wording.remark_sentences(sentences), *folder.warnings],
        versions=_versions(records),
        command=f"dpcompare run-study {shlex.quote(str(summary['study'].iloc[0]))}",
    )


def _facts(records: Records, summary: pd.DataFrame, trained: bool) -> Iterator[tuple[str, str]]:
    task = str(summary["task"].iloc[0])
    yield "Task", f"{task}: {_QUESTIONS[task]}"
    data = [record["configuration"].get("data") or {} for record in records]
    sources = list(dict.fromkeys(str(d["source"]) for d in data if d.get("source")))
    if sources:
        named = ["the built-in synthetic ads log" if s == "synthetic" else s for s in sources]
        yield "Data", ", ".join(named)
    parts = [record["rows"] for record in records if record["rows"]]
    if parts:
        yield (
            "Rows",
            "; ".join(
                f"{name} {_range([p[name] for p in parts])}"
                for name in ("train", "validation", "test")
            ),
        )
    curves = list(dict.fromkeys(summary["curve"]))
    yield "Compared", ", ".join(curves)
    epsilons = sorted({e for e in summary["epsilon"] if math.isfinite(e)})
    yield "Epsilon", ", ".join(f"{e:g}" for e in epsilons) or "none"
    yield "Seeds", ", ".join(str(seed) for seed in sorted({r["seed"] for r in records}))
    yield "Trials", _trial_counts(records, summary)
    if trained:
        yield "Error bars", wording.seeds_sentence(summary)


def _trial_counts(records: Records, summary: pd.DataFrame) -> str:
    failed = sum(record["status"] == "failed" for record in records)
    text = f"{len(records) - failed:,} done"
    text += f", {failed:,} failed" if failed else ""
    return text + (", some without a record yet" if (summary["missing"] != "").any() else "")


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"


def _drawn_metrics(summary: pd.DataFrame, metrics: MetricSet) -> list[str]:
    """The study's metric; beside a ranking one the relative loss; and calibration for bids."""
    own = str(summary["metric"].iloc[0])
    loss = [] if METRICS[own].better == "lower" else [metrics.relative]
    return list(dict.fromkeys([own, *loss, "calibration"]))


def _finite_epsilons(summary: pd.DataFrame) -> int:
    return summary.loc[summary["epsilon"] < math.inf, "epsilon"].nunique()


def _no_chart(found: Verdict, summary: pd.DataFrame, pictures: bool) -> str:
    if not found.trained:
        return "Nothing was trained, so there is no utility to draw against epsilon."
    if is_swept(summary) and pictures:
        return "Settings are swept; the figures below show the metric against them."
    if _finite_epsilons(summary) < 2 and pictures:
        return (
            "There is a single epsilon, so there are no curves against it; see the figures below."
        )
    return "No trial with a finite epsilon has a score, so there is nothing to draw."


def _settings(records: Records) -> Table | None:
    """The settings of the trials shown, epsilons with equal ones together."""
    epsilons: dict[tuple[str, str], list[str]] = {}
    for (label, epsilon), trials in shown_trials(records).items():
        if trials and (text := _settings_text(trials[0]["configuration"])):
            shown = "∞" if epsilon == math.inf else f"{epsilon:g}"
            epsilons.setdefault((label, text), []).append(shown)
    rows = [[label, ", ".join(places), text] for (label, text), places in epsilons.items()]
    if not rows:
        return None
    return Table("Settings of the trials shown", ["Curve", "Epsilon", "Settings"], rows, 2, True)


def _settings_text(configuration: Mapping[str, Any]) -> str:
    mechanism = (configuration.get("mechanism") or {}).get("parameters") or {}
    training = configuration.get("training") or {}
    settings = {**mechanism, **{k: v for k, v in training.items() if k not in _NOT_SETTINGS}}
    if not settings.get("examples", 1):
        del settings["examples"]  # 0 stands for all
    return ", ".join(
        f"{key.replace('_', ' ')} {_setting(value)}"
        for key, value in settings.items()
        if value is not None and value != []
    )


def _setting(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _versions(records: Records) -> str:
    found: dict[str, dict[str, None]] = {}
    for record in records:
        own = record["configuration"].get("dpcompare")
        for name, version in {**({"dpcompare": own} if own else {}), **record["versions"]}.items():
            found.setdefault(str(name), {})[str(version)] = None
    texts = [f"{name} {' and '.join(sorted(of))}" for name, of in sorted(found.items())]
    generators = sorted({str(record["prng"]) for record in records})
    return ", ".join([*texts, f"random numbers {' and '.join(generators)}"])


def _pictures(folder: ResultsFolder, summary: pd.DataFrame) -> Iterator[Picture]:
    """The figures of the folder, as SVG where there is one."""
    try:
        files = {path.stem: path for path in sorted(folder.figures.glob("*.png"))}
        files |= {path.stem: path for path in sorted(folder.figures.glob("*.svg"))}
        contents = {name: path.read_bytes() for name, path in sorted(files.items())}
    except OSError as error:
        raise DpcompareError(f"cannot read {folder.figures}: {error.strerror}") from error
    kinds = {".png": "png", ".svg": "svg+xml"}
    for name, content in contents.items():
        kind = kinds[files[name].suffix]
        yield Picture(
            name=files[name].name,
            uri=f"data:image/{kind};base64,{base64.b64encode(content).decode()}",
            alt=f"Figure {name} of the study {summary['study'].iloc[0]}, "
            f"{summary['title'].iloc[0]}; its numbers stand in figures/{name}.csv",
            replaced=name == "utility",
            of_audit=name == "audit",
        )
