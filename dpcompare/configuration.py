"""The configuration of a trial: every value that may change its result, in plain JSON values."""

import functools
import math
from dataclasses import fields
from typing import Any, TypedDict, cast

from dpcompare import tasks
from dpcompare.errors import DpcompareError
from dpcompare.mechanism import Plugin, find
from dpcompare.mechanism_file import name_that_counts
from dpcompare.optimizers import Recipe
from dpcompare.privacy import Budget, Schedule
from dpcompare.randomness import digest
from dpcompare.tasks import Task

SECRET = "secret"
"""In place of a seed: the words that name the random streams come from the operating system."""


class About(TypedDict):
    """What a configuration says of itself that cannot change its result."""

    study: str
    title: str
    metric: str
    label: str
    candidate: dict[str, Any]


class Run(TypedDict):
    """How a trial is run. It changes nothing, but that several devices round sums otherwise.

    Attributes:
        devices: that share the trial.
        checkpoints: the folder of the study's checkpoints; None keeps none.
        checkpoint_seconds: the time between two.
        token: what the lock of the results folder holds while the run lasts: who does not see it
            there sees another folder, on another machine.
    """

    devices: int
    checkpoints: str | None
    checkpoint_seconds: float
    token: str


class Optional(TypedDict, total=False):
    """What only some configurations have, so that the others keep their identity.

    Attributes:
        kind: "account" where nothing is trained; see :mod:`dpcompare.account`.
        withheld: "test" where candidates are compared: test rows are not looked at.
        selection: of a private selection: the `mean` number of candidates, a hash of the
            candidates that are chosen `among`, and which `draw` of them this trial is.
        run: how the trial is run, not a part of its identity; see :class:`Run`.
    """

    kind: str
    withheld: str
    selection: dict[str, Any]
    run: Run


class Configuration(Optional):
    """Everything that may change a trial's result, in plain JSON values, and `about`.

    Attributes:
        task: name of the task.
        cap: of a count, the largest that label mechanisms keep; None for other tasks.
        data: source ("synthetic" or a prepared folder), its arguments, checksum, split, and the
            rows of each of PARTS that the task has.
        model: buckets, tower and how categories are encoded.
        training: the fields of :class:`Recipe`, batch size, epochs, and `examples`: train on so
            many of the training rows only, evenly spread over them (0: on all).
        mechanism: name, all parameters, and the version of its code.
        budget: epsilon (or "inf"), delta, neighboring, accountant, allow_large_delta.
        seed: names the random streams; SECRET where a secret does.
        dpcompare: version of this package.
        about: where the trial belongs.
    """

    task: str
    cap: int | None
    data: dict[str, Any]
    model: dict[str, Any]
    training: dict[str, Any]
    mechanism: dict[str, Any]
    budget: dict[str, Any]
    seed: int | str
    dpcompare: str
    about: About


def identity(configuration: Configuration) -> str:
    """The hash that tells trials apart: of all that may change the result and nothing else."""
    return digest(counted(configuration)).hex()[:20]


def final_of(configuration: Configuration) -> Configuration:
    """The trial that repeats one of a comparison, and looks at the test rows too."""
    kept = {key: value for key, value in configuration.items() if key != "withheld"}
    return cast(Configuration, kept)


def counted(configuration: Configuration) -> dict[str, Any]:
    """The part of a configuration that may change the result.

    Where a prepared data set lies does not count; its checksum does. Where a mechanism's file lies
    does not count; its content and the class do.
    """
    chosen = configuration["mechanism"]
    return {
        **{key: value for key, value in configuration.items() if key not in ("about", "run")},
        "data": {k: v for k, v in configuration["data"].items() if k != "path"},
        "mechanism": chosen | {"name": name_that_counts(chosen["name"])},
    }


@functools.cache
def plugin_of(name: str, version: str) -> Plugin:
    """The mechanism that a configuration names, found once per process.

    Raises:
        DpcompareError: its code has changed since the configuration was made.
        UsageError: it is not there any more.
    """
    plugin = find(name)
    if plugin.version != version:
        raise DpcompareError(
            f"the code of mechanism {name!r} has changed since the study was expanded; run the "
            "study again"
        )
    return plugin


def task_of(configuration: Any) -> Task:
    """The task of a configuration."""
    return tasks.find(configuration["task"], configuration["cap"])


def training_rows(configuration: Configuration) -> int:
    """How many rows are trained on."""
    there: int = configuration["data"]["parts"][0]
    return configuration["training"]["examples"] or there


def budget_of(configuration: Configuration) -> Budget:
    """The budget section as numbers."""
    settings = configuration["budget"]
    return Budget(
        float(settings["epsilon"]),
        settings["delta"],
        settings["neighboring"],
        settings["accountant"],
    )


def schedule_of(configuration: Configuration, examples: int) -> Schedule:
    """The schedule of a configuration on `examples` training rows."""
    training = configuration["training"]
    chosen = configuration["mechanism"]
    sampling = plugin_of(chosen["name"], chosen["version"]).factory.sampling
    return Schedule.from_epochs(examples, training["batch_size"], training["epochs"], sampling)


def recipe_of(configuration: Configuration) -> Recipe:
    """The optimizer's part of the training section."""
    names = [field.name for field in fields(Recipe)]
    return Recipe(**{name: configuration["training"][name] for name in names})


def is_private(configuration: Configuration) -> bool:
    """Whether the trial has a finite budget."""
    return math.isfinite(float(configuration["budget"]["epsilon"]))
