"""Studies: a TOML file says what to ask; :mod:`dpcompare.expansion` makes trials of it."""

import math
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpcompare import catalog, tasks
from dpcompare.catalog import near_miss
from dpcompare.errors import UsageError
from dpcompare.mechanism import Plugin, find, parameter_defaults
from dpcompare.privacy import ACCOUNTANTS, ROW_RELATIONS

DEFAULTS: dict[str, dict[str, Any]] = {
    "data": {
        "source": "synthetic",
        "rows": 125_000,
        "seed": 0,
        "base_rate": 0.25,
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
        "chunk_size": 0,
    },
}
"""Every key of a study's sections with its default; a chunk size of 0 lets the trainer choose."""

TOP_LEVEL = {
    "title": str,
    "task": str,
    "kind": str,
    "figure": str,
    "metric": str,
    "epsilons": list,
    "seeds": int,
    "delta": float,
    "neighboring": str,
    "accountant": str,
    "allow_large_delta": bool,
    "data": dict,
    "model": dict,
    "training": dict,
    "mechanisms": list,
}
EPSILONS = [0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 50.0]
"""The epsilons of the paper's Figure 5, and of a study that names none."""

LISTS = {"tower", "split"}


@dataclass(frozen=True)
class Entry:
    """One curve of a study: a mechanism with its parameters and its own training settings.

    Values may still be tables over epsilon, or lists of candidates to choose from.
    """

    label: str
    plugin: Plugin
    parameters: dict[str, Any]
    training: dict[str, Any]


@dataclass(frozen=True)
class Study:
    """A validated study file.

    Attributes:
        name: of the file, without its ending.
        entries: its mechanisms.
        delta: None for the default, n^-1.1.
    """

    name: str
    title: str
    task: str
    entries: tuple[Entry, ...]
    epsilons: tuple[float, ...] = tuple(EPSILONS)
    seeds: int = 5
    metric: str = "auc"
    figure: str = "utility"
    delta: float | None = None
    neighboring: str = "zero-out"
    accountant: str = "pld"
    allow_large_delta: bool = False
    data: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


def load(name: str) -> Study:
    """The bundled study called `name`, or the one in a TOML file.

    Raises:
        UsageError: there is none, or the file is not a valid study: with file and key.
    """
    text, where = source_text(name)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is not valid TOML: {error}") from error
    return _parse(content, where, Path(name).stem)


def source_text(name: str) -> tuple[str, str]:
    """The text of a study file, and how messages call it."""
    bundled = catalog.studies()
    if name in bundled:
        return bundled[name].read_text(), f"study {name!r}"
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"study {name!r} is a folder; name a TOML file in it")
    if not path.is_file():
        raise UsageError(
            f"study {name!r}{near_miss(name, bundled)} is neither a file nor a bundled study; "
            f"bundled are: {', '.join(bundled)}"
        )
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _parse(content: dict[str, Any], where: str, name: str) -> Study:
    _check_keys(content, TOP_LEVEL, where, "")
    for key, value in content.items():
        _check_kind(value, TOP_LEVEL[key], f"{where}: {key}")
    if content.get("kind", "train") != "train":
        raise UsageError(f"{where}: kind must be 'train', got {content['kind']!r}")
    if content.get("figure", "utility") != "utility":
        raise UsageError(f"{where}: figure must be 'utility', got {content['figure']!r}")
    for key in ("task", "mechanisms"):
        if not content.get(key):
            raise UsageError(f"{where}: {key} is missing")
    task = tasks.find(content["task"])
    metrics = ("auc", "log_loss", "normalized_entropy", "calibration")
    _check_choice(content.get("metric", "auc"), metrics, f"{where}: metric")
    _check_choice(content.get("neighboring", "zero-out"), ROW_RELATIONS, f"{where}: neighboring")
    _check_choice(content.get("accountant", "pld"), ACCOUNTANTS, f"{where}: accountant")
    seeds = content.get("seeds", 5)
    if seeds < 1:
        raise UsageError(f"{where}: seeds must be at least 1, got {seeds}")
    epsilons = parse_epsilons(content.get("epsilons", EPSILONS), f"{where}: epsilons")
    sections = {key: _section(content.get(key, {}), key, where) for key in DEFAULTS}
    _check_choice(sections["model"]["categories"], ("hash", "vocabulary"), f"{where}: categories")
    entries = tuple(_entries(content["mechanisms"], sections["training"], where))
    delta = content.get("delta")
    return Study(
        name=name,
        title=content.get("title", task.title),
        task=task.name,
        entries=entries,
        epsilons=epsilons,
        seeds=seeds,
        metric=content.get("metric", "auc"),
        delta=None if delta is None else float(delta),
        neighboring=content.get("neighboring", "zero-out"),
        accountant=content.get("accountant", "pld"),
        allow_large_delta=content.get("allow_large_delta", False),
        **sections,
    )


def parse_epsilons(values: Iterable[Any], where: str) -> tuple[float, ...]:
    """Finite epsilons above 0, in rising order, each once.

    Raises:
        UsageError: one is not, or there is none. Infinity needs no entry: the non-private
            reference is a mechanism.
    """
    epsilons = set()
    for value in values:
        try:
            epsilon = float(value)
        except (TypeError, ValueError):
            raise UsageError(f"{where}: {value!r} is not a number") from None
        if not (epsilon > 0 and math.isfinite(epsilon)):
            raise UsageError(
                f"{where}: an epsilon must be a finite number above 0, got {value}; no privacy "
                "(epsilon infinite) is the mechanism 'non-private'"
            )
        epsilons.add(float(repr(round(epsilon, 12))))
    if not epsilons:
        raise UsageError(f"{where}: name at least one epsilon")
    return tuple(sorted(epsilons))


