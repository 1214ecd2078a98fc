"""Rough time and memory of a trial, before it runs; for progress bars and dry runs."""

import time

import numpy as np
from threadpoolctl import threadpool_limits

from dpcompare.batches import Chunks, chunks_of
from dpcompare.configuration import Configuration, is_private, schedule_of, training_rows
from dpcompare.data.views import LARGEST_COPY
from dpcompare.embeddings import EmbeddingTables
from dpcompare.model import Model
from dpcompare.optimizers import LINEAR
from dpcompare.privacy import Schedule
from dpcompare.table_updates import TableUpdates

# Measured on one Zen 4 core at 100 GFLOP/s (float32 matrix product), in seconds:
REFERENCE_SPEED = 100e9
PER_EXAMPLE = 1.5e-6  # gather, scatter and everything that does not grow with the tower
PER_PARAMETER_AND_STEP = 3e-9  # the optimizer's update
PER_NOISED_PARAMETER_AND_STEP = 10e-9  # drawing a normal
START = 2.0  # compiling and evaluating
PER_ROW = 32  # labels, their release, a permutation, predictions and what metrics sort; up to 20
# bytes were measured (docs/scale.md)
RUNTIME_BYTES = 750 * 2**20  # Python, JAX and compiled programs; measured, at its peak


def cost(configuration: Configuration) -> float:
    """Expected seconds on the reference machine."""
    return seconds(configuration, REFERENCE_SPEED)


def seconds(configuration: Configuration, speed: float) -> float:
    """Expected seconds on one core of a machine that does `speed` floating-point operations/s."""
    if configuration.get("kind") == "account":
        return START
    model = model_of(configuration)
    schedule = schedule_of(configuration, training_rows(configuration))
    noisy = _is_noisy(configuration, schedule)
    updated = _numbers_updated_each_step(configuration, model, schedule, noisy)
    per_number = PER_PARAMETER_AND_STEP + (PER_NOISED_PARAMETER_AND_STEP if noisy else 0)
    examples = schedule.steps * schedule.batch_size
    work = examples * (6 * model.dense_parameters / REFERENCE_SPEED + PER_EXAMPLE)
    return (START + work + schedule.steps * updated * per_number) * (REFERENCE_SPEED / speed)


def memory(configuration: Configuration) -> float:
    """Expected bytes of one worker: parameters and copies, rows, and a chunk's activations.

    Mapped files are not counted: the system gives up what it holds of them when memory is short.
    """
    if configuration.get("kind") == "account":
        return RUNTIME_BYTES
    model = model_of(configuration)
    schedule = schedule_of(configuration, training_rows(configuration))
    training = configuration["training"]
    # Initial and present weights, and the velocity; else dense gradients and an optax state too.
    copies = 3 if training["optimizer"] in LINEAR else 6
    inputs = 2 * model.numeric + model.tables.outputs
    chunks = chunks_of(schedule, 1, training["chunk_size"])
    rows = _rows(configuration, model) + _gathered(model, chunks)
    activations = chunks.rows * (inputs + sum(model.tower)) * 4 * 4
    waiting = chunks.most * chunks.rows * model.tables.outputs * 4
    return RUNTIME_BYTES + model.parameters * 4 * copies + rows + activations + waiting


def _rows(configuration: Configuration, model: Model) -> float:
    """What is held of all rows: columns that no file holds, encoded ids, and one row's numbers."""
    parts = configuration["data"]["parts"]
    columns = len(model.tables.column_tables)
    encoded = [4 * columns * rows for rows in parts]
    # A task with rows of its own has copies of those.
    selected = [4 * width * sum(parts) for width in (model.numeric, columns)]
    held = sum(copy for copy in [*encoded, *selected] if copy <= LARGEST_COPY)
    if configuration["data"]["source"] == "synthetic":
        held += 4 * (model.numeric + columns) * sum(parts)
    return held + PER_ROW * sum(parts)


def _gathered(model: Model, chunks: Chunks) -> float:
    """The rows of the blocks that are trained on, waiting and being gathered."""
    row_bytes = 4 * (model.numeric + len(model.tables.column_tables) + 1)
    steps = chunks.steps_of_block(row_bytes)
    return 3.0 * steps * chunks.most * chunks.rows * row_bytes


def checkpoint(configuration: Configuration) -> float:
    """Bytes of a trial's checkpoint at most: every number with what its optimizer remembers."""
    if configuration.get("kind") == "account":
        return 0.0
    copies = {"sgd": 1, "momentum": 2}.get(configuration["training"]["optimizer"], 3)
    model = model_of(configuration)
    of_lazy_rows = 2 * sum(model.tables.sizes)
    return 4.0 * (copies * model.parameters + of_lazy_rows)


def _is_noisy(configuration: Configuration, schedule: Schedule) -> bool:
    return schedule.sampling == "poisson" and is_private(configuration)


def lazy_tables(configuration: Configuration) -> int:
    """How many of the trial's embedding tables get their noise only when they are read."""
    model = model_of(configuration)
    schedule = schedule_of(configuration, training_rows(configuration))
    return _updates(configuration, model, schedule, _is_noisy(configuration, schedule)).lazy


def _updates(
    configuration: Configuration, model: Model, schedule: Schedule, noisy: bool
) -> TableUpdates:
    training = configuration["training"]
    return TableUpdates.choose(
        model.tables,
        training["optimizer"],
        noisy,
        schedule.batch_size,
        training["lazy_noise"],
        training["weight_decay"],
    )


def _numbers_updated_each_step(
    configuration: Configuration, model: Model, schedule: Schedule, noisy: bool
) -> int:
    """Besides the rows that a batch touches: the tower and the eager tables, if they change."""
    training = configuration["training"]
    updates = _updates(configuration, model, schedule, noisy)
    if training["optimizer"] == "sgd" and not noisy:
        return model.dense_parameters
    caught_up = schedule.batch_size * model.tables.outputs if updates.lazy else 0
    return model.dense_parameters + model.tables.cut_sizes(updates.eager)[0] + caught_up


def model_of(configuration: Configuration) -> Model:
    """The network of a configuration; learnt vocabularies count as 10,000 rows a table."""
    numeric, categorical = configuration["data"]["columns"]
    size = configuration["model"].get("buckets", 10_000)
    tables = EmbeddingTables((size,) * categorical)
    return Model(numeric, tables, tuple(configuration["model"]["tower"]))


def measured_speed() -> float:
    """Floating-point operations per second of one core on a float32 matrix product."""
    a = np.ones((1024, 1024), np.float32)
    a @ a
    with threadpool_limits(1):
        start = time.perf_counter()
        for _ in range(5):
            a @ a
        return 5 * 2 * 1024**3 / (time.perf_counter() - start)
