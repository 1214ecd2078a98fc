"""Studies: a TOML file says what to ask; :mod:`dpcompare.expansion` makes trials of it."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpcompare import catalog, tasks
from dpcompare.catalog import near_miss
from dpcompare.data.toml_table import parse_toml, shown
from dpcompare.errors import UsageError
from dpcompare.mechanism import Mechanism, Plugin, find, parameter_defaults
from dpcompare.metric_sets import metric_set
from dpcompare.privacy import ACCOUNTANTS, ROW_RELATIONS
from dpcompare.settings import (
    check_choice,
    check_keys,
    check_kind,
    check_line,
    located,
    scalar,
    setting,
)
from dpcompare.sweeps import split_label, walked

DEFAULTS: dict[str, dict[str, Any]] = {
    "data": {
        "source": "synthetic",
        "rows": 125_000,
        "seed": 0,
        "base_rate": 0.25,
        "conversion_rate": 0.03,
        "split": [0.8, 0.1, 0.1],
    },
    "model": {"buckets": 300, "tower": [598] * 4, "categories": "hash", "min_count": 2},
    "training": {
        "optimizer": "momentum",
        "learning_rate": 0.1,
        "decay": "cosine",
        "momentum": 0.9,
        "batch_size": 1024,
        "epochs": 5.0,
        "steps": 0,
        "chunk_size": 0,
        "lazy_noise": "auto",
        "evaluations": 1,
        "weight_decay": 0.0,
        "base_rate": 0.0,
        "examples": 0,
    },
}
"""Every key of a study's sections with its default.

A chunk size of 0 lets the trainer choose, examples of 0 are all training rows, and steps of 0 leave
the number of steps to the epochs.
"""

TOP_LEVEL = {
    "title": str,
    "task": str,
    "cap": int,
    "kind": str,
    "figure": str,
    "metric": str,
    "epsilons": list,
    "seeds": int,
    "tuning_seeds": int,
    "delta": float,
    "neighboring": str,
    "accountant": str,
    "allow_large_delta": bool,
    "data": dict,
    "model": dict,
    "training": dict,
    "mechanisms": list,
}
CHOICES: dict[str, Sequence[str]] = {
    "task": tasks.TASKS,
    "kind": ("train", "account"),
    "figure": (
        "utility",
        "effective-sample-size",
        "training-rows",
        "clip-norm",
        "large-batch",
        "groups",
        "noise-vs-batch",
        "accountants",
        "sampling",
        "selection-cost",
    ),
    "neighboring": ROW_RELATIONS,
    "accountant": ACCOUNTANTS,
}
ACCOUNT_FIGURES = ("noise-vs-batch", "sampling", "selection-cost")
"""The figures of studies that train nothing; "accountants" draws both kinds."""

OF_STUDIES = (
    "name",
    "label",
    "sweep",
    "training",
    "neighboring",
    "accountant",
    "private_selection",
)
"""What an entry of a study may set besides the parameters of its mechanism."""

EPSILONS = [0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 50.0]
"""The epsilons of the paper's Figure 5, and of a study that names none."""


MOST_CANDIDATES = 10_000
"""The largest mean number of candidates of a private selection."""

_LONGEST_NAME = 1000
_LONGEST_LABEL = 200


@dataclass(frozen=True)
class Entry:
    """One curve of a study: a mechanism with its parameters and its own training settings.

    Values may still be tables over epsilon, or lists of candidates to choose from.

    Attributes:
        label: of the curve.
        plugin: the mechanism.
        parameters: of the mechanism.
        training: all training settings.
        neighboring: the row relation, if not the study's.
        accountant: the accountant, if not the study's.
        private_selection: how many candidates are tried in the mean by a choice that epsilon
            counts; 0 for a choice that it does not count.
    """

    label: str
    plugin: Plugin
    parameters: dict[str, Any]
    training: dict[str, Any]
    neighboring: str | None = None
    accountant: str | None = None
    private_selection: float = 0.0


