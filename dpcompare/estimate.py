"""Rough time and memory of a trial, before it runs; for progress bars and dry runs."""

import time

import numpy as np
from threadpoolctl import threadpool_limits

from dpcompare.embeddings import EmbeddingTables
from dpcompare.expansion import train_rows
from dpcompare.model import Model
from dpcompare.trainer import chunk_rows
from dpcompare.trial import Configuration, is_private, schedule_of

# Measured on one Zen 4 core at 100 GFLOP/s (float32 matrix product), in seconds:
REFERENCE_SPEED = 100e9
PER_EXAMPLE = 1.5e-6  # gather, scatter and everything that does not grow with the tower
PER_PARAMETER_AND_STEP = 3e-9  # the optimizer's update
PER_NOISED_PARAMETER_AND_STEP = 10e-9  # drawing a normal
START = 2.0  # compiling and evaluating
RUNTIME_BYTES = 450 * 2**20  # Python, JAX and a compiled program


def cost(configuration: Configuration) -> float:
    """Expected seconds on the reference machine."""
    return seconds(configuration, REFERENCE_SPEED)


def seconds(configuration: Configuration, speed: float) -> float:
    """Expected seconds on one core of a machine that does `speed` floating-point operations/s."""
    model = model_of(configuration)
    schedule = schedule_of(configuration, train_rows(configuration["data"]))
    per_parameter = PER_PARAMETER_AND_STEP
    if schedule.sampling == "poisson" and is_private(configuration):
        per_parameter += PER_NOISED_PARAMETER_AND_STEP
    examples = schedule.steps * schedule.batch_size
    work = examples * (6 * model.dense_parameters / REFERENCE_SPEED + PER_EXAMPLE)
    return (START + work + schedule.steps * model.parameters * per_parameter) * (
        REFERENCE_SPEED / speed
    )


def memory(configuration: Configuration) -> float:
    """Expected bytes of one worker: parameters and copies, rows, and a chunk's activations."""
    model = model_of(configuration)
    schedule = schedule_of(configuration, train_rows(configuration["data"]))
    copies = 6  # parameters, gradient, sum, optimizer (two) and the mean
    inputs = 2 * model.numeric + model.tables.outputs
    columns = model.numeric + len(model.tables.column_tables)
    rows = schedule.examples * (columns + 1) * 4 * 3
    wanted = configuration["training"]["chunk_size"]
    chunk = chunk_rows(schedule, 1, wanted) * (inputs + sum(model.tower)) * 4 * 4
    return RUNTIME_BYTES + model.parameters * 4 * copies + rows + chunk


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
