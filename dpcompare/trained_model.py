"""A trained model with what may be claimed of it: predicts, and is exported and loaded again.

The exported folder holds what the guarantee covers and public settings, nothing else: no metrics,
no counts of labels, no checksum of the data (whoever knows all rows but one could test guesses of
that one against it).
"""

import errno
import hashlib
import io
import json
import logging
import math
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dpcompare import data, tasks
from dpcompare.configuration import Configuration, recipe_of, schedule_of, task_of
from dpcompare.data import Dataset, Encoder, Features, HashBuckets, Vocabulary
from dpcompare.embeddings import EmbeddingTables
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.mechanism import Mechanism, diagnostic_fields, find
from dpcompare.model import Model, Parameters
from dpcompare.privacy import Guarantee
from dpcompare.results import from_json, to_json, write_atomically
from dpcompare.tasks import Task
from dpcompare.trainer import predict
from dpcompare.trial import Trained, delta_notes

FORMAT = 1
SETTINGS = "model.json"
ARRAYS = "parameters"
DIGESTS = "sha256"
"""The key of `model.json` that tells whether the rest of it, or a file of the arrays, changed."""

NEXT = "copy the model again from where it was trained, or train it anew"
"""What to do about a damaged model."""


@dataclass(frozen=True)
class TrainedModel:
    """A network, how its output becomes predictions, and what may be claimed of it.

    Attributes:
        guarantee: of everything that training released.
        settings: what `model.json` holds, as plain values.
        mechanism: that trained it, without what it counted outside the guarantee.
        task: whose labels are predicted.
        model: the shape of the network.
        parameters: its numbers.
        encoder: of categories.
        record: of the trial, with its metrics and diagnostics, which no guarantee covers; None for
            a model that was loaded.
    """

    guarantee: Guarantee
    settings: Mapping[str, Any]
    mechanism: Mechanism
    task: Task
    model: Model
    parameters: Parameters
    encoder: Encoder
    record: Mapping[str, Any] | None = None

    def predict(self, source: str | os.PathLike[str] | Dataset) -> np.ndarray:
        """The prediction for every row, (n,) float64: a probability, or a mean count.

        Args:
            source: a prepared folder, "synthetic", or a data set, with the columns of the training
                data. Its labels are not looked at.

        Raises:
            DpcompareError: the columns are others.
        """
        dataset = source if isinstance(source, Dataset) else data.load(Path(source).as_posix())
        return predict(
            self.mechanism, self.task, self.model, self.parameters, self._features(dataset)
        )

    def claim(self) -> str:
        """What may be claimed, in one line."""
        guarantee = self.guarantee
        if math.isinf(guarantee.epsilon):
            return "no privacy is guaranteed"
        return (
            f"epsilon {guarantee.epsilon:.6g}, delta {guarantee.delta:.3g}, for one "
            f"{guarantee.unit} ({guarantee.neighboring}, {guarantee.accountant})"
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Export the model to a new folder: `parameters/` (orbax) and `model.json`.

        Raises:
            UsageError: the folder is there already.
            DpcompareError: it cannot be written.
        """
        import orbax.checkpoint as ocp

        path = Path(folder).absolute()
        if path.exists():
            raise UsageError(f"{path} is there already; name a new folder")
        partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
        try:
            partial.mkdir(parents=True)
            with _silent_orbax(), ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(partial / ARRAYS, _arrays(self.parameters))
            # It names the folder of this machine, and nothing reads it.
            (partial / ARRAYS / "commit_success.txt").unlink(missing_ok=True)
            settings = to_json(dict(self.settings), SETTINGS)
            settings[DIGESTS] = {SETTINGS: _digest(settings), **_digests_of_files(partial)}
            text = json.dumps(settings, indent=2, allow_nan=False)
            write_atomically(partial / SETTINGS, (text + "\n").encode())
            partial.rename(path)
        except (OSError, ValueError) as error:  # tensorstore reports a full disk as a ValueError
            raise DpcompareError(f"{path} cannot be written: {_beginning(error)}") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _features(self, dataset: Dataset) -> Features:
        columns = self.settings["columns"]
        for kind, names in (
            ("numeric", dataset.numeric_names),
            ("categorical", dataset.categorical_names),
        ):
            if list(names) != list(columns[kind]):
                raise DpcompareError(
                    f"the model reads the {kind} columns {', '.join(columns[kind])}, but "
                    f"{dataset.name} has {', '.join(names) or 'none'}; prepare the rows with the "
                    "schema of the training data"
                )
        features = data.encode(dataset, slice(0, dataset.rows), self.encoder)
        if not columns["exposure"]:
            return features._replace(offset=None)
        if features.offset is None:
            raise DpcompareError(
                f"the model predicts counts relative to the exposure {columns['exposure']}, and "
                f"{dataset.name} has none"
            )
        return features


def of_trial(configuration: Configuration, trained: Trained, dataset: Dataset) -> TrainedModel:
    """The model of a trial that has ended.

    Args:
        configuration: of the trial.
        trained: what it left behind.
        dataset: that it was trained on; for the names of its columns.
    """
    examples, task = trained.examples, task_of(configuration)
    hidden = diagnostic_fields(type(trained.mechanism))
    mechanism = trained.mechanism.replace(**dict.fromkeys(hidden))
    schedule = schedule_of(configuration, len(examples.labels["train"]))
    count = isinstance(task, tasks.CountTask)
    settings = {
        "format": FORMAT,
        "task": configuration["task"],
        "cap": configuration["cap"],
        "columns": {
            "numeric": list(dataset.numeric_names),
            "categorical": list(dataset.categorical_names),
            "exposure": dataset.description.get("exposure") if count else None,
        },
        "model": {"tower": list(examples.model.tower), "categories": _categories(examples.encoder)},
        "mechanism": configuration["mechanism"] | {"found": _found(mechanism)},
        "guarantee": vars(trained.guarantee) | {"events": list(trained.guarantee.events)},
        "schedule": vars(schedule),
        "training": vars(recipe_of(configuration)),
        "seed": configuration["seed"],
        "notes": [
            *mechanism.notes(),
            *examples.notes,
            *delta_notes(trained.guarantee, schedule.examples),
            *_size_notes(trained.guarantee),
        ],
        "versions": trained.record["versions"],
    }
    return TrainedModel(
        trained.guarantee,
        settings,
        mechanism,
        task,
        examples.model,
        trained.parameters,
        examples.encoder,
        trained.record,
    )


def _size_notes(guarantee: Guarantee) -> list[str]:
    """Schedule, delta and noise show how many rows there are, which one relation would hide."""
    if guarantee.neighboring != "add-or-remove-one" or math.isinf(guarantee.epsilon):
        return []
    return [
        "the number of training rows is told by the schedule and by delta; under add-or-remove-one "
        "the guarantee does not cover it"
    ]


def load_model(folder: str | os.PathLike[str], mechanism: str | None = None) -> TrainedModel:
    """A model that :meth:`TrainedModel.save` exported.

    A mechanism whose code has changed since still predicts, with a warning. Loading runs no code
    that a model brings with it: a mechanism that is a file runs only if you name it.

    Args:
        folder: of the model.
        mechanism: the file and class, ``path/to/file.py:ClassName``, where the model was trained
            by one; not needed for installed mechanisms.

    Raises:
        UsageError: there is no model, its mechanism is not installed, or it is a file that was
            not named.
        DpcompareError: it is damaged, or of a newer format.
    """
    path = Path(folder)
    file = path / SETTINGS
    written = _read_json(file)
    digests = written.pop(DIGESTS, None)
    if not isinstance(digests, dict) or digests.get(SETTINGS) != _digest(written):
        raise DpcompareError(f"{file} is damaged: it is not what was exported; {NEXT}")
    _check_files(path, digests)
    settings = from_json(written)
    try:
        encoder = _encoder(settings)
        columns = settings["columns"]
        model = Model(
            len(columns["numeric"]),
            EmbeddingTables(tuple(encoder.sizes)),
            tuple(settings["model"]["tower"]),
        )
        claim = settings["guarantee"]
        return TrainedModel(
            Guarantee(**claim | {"events": tuple(claim["events"])}),
            settings,
            _mechanism(settings["mechanism"], mechanism),
            tasks.find(settings["task"], settings["cap"]),
            model,
            _restored(path / ARRAYS, model),
            encoder,
        )
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DpcompareError(f"{file} cannot be used ({error!r}); {NEXT}") from error


def _read_json(file: Path) -> dict[str, Any]:
    """The settings as they were written.

    Raises:
        UsageError: there are none.
        DpcompareError: they cannot be read, or are of another format.
    """
    try:
        written = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{file.parent} holds no {SETTINGS}; name a folder that `dpcompare train` wrote"
        ) from None
    except OSError as error:
        raise DpcompareError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DpcompareError(f"{file} is damaged ({error}); {NEXT}") from error
    if not isinstance(written, dict):
        raise DpcompareError(f"{file} is damaged (it is no JSON object); {NEXT}")
    if written.get("format") != FORMAT:
        raise DpcompareError(
            f"{file} has format {written.get('format')!r}, and this version of dpcompare reads "
            f"format {FORMAT}; use the version that wrote it"
        )
    return written


def _digest(settings: Mapping[str, Any]) -> str:
    """What identifies settings as they stand in the file."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _digests_of_files(folder: Path) -> dict[str, str]:
    """What identifies the content of each file of the arrays, by its place in the folder."""
    files = sorted(file for file in (folder / ARRAYS).rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): _digest_of_file(file) for file in files}