@dataclass(frozen=True)
class Study:
    """A validated study file.

    Attributes:
        name: of the file, without its ending.
        source: what messages call the file.
        cap: of a count, the largest that label mechanisms keep; None for other tasks.
        entries: its mechanisms.
        kind: "train", or "account": noise and guarantees are computed and nothing is trained.
        tuning_seeds: with how many of the seeds candidates are compared; None is all.
        delta: None for the default, n^-1.1.
    """

    name: str
    source: str
    title: str
    task: str
    entries: tuple[Entry, ...]
    metric: str
    cap: int | None = None
    kind: str = "train"
    epsilons: tuple[float, ...] = tuple(EPSILONS)
    seeds: int = 5
    tuning_seeds: int | None = None
    figure: str = "utility"
    delta: float | None = None
    neighboring: str = "zero-out"
    accountant: str = "pld"
    allow_large_delta: bool = False
    data: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


def load(study: str | os.PathLike[str] | Mapping[str, Any]) -> Study:
    """The bundled study of a name, the one in a TOML file, or one given as what a file would hold.

    Raises:
        UsageError: there is none, or it is not a valid study: with file and key.
    """
    if isinstance(study, Mapping):
        return _parse(dict(study), "the study", "study")
    name = os.fspath(study)
    text, where = source_text(name)
    return _parse(parse_toml(text, where), where, Path(name).stem)


def source_text(name: str) -> tuple[str, str]:
    """The text of a study file, and how messages call it."""
    bundled = catalog.studies()
    if name in bundled:
        return bundled[name].read_text(), f"study {name!r}"
    path = Path(name)
    try:
        if path.is_dir():
            raise UsageError(f"study {name!r} is a folder; name a TOML file in it")
        if not path.is_file():
            raise UsageError(
                f"study {name!r}{near_miss(name, bundled)} is neither a file nor a bundled study; "
                f"bundled are: {', '.join(bundled)}"
            )
        return path.read_text(encoding="utf-8-sig"), str(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text file in UTF-8: {error}") from error


def _parse(content: dict[str, Any], where: str, name: str) -> Study:
    check_keys(content, TOP_LEVEL, where, "")
    for key, value in content.items():
        check_kind(value, TOP_LEVEL[key], f"{where}: {key}")
    for key in ("task", "mechanisms"):
        if not content.get(key):
            raise UsageError(f"{where}: {key} is missing")
    for key, allowed in CHOICES.items():
        if key in content:
            check_choice(content[key], allowed, f"{where}: {key}")
    with located(f"{where}: task"):
        task = tasks.find(content["task"], content.get("cap"))
    check_line(content.get("title", ""), f"{where}: title")
    metrics = metric_set(task.name)
    metric = content.get("metric", metrics.main)
    check_choice(metric, metrics.names, f"{where}: metric")
    kind = content.get("kind", "train")
    figure = content.get("figure", "utility" if kind == "train" else "noise-vs-batch")
    if kind == "train" and figure in ACCOUNT_FIGURES:
        raise UsageError(f'{where}: figure {figure!r} is of studies with kind = "account"')
    if kind == "account" and figure not in (*ACCOUNT_FIGURES, "accountants"):
        raise UsageError(
            f"{where}: a study of kind 'account' has no scores to draw; its figure must be one of "
            f"{', '.join((*ACCOUNT_FIGURES, 'accountants'))}, got {figure!r}"
        )
    seeds = content.get("seeds", 5 if kind == "train" else 1)
    _check_seeds(kind, seeds, content.get("tuning_seeds"), where)
    sections = {key: _section(content.get(key, {}), key, where) for key in DEFAULTS}
    check_choice(
        sections["model"]["categories"], ("hash", "vocabulary"), f"{where}: model.categories"
    )
    if sections["model"]["min_count"] < 1:
        got = sections["model"]["min_count"]
        raise UsageError(f"{where}: model.min_count must be at least 1, got {got}")
    if "\0" in sections["data"]["source"]:
        raise UsageError(f"{where}: data.source must not hold a zero character")
    delta = content.get("delta")
    return Study(
        name=name,
        source=where,
        title=content.get("title", task.title),
        task=task.name,
        cap=content.get("cap"),
        kind=kind,
        entries=tuple(_entries(content["mechanisms"], sections["training"], where)),
        epsilons=parse_epsilons(content.get("epsilons", EPSILONS), f"{where}: epsilons"),
        seeds=seeds,
        tuning_seeds=content.get("tuning_seeds"),
        metric=metric,
        figure=figure,
        delta=None if delta is None else float(delta),
        neighboring=content.get("neighboring", "zero-out"),
        accountant=content.get("accountant", "pld"),
        allow_large_delta=content.get("allow_large_delta", False),
        data=sections["data"],
        model=sections["model"],
        training=sections["training"],
    )


def _check_seeds(kind: str, seeds: int, tuning_seeds: int | None, where: str) -> None:
    if seeds < 1:
        raise UsageError(f"{where}: seeds must be at least 1, got {seeds}")
    if kind == "account" and seeds != 1:
        raise UsageError(f"{where}: a study of kind 'account' has no randomness; leave out seeds")
    if tuning_seeds is not None and not 1 <= tuning_seeds <= seeds:
        raise UsageError(
            f"{where}: tuning_seeds must lie between 1 and the {seeds} seeds, got {tuning_seeds}"
        )


def parse_epsilons(values: Iterable[Any], where: str) -> tuple[float, ...]:
    """Finite epsilons above 0, in rising order, each once.

    Raises:
        UsageError: one is not, or there is none. Infinity needs no entry: the non-private
            reference is a mechanism.
    """
    epsilons = set()
    for value in values:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0 < value <= sys.float_info.max):  # also refuses nan
            raise UsageError(
                f"{where}: an epsilon must be a finite number above 0, got {shown(value)}; no "
                "privacy (epsilon infinite) is the mechanism 'non-private'"
            )
        epsilons.add(float(f"{value:.12g}"))  # so that 0.1 + 0.2 and 0.3 are one
    if not epsilons:
        raise UsageError(f"{where}: name at least one epsilon")
    return tuple(sorted(epsilons))


