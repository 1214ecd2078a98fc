"""The rows of a trial: its data set, split and encoded, with the network that fits its columns."""

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from dpcompare import data
from dpcompare.configuration import Configuration, task_of, training_rows
from dpcompare.data import Dataset, Features
from dpcompare.data.views import select
from dpcompare.embeddings import EmbeddingTables
from dpcompare.errors import DpcompareError
from dpcompare.model import Model

PARTS = ("train", "validation", "test")


class Examples(NamedTuple):
    """A data set as one trial sees it.

    Attributes:
        model: the network that fits its columns.
        encoder: of its categories.
        features: of each of PARTS.
        labels: (rows,) true labels of each of PARTS.
        true_rates: (rows,) the best possible predictions of each of PARTS, where they are known.
        notes: what a reader of the results must know of the encoding.
    """

    model: Model
    encoder: data.HashBuckets | data.Vocabulary
    features: dict[str, Features]
    labels: dict[str, np.ndarray]
    true_rates: dict[str, np.ndarray] | None
    notes: list[str]

    def thinned(self, rows: int) -> "Examples":
        """The same with `rows` of the training rows only, see :func:`evenly_spread`."""
        kept = evenly_spread(rows, len(self.labels["train"]))

        def cut(parts: dict[str, Any]) -> dict[str, Any]:
            return parts | {"train": jax.tree.map(lambda a: select(a, kept), parts["train"])}

        rates = self.true_rates and cut(self.true_rates)
        return self._replace(features=cut(self.features), labels=cut(self.labels), true_rates=rates)


def evenly_spread(rows: int, there: int) -> np.ndarray:
    """Positions of `rows` of the rows `there`, (rows,): by place alone, so from all of the time."""
    return np.arange(rows) * there // rows


def load_examples(configuration: Configuration) -> Examples:
    """The encoded and split data of a configuration; the last one is remembered."""
    sections = {key: configuration[key] for key in ("task", "cap", "data", "model")}
    used = training_rows(configuration)
    # A vocabulary is learnt from the rows that are trained on, hashing from none.
    sections["learn"] = used if configuration["model"]["categories"] == "vocabulary" else 0
    examples = _load_examples(json.dumps(sections, sort_keys=True))
    return examples.thinned(used) if used < len(examples.labels["train"]) else examples


@functools.lru_cache(maxsize=1)
def _load_examples(sections: str) -> Examples:
    configuration = json.loads(sections)
    settings, task = configuration["data"], task_of(configuration)
    dataset = load_dataset(settings)
    if dataset.checksum != settings["checksum"]:
        raise DpcompareError(
            f"the data set {settings.get('path', settings['source'])} has changed since the study "
            "was expanded; run the study again"
        )
    slices = dict(zip(PARTS, dataset.parts(task.name, settings["split"]), strict=True))
    dataset = dataset.for_task(task.name)
    train_rows = slices["train"].stop - slices["train"].start
    learn_from = slices["train"].start + evenly_spread(configuration["learn"], train_rows)
    encoder, notes = _encoder(dataset, learn_from, configuration["model"])
    labels = dataset.labels[task.name]
    rates = dataset.true_rates.get(task.name)
    return Examples(
        Model(
            len(dataset.numeric_names),
            EmbeddingTables(tuple(encoder.sizes)),
            tuple(configuration["model"]["tower"]),
        ),
        encoder,
        {part: data.encode(dataset, rows, encoder) for part, rows in slices.items()},
        {part: np.asarray(labels[rows]) for part, rows in slices.items()},
        None if rates is None else {part: np.asarray(rates[s]) for part, s in slices.items()},
        notes,
    )


def load_dataset(settings: dict[str, Any]) -> Dataset:
    """The data set that the `data` section of a configuration names."""
    if settings["source"] == "synthetic":
        arguments = ("rows", "seed", "base_rate", "conversion_rate")
        return data.synthetic(*(settings[name] for name in arguments))
    return data.load_prepared(Path(settings["path"]))


def _encoder(
    dataset: Dataset, learn_from: np.ndarray, settings: dict[str, Any]
) -> tuple[data.HashBuckets | data.Vocabulary, list[str]]:
    if settings["categories"] == "hash":
        return data.HashBuckets.for_columns(settings["buckets"], dataset), []
    vocabulary = data.Vocabulary.learn(dataset, learn_from, settings["min_count"])
    return vocabulary, ["the vocabulary was learnt from the training rows, outside any guarantee"]
