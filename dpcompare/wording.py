"""The results of a study in words: the terminal table, and the sentences that go with any figure.

Everything is read off the frame that :func:`dpcompare.summary.summarize` makes.
"""

import math
import textwrap
from collections.abc import Callable

import pandas as pd

from dpcompare.auc_error import sample_error_sentences
from dpcompare.crossover import Crossover, crossovers
from dpcompare.metric_sets import METRICS, metric_set
from dpcompare.noise_grid import noise_grid, noise_legend
from dpcompare.privacy import ROW_RELATIONS
from dpcompare.summary import Records, is_swept, relation_column, summarize, write_summary
from dpcompare.table_grid import grid, shown_metrics

__all__ = [
    "Crossover",
    "constant_legend",
    "crossing_sentences",
    "crossovers",
    "failure_counts",
    "failure_sentences",
    "privacy_sentences",
    "protection_sentences",
    "remark_sentences",
    "seeds_sentence",
    "summarize",
    "table",
    "trains",
    "tuning_sentence",
    "write_summary",
]

WIDTH = 100
UNIT_NOTE = (
    "One example is one row: someone who owns several rows is protected less than epsilon says."
)
_MEANINGS = {
    "average_precision": "avg. prec.: mean precision over the positives, from the top down",
    "log_loss": "log loss: mean negative log-likelihood, in nats",
    "normalized_entropy": "norm. ent.: normalized entropy, log loss over that of the base rate",
    "poisson_loss": "Poisson loss: mean of m - y log m over rows, m predicted for y, in nats",
    "deviance": "deviance: Poisson deviance, twice the Poisson loss above that of a perfect model",
    "d2": "D²: 1 minus deviance over that of the constant mean; 1 is perfect",
}
_CALIBRATION = {
    "base rate": "calibration: predicted over observed positives, 1 is right",
    "constant mean": "calibration: predicted over observed total, 1 is right",
}
_EFFECTIVE = "eff. rows: effective sample size, how many clean labels the random ones are worth"


