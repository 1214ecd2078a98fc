"""The results of a study in words: the terminal table, and the sentences that go with any figure.

Everything is read off the frame that :func:`dpcompare.summary.summarize` makes.
"""

import math
import textwrap
from collections.abc import Callable

import pandas as pd

from dpcompare.crossover import Crossover, crossovers
from dpcompare.privacy import ROW_RELATIONS
from dpcompare.summary import METRICS, Records, relation_column, summarize, write_summary

__all__ = [
    "Crossover",
    "crossing_sentences",
    "crossovers",
    "failure_counts",
    "failure_sentences",
    "privacy_sentences",
    "remark_sentences",
    "seeds_sentence",
    "summarize",
    "table",
    "tuning_sentence",
    "write_summary",
]

WIDTH = 100
UNIT_NOTE = (
    "One example is one row: someone who owns several rows is protected less than epsilon says."
)


def table(summary: pd.DataFrame) -> str:
    """The study as plain text, at most 100 columns wide.

    Args:
        summary: from :func:`summarize`.

    Returns:
        A header, one line per curve and epsilon (``!`` where it is worse than predicting the base
        rate, ``*`` where it is the best of several candidates), what each epsilon protects, and
        which trials failed or are missing.
    """
    first = summary.iloc[0]
    head = [f"{first['title']} (study {first['study']}, task {first['task']})"]
    head += [seeds_sentence(summary)]
    legend = []
    if summary["worse_than_base_rate"].any():
        legend += ["! worse than always predicting the base rate (normalized entropy above 1)"]
    if summary["tuned"].any():
        legend += ["* best of several candidates, see below"]
    legend += ["log loss in nats; calibration is predicted over observed positives, 1 is right"]
    blocks = [
        _wrapped(head),
        _grid(summary),
        _wrapped(legend),
        _wrapped(["Equal epsilon is not equal privacy:", *privacy_sentences(summary)], "  "),
        _wrapped([UNIT_NOTE, tuning_sentence(summary)]),
        _wrapped(failure_sentences(summary) + remark_sentences(summary)),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def seeds_sentence(summary: pd.DataFrame) -> str:
    """What mean and band are, and over how many seeds."""
    n = _span([count for count in summary["n_seeds"] if count > 0])
    if n == "1":
        return "n = 1 seed, so there is no standard error; test-sample error is not shown either."
    return f"n = {n} seeds, mean ± standard error, test-sample error not included."


def privacy_sentences(summary: pd.DataFrame, with_relations: bool = True) -> list[str]:
    """What epsilon means, curve by curve: unit, neighboring relation, delta, accountant.

    Args:
        summary: from :func:`summarize`.
        with_relations: also state the epsilon of the same trials under the other row relations.
    """
    labels: dict[str, list[str]] = {}
    for label, rows in summary.groupby("label", sort=False):
        finite = rows[rows["epsilon"] < math.inf]
        stated = finite[finite["unit"].notna()]
        if finite.empty:
            text = "no privacy."
        elif stated.empty:
            text = "no trial got as far as a guarantee."
        else:
            relations = _relations(stated) if with_relations else ""
            text = f"{_protection(stated)}.{_excess(stated)}{relations}"
        labels.setdefault(text, []).append(str(label))
    return [f"{', '.join(names)}: {text}" for text, names in labels.items()]


def tuning_sentence(summary: pd.DataFrame, with_choices: bool = True) -> str:
    """That epsilon is per trial, and what was selected by looking at private rows.

    Args:
        summary: from :func:`summarize`.
        with_choices: also name the candidate chosen in every row.
    """
    if not summary["tuned"].any():
        return "Epsilon is that of one trial; any tuning before this study is not counted in it."
    counts = summary[summary["n_candidates"] > 0].groupby("label", sort=False)["n_candidates"]
    tried = [f"{label} {_span(list(group))}" for label, group in counts]
    uneven = "" if len(set(summary["n_candidates"]) - {0}) == 1 else " (not equally many)"
    text = (
        "Tuned by mean validation log loss; epsilon is that of one trial, selection is not counted "
        f"in it. Candidates: {', '.join(tried)}{uneven}."
    )
    picked = summary[summary["tuned"] & (summary["n_seeds"] > 0)]
    if not with_choices or picked.empty:
        return text
    choices = [
        f"{label} at epsilon {_listed(rows)}: {candidate}"
        for (label, candidate), rows in picked.groupby(["label", "candidate"], sort=False)
    ]
    return f"{text} Chosen: {'; '.join(choices)}."


def crossing_sentences(records: Records, metric: str | None = None) -> str:
    """Where the curves cross, one sentence per pair, at most 100 columns wide.

    Args:
        records: of one study.
        metric: what to compare by; None takes the study's own, or AUC where that has no better
            direction.

    Raises:
        UsageError: the metric is unknown.
        DpcompareError: there are no records.
    """
    own = records[-1]["metric"] if records else "auc"
    if metric is None:
        metric = "auc" if own in METRICS and METRICS[own].better == "one" else own
    found = [crossover.statement for crossover in crossovers(records, metric)]
    if not found:
        return ""
    return _wrapped(["Paired by seed, with 95% t intervals at each epsilon:", *found], "  ")


def failure_sentences(summary: pd.DataFrame) -> list[str]:
    """Every failed trial with its reason."""
    return _by_text(summary, "failed", "Failed")


def remark_sentences(summary: pd.DataFrame) -> list[str]:
    """What has no record yet, what is undefined or left out, and the notes of the trials."""
    sentences = _by_text(summary, "missing", "Missing")
    for name, metric in METRICS.items():
        undefined = int((summary["n_seeds"] - summary[f"{name}_n"]).sum())
        if undefined:
            sentences.append(
                f"{metric.title} is undefined in {undefined} trials, left out of its mean."
            )
    if superseded := summary["superseded"].iloc[0]:
        sentences.append(
            f"{superseded} older records of the same curve, epsilon and seed with other settings "
            "are left out."
        )
    for note, rows in summary[summary["notes"] != ""].groupby("notes", sort=False):
        sentences.append(f"{', '.join(dict.fromkeys(rows['label']))}: {note}")
    return sentences


def failure_counts(summary: pd.DataFrame) -> list[str]:
    """One phrase per curve with failed trials: how many, and at which epsilons."""
    failed = summary[summary["n_failed"] > 0].groupby("label", sort=False)
    return [
        f"{label} ({rows['n_failed'].sum()} trials, at epsilon {_listed(rows)})"
        for label, rows in failed
    ]


def _by_text(summary: pd.DataFrame, column: str, title: str) -> list[str]:
    groups = summary[summary[column] != ""].groupby(["label", column], sort=False)
    return [
        f"{title}: {label} at epsilon {_listed(rows)}: {text}." for (label, text), rows in groups
    ]


def _protection(stated: pd.DataFrame) -> str:
    kinds = stated.groupby(["unit", "neighboring", "accountant"], sort=False)
    return "; ".join(
        f"epsilon protects one {unit} under {neighboring}, delta "
        f"{_span(list(rows['delta']), '{:.2g}'.format)} ({accountant} accountant)"
        for (unit, neighboring, accountant), rows in kinds
    )


def _relations(stated: pd.DataFrame) -> str:
    """The same trials under the row relations that they were not calibrated for."""
    same, other, undefined = [], [], []
    for relation in ROW_RELATIONS:
        rows = stated[stated["neighboring"] != relation]
        values = rows[relation_column(relation)]
        if rows.empty:
            continue
        if values.isna().all():
            undefined.append(relation)
        elif (values / rows["guarantee_epsilon"] - 1).abs().max() < 1e-3:
            same.append(relation)
        else:
            pairs = [f"{e:g}→{v:.3g}" for e, v in zip(rows["epsilon"], values, strict=True)]
            other.append(f" Under {relation}: {', '.join(pairs)}.")
    text = f" The same under {', '.join(same)}." if same else ""
    text += "".join(other)
    return text + (f" Not defined under {', '.join(undefined)}." if undefined else "")


def _excess(stated: pd.DataFrame) -> str:
    above = stated[stated["guarantee_epsilon"] > stated["epsilon"] * (1 + 1e-9)]
    pairs = zip(above["epsilon"], above["guarantee_epsilon"], strict=True)
    spent = ", ".join(f"{asked:g}→{given:.4g}" for asked, given in pairs)
    return f" More is spent than asked: {spent}." if spent else ""


def _grid(summary: pd.DataFrame) -> str:
    widest = max(map(len, [*summary["label"], "best possible"]))
    width = min(widest, 30)
    layout = f"{{:<{width}}}  {{:>8}}  {{:<15}}  {{:>8}}  {{:>10}}  {{:>11}}  {{:>5}}"
    head = ("curve", "epsilon", "AUC", "log loss", "norm. ent.", "calibration", "seeds")
    lines = [layout.format(*head)]
    lines.append("-" * len(lines[0]))
    best = [summary[f"best_possible_{name}"].iloc[0] for name in METRICS]
    if not all(map(math.isnan, best)):
        numbers = [_digits(value) for value in best]
        lines.append(layout.format("best possible", "", *numbers, ""))
    previous = None
    for _, row in summary.iterrows():
        if previous not in (None, row["label"]):
            lines.append("")
        previous = row["label"]
        lines.append(layout.format(*_cells(row, width)))
    return "\n".join(line.rstrip() for line in lines)


def _cells(row: pd.Series, width: int) -> list[str]:
    epsilon = f"{row['epsilon']:g}" + ("*" if row["tuned"] else "")
    if row["n_seeds"] == 0:
        return [_shortened(row["label"], width), epsilon, _absence(row), "", "", "", "0"]
    auc = _digits(row["auc"])
    if not math.isnan(row["auc_se"]):
        auc += f" ± {row['auc_se']:.4f}"
    entropy = ("! " if row["worse_than_base_rate"] else "") + _digits(row["normalized_entropy"])
    numbers = [auc, _digits(row["log_loss"]), entropy, _digits(row["calibration"])]
    return [_shortened(row["label"], width), epsilon, *numbers, str(row["n_seeds"])]


def _absence(row: pd.Series) -> str:
    if row["n_failed"]:
        return "failed"
    return "missing" if row["missing"] else "no valid score"


def _digits(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:.3g}"


def _shortened(label: str, width: int) -> str:
    """Cut in the middle: variants of one mechanism tend to differ at the end."""
    if len(label) <= width:
        return label
    return label[: width // 2 - 1] + "…" + label[len(label) - (width - width // 2) :]


def _span(values: list[float], form: Callable[[float], str] = "{:g}".format) -> str:
    low, high = form(min(values, default=0)), form(max(values, default=0))
    return low if low == high else f"{low}-{high}"


def _listed(rows: pd.DataFrame) -> str:
    return ", ".join(f"{epsilon:g}" for epsilon in rows["epsilon"])


def _wrapped(sentences: list[str], indent: str = "") -> str:
    """Each sentence on its own lines; `indent` applies to all but the first sentence."""
    lines = []
    for number, sentence in enumerate(sentences):
        start = indent if number else ""
        lines.append(
            textwrap.fill(sentence, WIDTH, initial_indent=start, subsequent_indent=start + "  ")
        )
    return "\n".join(lines)
