"""The mechanism that is checked, and the small trials in which it is."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dpcompare import tasks
from dpcompare.data.dataset import Features
from dpcompare.embeddings import EmbeddingTables
from dpcompare.errors import UsageError
from dpcompare.mechanism import Mechanism, Plugin, find
from dpcompare.model import Model
from dpcompare.privacy import Budget, Schedule, default_delta
from dpcompare.randomness import numpy_generator
from dpcompare.tasks import Task

TASKS = (tasks.PCTR, tasks.find("pconvs", 2))
"""Binary labels, and counts; a mechanism is checked on those that it does not refuse."""

MODEL = Model(2, EmbeddingTables((5, 7)), (4,))
"""Two numeric columns and two tables: small, with every kind of parameter."""


@dataclass(frozen=True)
class Subject:
    """A mechanism under check.

    Attributes:
        plugin: how it was found.
        parameters: as a study would set them.
    """

    plugin: Plugin
    parameters: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, mechanism: str | type[Mechanism], **parameters: Any) -> "Subject":
        """The subject called so by a study, or the class itself.

        Raises:
            UsageError: there is no such mechanism.
        """
        if isinstance(mechanism, str):
            return cls(find(mechanism), parameters)
        return cls(Plugin(mechanism.__name__, mechanism, "of no version"), parameters)

    def schedule(self, examples: int = 2000, batch_size: int = 200, steps: int = 20) -> Schedule:
        """A schedule with the sampling that the mechanism asks for."""
        return Schedule(examples, batch_size, steps, self.plugin.factory.sampling)

    def calibrated(
        self, epsilon: float, task: Task = TASKS[0], schedule: Schedule | None = None
    ) -> Mechanism:
        """The mechanism with the noise for epsilon, at the default delta.

        Raises:
            UsageError: it refuses its parameters, the task or the budget.
        """
        schedule = schedule or self.schedule()
        budget = Budget(epsilon, default_delta(schedule.examples))
        return self.plugin.build(self.parameters).calibrate(budget, schedule, task)

    @cached_property
    def tasks(self) -> list[Task]:
        """Those of TASKS that the mechanism accepts at epsilon 1."""
        return [task for task in TASKS if self._accepts(task)]

    def _accepts(self, task: Task) -> bool:
        try:
            self.calibrated(1.0, task)
        except UsageError:
            return False
        return True


def features(rows: int, model: Model = MODEL) -> Features:
    """Made-up features of `rows` rows for a model, the same at every call."""
    rng = numpy_generator("features to check mechanisms with", rows)
    sizes = np.array([model.tables.sizes[table] for table in model.tables.column_tables])
    return Features(
        numeric=rng.normal(size=(rows, model.numeric)).astype(np.float32),
        ids=rng.integers(0, sizes, size=(rows, len(sizes))).astype(np.int32),
    )


def labels(rows: int, task: Task) -> np.ndarray:
    """Made-up true labels, (rows,), of every class of the task, the same at every call."""
    rng = numpy_generator("labels to check mechanisms with", rows, task.name)
    return rng.integers(0, task.classes, size=rows)