def table(summary: pd.DataFrame) -> str:
    """The study as plain text, at most 100 columns wide.

    Args:
        summary: from :func:`summarize`.

    Returns:
        A header, one line per curve and epsilon (``!`` where it is worse than the best constant
        prediction, ``*`` where it is the best of several candidates), what each epsilon protects,
        and which trials failed or are missing.
    """
    first = summary.iloc[0]
    head = [f"{first['title']} (study {first['study']}, task {first['task']})"]
    head += [seeds_sentence(summary)]
    trained = trains(summary)
    blocks = [
        _wrapped(head),
        grid(summary, WIDTH) if trained else noise_grid(summary, WIDTH),
        _wrapped(_legend(summary) if trained else noise_legend(summary)),
        _wrapped(["Equal epsilon is not equal privacy:", *protection_sentences(summary)], "  "),
        _wrapped([UNIT_NOTE, tuning_sentence(summary)]),
        _wrapped(failure_sentences(summary) + remark_sentences(summary)),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def protection_sentences(summary: pd.DataFrame) -> list[str]:
    """What epsilon means; where settings are swept, once per curve, without the other relations."""
    if not is_swept(summary):
        return privacy_sentences(summary)
    curves = summary.assign(label=summary["curve"])
    return privacy_sentences(curves, with_relations=False)


def trains(summary: pd.DataFrame) -> bool:
    """Whether the study trains models; one of kind "account" does not."""
    return str(summary["kind"].iloc[0]) != "account"


def _legend(summary: pd.DataFrame) -> list[str]:
    """What the marks and the columns mean, a line each."""
    metrics = metric_set(summary["task"].iloc[0])
    legend = constant_legend(summary)
    if summary["tuned"].any():
        legend += ["* best of several candidates, see below"]
    legend += [_MEANINGS[name] for name in shown_metrics(summary) if name in _MEANINGS]
    legend += [_CALIBRATION[metrics.constant]]
    return legend + [_EFFECTIVE] * bool(summary["effective_examples"].notna().any())


def constant_legend(summary: pd.DataFrame) -> list[str]:
    """What the mark ! means, if there is one."""
    if not summary["worse_than_constant"].any():
        return []
    metrics = metric_set(summary["task"].iloc[0])
    relative = METRICS[metrics.relative]
    side = "below" if relative.better == "higher" else "above"
    return [
        f"! worse than always predicting the {metrics.constant} ({relative.title} {side} "
        f"{relative.uninformed:g})"
    ]


def seeds_sentence(summary: pd.DataFrame) -> str:
    """What mean and band are, and over how many seeds."""
    if not trains(summary):
        return "Computed from the accountant alone: no data is read and nothing is trained."
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
    private = summary["private_selection"].notna()
    if not trains(summary):
        return _private_selection_sentence(summary[private])
    counted = _private_selection_sentence(summary[private])
    if not (summary["tuned"] & ~private).any():
        rest = "Epsilon is that of one trial; any tuning before this study is not counted in it."
        return f"{counted} Else: {rest}" if counted and not private.all() else counted or rest
    tuned = summary[~private & (summary["n_candidates"] > 0)]
    counts = tuned.groupby("label", sort=False)["n_candidates"]
    tried = [f"{label} {_span(list(group))}" for label, group in counts]
    uneven = "" if len(set(tuned["n_candidates"])) == 1 else " (not equally many)"
    loss = METRICS[metric_set(summary["task"].iloc[0]).selection].title
    text = (
        f"Tuned by mean validation {loss}; epsilon is that of one trial, selection is not counted "
        f"in it. Candidates: {', '.join(tried)}{uneven}."
    )
    text = f"{text} {counted}".strip()
    picked = summary[summary["tuned"] & ~private & (summary["n_seeds"] > 0)]
    if not with_choices or picked.empty:
        return text
    choices = [
        f"{label} at epsilon {_listed(rows)}: {candidate}"
        for (label, candidate), rows in picked.groupby(["label", "candidate"], sort=False)
    ]
    return f"{text} Chosen: {'; '.join(choices)}."


def _private_selection_sentence(selected: pd.DataFrame) -> str:
    """What is counted where the number of candidates is random; empty if it is nowhere."""
    groups = selected.groupby("label", sort=False)["private_selection"]
    means = ", ".join(f"{label} {_span(list(group))}" for label, group in groups)
    if not means:
        return ""
    return (
        "Epsilon counts the choice among a random number of candidates, each with noise and "
        f"batches of its own (mean number: {means}); the validation rows that decide it are "
        "outside the guarantee."
    )


def crossing_sentences(records: Records, metric: str | None = None) -> str:
    """Where the curves cross, one sentence per pair, at most 100 columns wide.

    Args:
        records: of one study.
        metric: as for :func:`crossovers`.

    Raises:
        UsageError: the metric is not one of the task or has no better direction.
    """
    if any(record["configuration"].get("kind") == "account" for record in records):
        return ""
    found = [crossover.statement for crossover in crossovers(records, metric)]
    if not found:
        return ""
    sentences = ["Paired by seed, with 95% t intervals at each epsilon:", *found]
    return f"{_wrapped(sentences, '  ')}\n{_wrapped(list(sample_error_sentences(records)))}"


def failure_sentences(summary: pd.DataFrame) -> list[str]:
    """Every failed trial with its reason."""
    return _by_text(summary, "failed", "Failed")


def remark_sentences(summary: pd.DataFrame) -> list[str]:
    """What has no record yet, what is undefined or left out, and the notes of the trials."""
    sentences = _by_text(summary, "missing", "Missing")
    for name in shown_metrics(summary) if trains(summary) else []:
        without = int((summary["n_seeds"] - summary[f"{name}_n"]).sum())
        if without:
            trials = "1 trial" if without == 1 else f"{without} trials"
            sentences.append(
                f"{METRICS[name].title} has no value in {trials}, left out of its mean."
            )
    if superseded := summary["superseded"].iloc[0]:
        sentences.append(
            f"{superseded} older records of the same curve, epsilon and seed with other settings "
            "are left out."
        )
    return sentences + _note_sentences(summary)


def _note_sentences(summary: pd.DataFrame) -> list[str]:
    """Each note once, with the curves that it is about."""
    noted: dict[str, dict[str, None]] = {}
    for label, notes in zip(summary["label"], summary["notes"], strict=True):
        for note in filter(None, notes.split("; ")):
            noted.setdefault(note.removesuffix("."), {})[label] = None
    return [f"{', '.join(labels)}: {note}." for note, labels in noted.items()]


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