def _digest_of_file(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _check_files(folder: Path, digests: Mapping[str, str]) -> None:
    """Refuse files that are missing or changed; what a reader makes of them is hard to foresee.

    Raises:
        DpcompareError: one of them is, with its name.
    """
    for name in sorted(digests.keys() - {SETTINGS}):
        try:
            digest = _digest_of_file(folder / name)
        except OSError as error:
            raise DpcompareError(
                f"{folder / name} cannot be read: {error.strerror}; {NEXT}"
            ) from error
        if digest != digests[name]:
            raise DpcompareError(f"{folder / name} is damaged: it is not what was exported; {NEXT}")


def write_predictions(predictions: np.ndarray, file: Path) -> None:
    """A table of one column, `prediction`, as CSV or Parquet by the name of the file.

    Raises:
        DpcompareError: the file cannot be written; what was there before is kept.
    """
    table = pa.table({"prediction": predictions})
    content = io.BytesIO()
    if file.suffix == ".parquet":
        pyarrow.parquet.write_table(table, content)
    else:
        pyarrow.csv.write_csv(table, content)
    write_atomically(file, content.getvalue())


def _mechanism(settings: dict[str, Any], named: str | None) -> Mechanism:
    if named is None and ":" in settings["name"]:
        raise UsageError(
            f"the model was trained by the mechanism in {settings['name']!r}. A file runs only if "
            "you name it yourself, for whoever made the model chose that name: --mechanism "
            "FILE.py:CLASS, or load_model(folder, mechanism=...)"
        )
    plugin = find(named or settings["name"])
    if plugin.version != settings["version"]:
        warnings.warn(
            f"the code of mechanism {plugin.name!r} has changed since the model was trained "
            f"({settings['version']}, now {plugin.version}); predictions may differ",
            stacklevel=3,
        )
    found = {k: tuple(v) if isinstance(v, list) else v for k, v in settings["found"].items()}
    return plugin.build(settings["parameters"]).replace(**found)


def _found(mechanism: Mechanism) -> dict[str, Any]:
    """What calibration and the release found: the fields that no study sets."""
    fields = type(mechanism).__dataclass_fields__.values()
    found = {f.name: getattr(mechanism, f.name) for f in fields if f.default is None}
    return {name: value for name, value in found.items() if value is not None}


def _categories(encoder: Any) -> dict[str, Any]:
    if isinstance(encoder, HashBuckets):
        return {"kind": "hash", "buckets": encoder.buckets, "columns": encoder.columns}
    return {"kind": "vocabulary", "values": [values.tolist() for values in encoder.values]}


def _encoder(settings: dict[str, Any]) -> Encoder:
    categories = settings["model"]["categories"]
    if categories["kind"] == "hash":
        return HashBuckets(categories["buckets"], categories["columns"])
    return Vocabulary(tuple(np.array(values, np.uint32) for values in categories["values"]))


def _arrays(parameters: Parameters) -> dict[str, Any]:
    """All tables in one buffer, whatever parts they were trained in."""
    store = jnp.concatenate([buffer.ravel() for buffer in parameters["embeddings"]])
    arrays: dict[str, Any] = {"tower": parameters["tower"]}
    return arrays | ({"embeddings": store} if store.size else {})


def _shapes(arrays: Any) -> Any:
    return jax.tree.map(lambda array: tuple(array.shape), arrays)


def _restored(path: Path, model: Model) -> Parameters:
    import orbax.checkpoint as ocp

    shapes = jax.eval_shape(model.init, jax.random.key(0))
    wanted = jax.eval_shape(_arrays, shapes)
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            there = checkpointer.metadata(path.absolute()).item_metadata.tree
            if _shapes(there) != _shapes(wanted):
                raise ValueError(f"its arrays do not fit the model of {SETTINGS}")
            found = checkpointer.restore(path.absolute(), wanted)
    except Exception as error:  # whatever orbax raises for files of another version
        raise DpcompareError(f"{path} cannot be read: {_beginning(error)}; {NEXT}") from error
    store = found.get("embeddings", jnp.zeros(math.prod(shapes["embeddings"][0].shape)))
    return Parameters(embeddings=(store,), tower=found["tower"])


def _beginning(error: Exception) -> str:
    """What an error says, without the pages that tensorstore adds."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if (full := os.strerror(errno.ENOSPC)) in str(error):
        return full
    return str(error).partition("\n")[0].partition(". See full")[0][:150]


@contextmanager
def _silent_orbax() -> Iterator[None]:
    """It logs tracebacks of what it raises anyhow, which is told in one line."""
    logger = logging.getLogger("absl")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
