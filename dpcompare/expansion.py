"""From a study to its trials: every mechanism at every epsilon, seed and candidate."""

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from dpcompare import __version__, data
from dpcompare.embeddings import EmbeddingTables
from dpcompare.errors import UsageError
from dpcompare.mechanism import Plugin, is_private
from dpcompare.model import Model
from dpcompare.privacy import Schedule, check_delta, default_delta
from dpcompare.settings import at_epsilon, located
from dpcompare.study import Entry, Study
from dpcompare.trial import Configuration, identity, recipe_of

GIVEN = "--data"
"""The source of a study whose data set the command line must name."""


def expand(study: Study) -> list[Configuration]:
    """The trials of a study, in the order in which they should run.

    Raises:
        UsageError: a value that cannot work with the data set, e.g. a batch larger than it, or two
            curves that share a trial; with file and key.
        DpcompareError: the data set cannot be read.
    """
    with located(study.source):
        settings = _data_settings(study)
        examples = train_rows(settings)
        delta = default_delta(examples) if study.delta is None else study.delta
        check_delta(delta, examples, allow_large_delta=study.allow_large_delta)
        _check_model(study.model, settings["columns"])
        unique: dict[str, Configuration] = {}
        for seed in range(study.seeds):
            for entry in study.entries:
                with located(f"mechanism {entry.label!r}"):
                    for epsilon in _epsilons_of(entry, study):
                        for candidate in _candidates(entry, epsilon):
                            configuration = _configuration(
                                study, entry, settings, delta, seed, epsilon, candidate
                            )
                            _check(configuration, entry.plugin, examples)
                            _add(unique, configuration)
    return list(unique.values())


def _add(unique: dict[str, Configuration], configuration: Configuration) -> None:
    """Equal candidates run once; equal curves are refused, for a trial belongs to one curve."""
    first = unique.setdefault(identity(configuration), configuration)
    label, other = configuration["about"]["label"], first["about"]["label"]
    if label != other:
        raise UsageError(
            f"it trains the same as mechanism {other!r} at epsilon "
            f"{configuration['budget']['epsilon']}; remove one of the two or change its settings"
        )


def _epsilons_of(entry: Entry, study: Study) -> tuple[float, ...]:
    """The non-private reference does not depend on epsilon, so it runs once per seed."""
    return study.epsilons if is_private(entry.plugin.factory) else (math.inf,)


def train_rows(settings: dict[str, Any]) -> int:
    """Rows of the training part, from the `data` section of a configuration."""
    part = data.split_rows(settings["rows"], settings["split"])[0]
    return part.stop - part.start


def _data_settings(study: Study) -> dict[str, Any]:
    """The `data` section of the study's configurations."""
    settings = study.data
    split = [float(share) for share in settings["split"]]
    if settings["source"] == "synthetic":
        arguments = {key: settings[key] for key in ("rows", "seed", "base_rate")}
        checksum = data.synthetic_checksum(**arguments)
        schema = data.load_schema(data.SYNTHETIC_SCHEMA)
        return {
            "source": "synthetic",
            **arguments,
            "columns": [len(schema.numeric), len(schema.categorical)],
            "split": split,
            "checksum": checksum,
        }
    if settings["source"] == GIVEN:
        raise UsageError(
            "it runs on a prepared data set: name one with --data DIR (to make one: "
            "dpcompare prepare SCHEMA SOURCE... DIR)"
        )
    path = Path(settings["source"]).resolve()
    manifest = data.read_manifest(path)
    return {
        "source": "prepared",
        "path": str(path),
        "rows": manifest.rows,
        "columns": [len(manifest.numeric), len(manifest.categorical)],
        "split": split,
        "checksum": manifest.checksum,
    }


def _candidates(entry: Entry, epsilon: float) -> Iterator[dict[str, Any]]:
    """Every combination of the values to tune, at one epsilon."""
    values = {f"training.{key}": value for key, value in entry.training.items()}
    values |= entry.parameters
    at = {key: at_epsilon(value, epsilon, key) for key, value in values.items()}
    lists = {key: value for key, value in at.items() if isinstance(value, list)}
    for chosen in product(*lists.values()):
        yield dict(zip(lists, chosen, strict=True))


def _configuration(
    study: Study,
    entry: Entry,
    data_settings: dict[str, Any],
    delta: float,
    seed: int,
    epsilon: float,
    candidate: dict[str, Any],
) -> Configuration:
    def resolved(values: dict[str, Any], prefix: str) -> dict[str, Any]:
        return {
            key: candidate.get(prefix + key, at_epsilon(value, epsilon, prefix + key))
            for key, value in values.items()
        }

    training = resolved(entry.training, "training.")
    training["chunk_size"] = training["chunk_size"] or None
    model = dict(study.model)
    del model["min_count" if model["categories"] == "hash" else "buckets"]
    return {
        "task": study.task,
        "data": data_settings,
        "model": model,
        "training": training,
        "mechanism": {
            "name": entry.plugin.name,
            "parameters": resolved(entry.parameters, ""),
            "version": entry.plugin.version,
        },
        "budget": {
            "epsilon": epsilon if math.isfinite(epsilon) else "inf",
            "delta": delta,
            "neighboring": study.neighboring,
            "accountant": study.accountant,
            "allow_large_delta": study.allow_large_delta,
        },
        "seed": seed,
        "dpcompare": __version__,
        "about": {
            "study": study.name,
            "title": study.title,
            "metric": study.metric,
            "label": entry.label,
            "candidate": candidate,
        },
    }


def _check_model(settings: dict[str, Any], columns: list[int]) -> None:
    numeric, categorical = columns
    buckets = settings["buckets"]
    data.HashBuckets(buckets, categorical)
    Model(numeric, EmbeddingTables((buckets,) * categorical), tuple(settings["tower"]))


def _check(configuration: Configuration, plugin: Plugin, examples: int) -> None:
    """Build what can be built without data, so that mistakes show before anything runs."""
    training = configuration["training"]
    recipe_of(configuration)
    plugin.build(configuration["mechanism"]["parameters"])
    Schedule.from_epochs(
        examples, training["batch_size"], training["epochs"], plugin.factory.sampling
    )
