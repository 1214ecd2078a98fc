"""Small trainings of the mechanism under check, by the real trainer, seen step by step."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from dpcompare.data.dataset import Features
from dpcompare.embeddings import EmbeddingTables
from dpcompare.mechanism import GradientRelease, Mechanism
from dpcompare.model import Model, Parameters
from dpcompare.optimizers import Recipe
from dpcompare.privacy import Schedule
from dpcompare.randomness import numpy_generator
from dpcompare.tasks import Task
from dpcompare.testing.outcome import NotApplicable
from dpcompare.testing.probes import Probe
from dpcompare.testing.subject import Subject, features, labels
from dpcompare.trainer import Streams, train

TOWER = (16,)
"""Wide enough that no row finds all its units asleep, so that every drawn row leaves a trace."""

BATCHES = ("batches of checks",)
"""The words that name the batches of every training here."""


@dataclass(frozen=True)
class SmallTraining:
    """All that a training needs but for what a check varies.

    Attributes:
        mechanism: calibrated, and with its labels released.
        task: whose loss it trains on.
        model: the network.
        features: of the rows.
        released: what the mechanism released of their labels.
        schedule: of one step.
        chunk_size: rows per pass.
    """

    mechanism: Mechanism
    task: Task
    model: Model
    features: Features
    released: Any
    schedule: Schedule
    chunk_size: int

    @cached_property
    def release(self) -> GradientRelease:
        """What the mechanism declares.

        Raises:
            NotApplicable: it releases plain mean gradients.
        """
        release = self.mechanism.gradient()
        if release is None:
            raise NotApplicable("it trains on plain mean gradients and promises nothing of them")
        return release

    @property
    def group_size(self) -> int:
        """Rows that are drawn together."""
        release = self.mechanism.gradient()
        return release.group_size if release else 1

    @property
    def expected_groups(self) -> float:
        """The public number that gradient sums are divided by."""
        return self.schedule.batch_size / self.group_size

    @property
    def unit_rate(self) -> float:
        """The learning rate at which a sum of the size of the sensitivity moves weights by 1."""
        return self.expected_groups / float(self.release.sensitivity)

    def parameters_after(
        self,
        rate: float,
        steps: int = 1,
        every: int = 1,
        noise: float = 0.0,
        footprint: bool = False,
        counts: np.ndarray | None = None,
        noise_stream: str = "noise of checks",
        **replaced: Any,
    ) -> list[Parameters]:
        """The parameters after every so many steps of plain SGD.

        Args:
            rate: the learning rate of every step.
            steps: to be made, a multiple of `every`.
            every: how many steps apart the parameters are looked at, when lazy tables settle.
            noise: a factor on the mechanism's noise.
            footprint: give every row a slope of its own, whatever the mechanism's loss.
            counts: (n,) booleans, the rows that are not silent; None for all.
            noise_stream: names the noise.
            **replaced: `features` or `released`, for others than those of this training.
        """
        rows: Features = replaced.get("features", self.features)
        everything = np.ones(len(rows.ids), bool)
        found: list[Parameters] = []
        train(
            Probe(
                sampling=self.mechanism.sampling,
                kind=type(self.mechanism),
                inner=self.mechanism,
                noise=noise,
                footprint=float(footprint),
            ),
            self.task,
            self.model,
            rows,
            (replaced.get("released", self.released), everything if counts is None else counts),
            Schedule(
                self.schedule.examples, self.schedule.batch_size, steps, self.schedule.sampling
            ),
            Recipe("sgd", rate, "constant", evaluations=steps // every, chunk_size=self.chunk_size),
            Streams(BATCHES, (noise_stream,)),
            evaluate=lambda step, parameters: found.append(jax.tree.map(np.array, parameters)),
        )
        return found

    def changes(self, rate: float, steps: int, every: int = 1, **variation: Any) -> np.ndarray:
        """How the numbers change from each look to the next, (looks - 1, numbers) float64.

        Args: as those of :meth:`parameters_after`.
        """
        seen = self.parameters_after(rate, steps, every, **variation)
        return np.diff(np.stack([flat(parameters) for parameters in seen]), axis=0)

    def noise_of_steps(
        self, looks: int, every: int = 1, noise_stream: str = "noise of checks"
    ) -> np.ndarray:
        """What moves the parameters if no row counts, (looks, numbers), of standard deviation 1.

        Args:
            looks: how often the parameters are looked at.
            every: how many steps apart.
            noise_stream: names the noise.

        Raises:
            NotApplicable: the mechanism declares no noise.
        """
        declared = float(self.release.standard_deviation)
        if declared == 0:
            raise NotApplicable("it declares no noise on gradients")
        rate = self.expected_groups / declared
        nobody = np.zeros(len(self.features.ids), bool)
        # The first look is where the differences begin, so one more is needed.
        moved = self.changes(
            rate, (looks + 1) * every, every, noise=1.0, counts=nobody, noise_stream=noise_stream
        )
        return moved / np.sqrt(every)


def shared_tables(subject: Subject) -> SmallTraining:
    """Two columns look up one table, and a batch takes several chunks; the first task.

    Raises:
        NotApplicable: the mechanism refuses all tasks.
    """
    return _small_training(subject, 0, (0, 1, 1), batch_size=34, chunk_size=16)


def one_table_a_column(subject: Subject, batch_size: int = 6) -> SmallTraining:
    """No table is looked up twice by a row, and a batch fits one chunk; the last task.

    Raises:
        NotApplicable: the mechanism refuses all tasks.
    """
    return _small_training(subject, -1, (0, 1), batch_size, chunk_size=48)


def _small_training(
    subject: Subject, task_place: int, columns: tuple[int, ...], batch_size: int, chunk_size: int
) -> SmallTraining:
    """The smaller table is updated eagerly, the larger one lazily; the last group lacks rows."""
    if not subject.tasks:
        raise NotApplicable("it refuses every task that checks are made with")
    task = subject.tasks[task_place]
    mechanism = subject.calibrated(1.0, task, subject.schedule(102, 34, 20))
    release = mechanism.gradient()
    # Everything grows with large groups, so that a few are drawn at each step.
    times = max(1, release.group_size // 4) if release else 1
    schedule = subject.schedule(102 * times, batch_size * times, 1)
    model = Model(2, EmbeddingTables((2, schedule.examples), columns), TOWER)
    rows = features(schedule.examples, model)
    rows.numeric[::7, 0] = np.nan  # a missing number
    true = labels(schedule.examples, task)
    mechanism, released = mechanism.release_labels(true, rows, release_generator(), task)
    released = jax.tree.map(np.asarray, released)
    return SmallTraining(mechanism, task, model, rows, released, schedule, chunk_size * times)


def release_generator() -> np.random.Generator:
    """The same numbers at every call."""
    return numpy_generator("labels released in checks")


def flat(parameters: Parameters) -> np.ndarray:
    """All numbers in one row, (numbers,) float64: first the tables, smaller ones first."""
    leaves = jax.tree.leaves(parameters)
    return np.concatenate([np.ravel(leaf) for leaf in leaves]).astype(np.float64)


def kinds(parameters: Parameters) -> dict[str, np.ndarray]:
    """For each kind of parameter a mask of its places in :func:`flat`."""
    names: list[str] = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(parameters):
        text = jax.tree_util.keystr(path)
        name = {True: "biases", False: "kernels"}["bias" in text]
        if "embeddings" in text:
            name = "eager tables" if text.endswith("[0]") else "lazy tables"
        names += [name] * leaf.size
    return {name: np.array(names) == name for name in dict.fromkeys(names)}
