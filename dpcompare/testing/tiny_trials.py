"""Whole trials of a mechanism under check, a fraction of a second each once they are compiled.

They take the configuration of a real study, on made-up rows of few columns: those of the synthetic
log would take ten times as long to compile.
"""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast
from unittest import mock

from dpcompare import configuration, study, trial
from dpcompare.configuration import Configuration
from dpcompare.data import HashBuckets
from dpcompare.examples import PARTS, Examples
from dpcompare.expansion import expand
from dpcompare.mechanism import Mechanism, Plugin, parameter_defaults
from dpcompare.tasks import CountTask, Task
from dpcompare.testing.subject import MODEL, Subject, features, labels

T = TypeVar("T")

_STUDY = """
task = "{task}"
epsilons = [1.0]
seeds = 1
{cap}
[data]
rows = 600
[model]
buckets = 10
tower = [4]
[training]
batch_size = 40
epochs = 2
learning_rate = 0.05
[[mechanisms]]
name = "non-private"
"""


def configuration_of(
    subject: Subject, task: Task, epsilon: float | str, **changes: Any
) -> Configuration:
    """A tiny trial of the mechanism.

    Args:
        subject: the mechanism.
        task: a task that it accepts.
        epsilon: or "inf".
        **changes: of top-level keys; tables replace only the keys that they have.
    """
    made = dict(_template(task))
    made["mechanism"] = {
        "name": subject.plugin.name,
        "parameters": parameter_defaults(subject.plugin.factory) | subject.parameters,
        "version": subject.plugin.version,
    }
    made["budget"] = made["budget"] | {"epsilon": epsilon}
    for key, value in changes.items():
        made[key] = made[key] | value if isinstance(value, dict) else value
    return cast(Configuration, made)


def run(subject: Subject, asked: Configuration) -> dict[str, Any]:
    """The record of the trial; see :func:`dpcompare.trial.run_trial`."""
    return with_plugin(subject, lambda: trial.run_trial(asked))


def releases_of(subject: Subject, asked: Configuration) -> tuple[dict[str, Any], int]:
    """The record of the trial, and how often it released the labels."""
    factory, calls = subject.plugin.factory, 0
    release = factory.release_labels

    def counted(self: Mechanism, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return release(self, *arguments)

    with mock.patch.object(factory, "release_labels", counted):
        return run(subject, asked), calls


def with_plugin(subject: Subject, action: Callable[[], T]) -> T:
    """An action for which trials find the mechanism, though no study can name a mere class."""

    def plugin_of(name: str, version: str) -> Plugin:
        return subject.plugin

    with (
        mock.patch.object(trial, "plugin_of", plugin_of),
        mock.patch.object(configuration, "plugin_of", plugin_of),
        mock.patch.object(trial, "load_examples", _examples),
    ):
        return action()


def _examples(asked: Configuration) -> Examples:
    """Made-up rows, as many as the configuration says."""
    task = configuration.task_of(asked)
    rows = dict(zip(PARTS, asked["data"]["parts"], strict=True))
    tables = MODEL.tables
    return Examples(
        MODEL,
        HashBuckets(max(tables.sizes), len(tables.sizes)),
        {part: features(count) for part, count in rows.items()},
        {part: labels(count, task) for part, count in rows.items()},
        None,
        [],
    )


@cache
def _template(task: Task) -> dict[str, Any]:
    """The configuration of a non-private trial of a task."""
    cap = f"cap = {task.cap}" if isinstance(task, CountTask) else ""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "check-mechanism.toml"
        file.write_text(_STUDY.format(task=task.name, cap=cap), encoding="utf-8")
        (configuration,) = expand(study.load(str(file)))
    return dict(configuration)