def _entries(mechanisms: Sequence[Any], training: dict[str, Any], where: str) -> Iterator[Entry]:
    labels: set[str] = set()
    plugins: dict[str, Plugin] = {}  # finding one takes longer than all the rest
    for index, content in enumerate(mechanisms, 1):
        place = f"{where}: mechanisms[{index}]"
        if not isinstance(content, dict) or "name" not in content:
            raise UsageError(f"{place}: name is missing")
        check_kind(content["name"], str, f"{place}: name")
        label = content.get("label", content["name"])
        check_kind(label, str, f"{place}: label")
        if content["name"] not in plugins:
            plugins[content["name"]] = _plugin(content["name"], place)
        plugin = plugins[content["name"]]
        for values in walked({"label": label} | content, place):
            _check_label(values["label"], place)
            entry = _entry(values, plugin, training, place)
            if entry.label in labels:
                raise UsageError(
                    f"{place}: two mechanisms are called {entry.label!r}; give one a label of its "
                    "own"
                )
            labels.add(entry.label)
            yield entry


def _plugin(name: str, place: str) -> Plugin:
    with located(place):
        try:
            if len(name) > _LONGEST_NAME:
                raise UsageError(f"mechanism {shown(name)} is unknown: its name is too long")
            return find(name)
        except OSError as error:
            raise UsageError(f"mechanism {name!r} cannot be read: {error.strerror}") from error


def _check_label(label: str, place: str) -> None:
    check_line(label, f"{place}: label")
    # `--mechanisms` separates labels by commas and takes the spaces around them away
    if not label or "," in label or label != label.strip():
        raise UsageError(
            f"{place}: label must be a text without commas and without spaces around it, got "
            f"{shown(label)}"
        )
    if len(label) > _LONGEST_LABEL:
        raise UsageError(
            f"{place}: label must have at most {_LONGEST_LABEL} characters, got {shown(label)}"
        )