def _entries(mechanisms: Sequence[Any], training: dict[str, Any], where: str) -> Iterator[Entry]:
    labels: set[str] = set()
    for index, content in enumerate(mechanisms, 1):
        place = f"{where}: mechanisms[{index}]"
        if not isinstance(content, dict) or "name" not in content:
            raise UsageError(f"{place}: name is missing")
        values = dict(content)
        plugin = find(values.pop("name"))
        label = values.pop("label", plugin.name)
        if label in labels:
            raise UsageError(
                f"{place}: two mechanisms are called {label!r}; give one a label of its own"
            )
        labels.add(label)
        own = values.pop("training", {})
        _check_keys(own, DEFAULTS["training"], place, "training.")
        parameters = parameter_defaults(plugin.factory)
        _check_keys(values, parameters, place, "")
        yield Entry(
            label,
            plugin,
            {key: _typed(values.get(key, d), d, key, place) for key, d in parameters.items()},
            {
                key: _typed(own.get(key, value), DEFAULTS["training"][key], key, place)
                for key, value in training.items()
            },
        )


def _section(content: dict[str, Any], section: str, where: str) -> dict[str, Any]:
    defaults = DEFAULTS[section]
    _check_keys(content, defaults, where, f"{section}.")
    return {
        key: _typed(content.get(key, default), default, key, f"{where}: {section}")
        for key, default in defaults.items()
    }


def _typed(value: Any, default: Any, key: str, where: str) -> Any:
    """`value` in the type of its default; tables over epsilon and candidates keep their shape."""
    if isinstance(value, list) and key not in LISTS:
        if value and all(isinstance(item, dict) for item in value):
            return [_epsilon_row(item, default, key, where) for item in value]
        if not value:
            raise UsageError(f"{where}: {key} is an empty list")
        return [_scalar(item, default, key, where) for item in value]
    return _scalar(value, default, key, where)


def _epsilon_row(row: dict[str, Any], default: Any, key: str, where: str) -> dict[str, Any]:
    if not ("value" in row and set(row) <= {"value", "epsilon_up_to"}):
        raise UsageError(
            f"{where}: {key}: a table over epsilon has rows {{epsilon_up_to = ..., value = ...}}, "
            f"the last without epsilon_up_to; got {row}"
        )
    limit = row.get("epsilon_up_to", math.inf)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0:
        raise UsageError(f"{where}: {key}: epsilon_up_to must be above 0, got {limit!r}")
    return {"epsilon_up_to": float(limit), "value": _typed(row["value"], default, key, where)}


def _scalar(value: Any, default: Any, key: str, where: str) -> Any:
    if isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise UsageError(f"{where}: {key} must be a number, got {value!r}")
        return float(value)
    _check_kind(value, type(default), f"{where}: {key}")
    if key in LISTS and not all(isinstance(x, int | float) for x in value):
        raise UsageError(f"{where}: {key} must be a list of numbers, got {value!r}")
    return value


def _check_kind(value: Any, kind: type, where: str) -> None:
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        names = {int: "a whole number", float: "a number", str: "text", list: "a list"}
        names |= {dict: "a table", bool: "true or false"}
        raise UsageError(f"{where} must be {names.get(kind, kind.__name__)}, got {value!r}")


def _check_choice(value: Any, allowed: Sequence[str], where: str) -> None:
    if value not in allowed:
        raise UsageError(f"{where} must be one of {', '.join(allowed)}, got {value!r}")


def _check_keys(content: Any, allowed: Iterable[str], where: str, prefix: str) -> None:
    known = list(allowed)
    if not isinstance(content, dict):
        raise UsageError(f"{where}: {prefix.rstrip('.')} must be a table, got {content!r}")
    for key in content:
        if key not in known:
            raise UsageError(
                f"{where}: unknown key {prefix}{key}{near_miss(key, known)}; allowed are: "
                f"{', '.join(known) or 'none'}"
            )


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
        study = replace(study, seeds=seeds)
    if epsilons is not None:
        study = replace(study, epsilons=parse_epsilons(epsilons, "--epsilons"))
    if mechanisms is not None:
        wanted = list(mechanisms)
        labels = [entry.label for entry in study.entries]
        for name in wanted:
            _check_choice(name, labels, "--mechanisms")
        if not wanted:
            raise UsageError("--mechanisms: name at least one")
        study = replace(study, entries=tuple(e for e in study.entries if e.label in wanted))
    return study


def resolved(study: Study) -> dict[str, Any]:
    """The study as a complete file: every key with the value that holds, defaults included."""
    content: dict[str, Any] = {
        "title": study.title,
        "task": study.task,
        "kind": "train",
        "figure": study.figure,
        "metric": study.metric,
        "epsilons": list(study.epsilons),
        "seeds": study.seeds,
        "neighboring": study.neighboring,
        "accountant": study.accountant,
        "allow_large_delta": study.allow_large_delta,
        "data": study.data,
        "model": study.model,
        "training": study.training,
        "mechanisms": [
            {"name": e.plugin.name, "label": e.label, **e.parameters, "training": e.training}
            for e in study.entries
        ],
    }
    return content if study.delta is None else content | {"delta": study.delta}