def _entry(content: dict[str, Any], plugin: Plugin, training: dict[str, Any], place: str) -> Entry:
    values = dict(content)
    name, label = values.pop("name"), values.pop("label")
    parameters = parameter_defaults(plugin.factory)
    if taken := [key for key in parameters if key in OF_STUDIES]:
        raise UsageError(
            f"{place}: mechanism {name!r} has a parameter {taken[0]!r}, which studies use for "
            "something else; rename it"
        )
    check_keys(values, (*OF_STUDIES, *parameters), place, "")
    for key in ("neighboring", "accountant"):
        if key in values:
            check_choice(values[key], CHOICES[key], f"{place}: {key}")
            if plugin.factory.gradient is Mechanism.gradient:
                raise UsageError(
                    f"{place}: {key} is for mechanisms that release gradients, and {name!r} does "
                    "not; leave it out"
                )
    selection = scalar(values.get("private_selection", 0.0), 0.0, "private_selection", place)
    if selection and not 1 <= selection <= MOST_CANDIDATES:
        raise UsageError(
            f"{place}: private_selection is a mean number of candidates, at least 1 and at most "
            f"{MOST_CANDIDATES:,}, or 0 for a choice that epsilon does not count; got {selection:g}"
        )
    own, default = values.pop("training", {}), DEFAULTS["training"]
    check_keys(own, default, place, "training.")
    return Entry(
        label,
        plugin,
        {key: setting(values.get(key, d), d, key, place) for key, d in parameters.items()},
        {
            key: setting(own.get(key, value), default[key], f"training.{key}", place)
            for key, value in training.items()
        },
        values.get("neighboring"),
        values.get("accountant"),
        selection,
    )


def _section(content: dict[str, Any], section: str, where: str) -> dict[str, Any]:
    defaults = DEFAULTS[section]
    check_keys(content, defaults, where, f"{section}.")
    # Data and model are the same for all trials of a study; the rest may vary.
    value_of = setting if section == "training" else scalar
    return {
        key: value_of(content.get(key, default), default, f"{section}.{key}", where)
        for key, default in defaults.items()
    }


def select(
    study: Study,
    *,
    data_path: Path | None = None,
    seeds: int | None = None,
    epsilons: Iterable[Any] | None = None,
    mechanisms: Iterable[str] | None = None,
) -> Study:
    """The study with what the command line overrides.

    Raises:
        UsageError: an epsilon, a seed count or a mechanism name that cannot be.
    """
    if data_path is not None:
        study = replace(study, data={**study.data, "source": str(data_path)})
    if seeds is not None:
        if seeds < 1:
            raise UsageError(f"--seeds must be at least 1, got {seeds}")
        if study.kind == "account":
            raise UsageError("--seeds: a study of kind 'account' has no randomness; leave it out")
        compared = study.tuning_seeds and min(study.tuning_seeds, seeds)
        study = replace(study, seeds=seeds, tuning_seeds=compared)
    if epsilons is not None:
        numbers = [_number(text, "--epsilons") for text in epsilons]
        study = replace(study, epsilons=parse_epsilons(numbers, "--epsilons"))
    if mechanisms is not None:
        wanted = list(mechanisms)
        names = [{entry.label, split_label(entry.label)[0]} for entry in study.entries]
        known = list(dict.fromkeys(label for both in names for label in sorted(both)))
        for name in wanted:
            check_choice(name, known, "--mechanisms")
        if not wanted:
            raise UsageError("--mechanisms: name at least one")
        chosen = [e for e, both in zip(study.entries, names, strict=True) if both & set(wanted)]
        study = replace(study, entries=tuple(chosen))
    return study


def _number(text: Any, where: str) -> float:
    try:
        return float(text)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{where}: {shown(text)} is not a number") from None


def resolved(study: Study) -> dict[str, Any]:
    """The study as a complete file: every key with the value that holds, defaults included."""
    synthetic = study.data["source"] == "synthetic"
    content: dict[str, Any] = {
        "title": study.title,
        "task": study.task,
        "kind": study.kind,
        "figure": study.figure,
        "metric": study.metric,
        "epsilons": list(study.epsilons),
        "seeds": study.seeds,
        "neighboring": study.neighboring,
        "accountant": study.accountant,
        "allow_large_delta": study.allow_large_delta,
        "data": {k: v for k, v in study.data.items() if synthetic or k in ("source", "split")},
        "model": study.model,
        "training": study.training,
        "mechanisms": [
            {
                "name": e.plugin.name,
                "label": e.label,
                **e.parameters,
                **_set(neighboring=e.neighboring, accountant=e.accountant),
                **({"private_selection": e.private_selection} if e.private_selection else {}),
                "training": e.training,
            }
            for e in study.entries
        ],
    }
    return content | _set(cap=study.cap, delta=study.delta, tuning_seeds=study.tuning_seeds)


def _set(**values: Any) -> dict[str, Any]:
    """Those of the values that are not None."""
    return {key: value for key, value in values.items() if value is not None}
