"""The plug-in contract: what a privacy mechanism answers, and how a plug-in is found.

Write a mechanism by subclassing :class:`Mechanism` and overriding the questions that yours answers
differently. See the class for each of them, and `docs/mechanisms.md` for a worked example.
"""

import inspect
import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from dpcompare import catalog
from dpcompare.catalog import near_miss
from dpcompare.data.dataset import Features
from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel
from dpcompare.label_noise import LabelNoise
from dpcompare.mechanism_file import content_hash, from_file
from dpcompare.optimizers import LINEAR, OPTIMIZERS
from dpcompare.privacy import Budget, Release, Sampling, Schedule
from dpcompare.tasks import Task

_DIAGNOSTIC = "dpcompare diagnostic"


@struct.dataclass
class GradientRelease:
    """How the sum of weighted gradients is released at each step.

    Attributes:
        sensitivity: the largest norm that one group may add to the sum.
        noise_multiplier: standard deviation of the noise on the sum, in units of `sensitivity`.
        group_size: rows that are drawn and weighed together; 1 is one example.
    """

    sensitivity: float | jax.Array
    noise_multiplier: float | jax.Array
    group_size: int = struct.field(pytree_node=False, default=1)

    @property
    def standard_deviation(self) -> jax.Array:
        """Of the noise on each entry of the sum; zero noise stays zero at infinite sensitivity."""
        sigma, norm = jnp.asarray(self.noise_multiplier), jnp.asarray(self.sensitivity)
        return jnp.where(sigma == 0, 0.0, sigma * norm)


class Mechanism(struct.PyTreeNode):
    """A way of training privately; this base class trains without privacy.

    A mechanism is an immutable record. Numbers that a study varies are plain fields (they become
    float32 in compiled code, where all trials that differ only in them share one program);
    choices and shapes are ``flax.struct.field(pytree_node=False)``. Fields are the parameters that
    a study file may set, so each has a default. A value that :meth:`calibrate` finds is ``None``
    before. A mechanism never sees true labels after :meth:`release_labels`, and it states what it
    released in :meth:`events`; it never states an epsilon.

    The questions, in the order in which a trial asks them:

    1. :meth:`check`: do the parameters make sense?
    2. :meth:`calibrate`: how much noise fits the budget?
    3. :meth:`release_labels`: what does training see in place of the labels?
    4. :meth:`loss`, :meth:`gradient`, :meth:`weights`: what is minimized, and how are gradients
       released?
    5. :meth:`predict`: how do log-odds become calibrated predictions?
    6. :meth:`events`: what was released?

    Attributes:
        sampling: how batches are drawn: "shuffle", or "poisson" where amplification is claimed.
    """

    sampling: Sampling = struct.field(pytree_node=False, default="shuffle")

    def check(self) -> None:
        """Refuse parameter values that make no sense.

        Raises:
            UsageError: naming the parameter and what is allowed.
        """

    def calibrate(self, budget: Budget, schedule: Schedule, task: Task) -> Self:
        """The mechanism with the noise that fits `budget` over `schedule`.

        Raises:
            UsageError: the budget cannot be met, with the range that can.
        """
        return self

    def release_labels(
        self, labels: np.ndarray, features: Features, rng: np.random.Generator, task: Task
    ) -> tuple[Self, Any]:
        """What training sees of the labels; called once per draw, outside compiled code.

        The draw is remembered: trials that differ only in training get the same one.

        Args:
            labels: (n,) true labels, in the order of the training rows.
            features: of the same rows.
            rng: a generator that nothing else uses.
            task: whose labels they are.

        Returns:
            The mechanism, which may carry what it learnt from the release, and a pytree of arrays
            with one row per example, which reaches :meth:`loss` batch by batch.
        """
        return self, task.training_labels(labels)

    def loss(self, task: Task, logits: jax.Array, released: Any) -> jax.Array:
        """Loss per row, (batch,), from logits, (batch,), and the released rows of the batch."""
        return task.loss(logits, released)

    def predict(self, task: Task, logits: jax.Array) -> jax.Array:
        """Calibrated predictions, (batch,), from logits, (batch,)."""
        return task.predict(logits)

    def gradient(self) -> GradientRelease | None:
        """How gradient sums are released; None is the plain mean gradient, at no extra cost."""
        return None

    def weights(self, norms: jax.Array) -> jax.Array:
        """How much each group's mean gradient may weigh in the sum, (groups,).

        ``weights(norms) * norms`` must never exceed the sensitivity of :meth:`gradient`.
        """
        return jnp.ones_like(norms)

    def kernel(self, task: Task) -> LabelKernel | None:
        """The mechanism's label kernel, where its outputs are finite; for display and checks.

        Mechanisms with equal kernels (and name, data and seed) share one draw of the labels.
        """
        return None

    def label_noise(self, task: Task) -> LabelNoise | None:
        """The noise added to labels, where its outputs are not finite; for display and checks."""
        return None

    def effective_sample_size_fraction(self, task: Task, rates: np.ndarray) -> float | None:
        """How many clean labels a released one is worth, as a fraction, if that is known.

        Args:
            task: whose labels they are.
            rates: (n,) the rows' true rates, as only a synthetic log knows them.
        """
        return None

    def events(self, schedule: Schedule) -> Sequence[Release]:
        """Everything that was released over `schedule`; none means that nothing is private."""
        return []

    def notes(self) -> Sequence[str]:
        """What a reader of the results must know, one sentence each."""
        return []


@dataclass(frozen=True)
class Plugin:
    """A mechanism as it was found.

    Attributes:
        name: how a study names it.
        factory: the class.
        version: what identifies its code: a hash of its source file, and for an installed
            plug-in its distribution and version.
    """

    name: str
    factory: type[Mechanism]
    version: str

    def build(self, parameters: dict[str, Any]) -> Mechanism:
        """The mechanism with the given parameters.

        Raises:
            UsageError: an unknown parameter, or a value of the wrong type or out of range.
        """
        defaults = parameter_defaults(self.factory)
        for name, value in parameters.items():
            if name not in defaults:
                raise UsageError(
                    f"mechanism {self.name!r} has no parameter {name!r}"
                    f"{near_miss(name, defaults)}; it has: {', '.join(defaults) or 'none'}"
                )
            _check_type(self.name, name, value, defaults[name])
        mechanism = self.factory(**parameters)
        mechanism.check()
        return mechanism


def parameter_defaults(factory: type[Mechanism]) -> dict[str, Any]:
    """The parameters that a study file may set, with their defaults.

    Fields without a default value (None) are found by calibration and cannot be set.
    """
    fields = factory.__dataclass_fields__.values()
    defaults = {
        f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields
    }
    del defaults["sampling"]
    return {name: default for name, default in defaults.items() if default is not None}


def diagnostic() -> Any:
    """A field that counts true labels, outside the guarantee: exported models do not hold it.

    Its value is None until :meth:`Mechanism.release_labels` sets it.
    """
    return struct.field(default=None, metadata={_DIAGNOSTIC: True})


def diagnostic_fields(factory: type[Mechanism]) -> list[str]:
    """The names of the fields that :func:`diagnostic` made."""
    return [f.name for f in factory.__dataclass_fields__.values() if f.metadata.get(_DIAGNOSTIC)]


def is_private(factory: type[Mechanism]) -> bool:
    """Whether the mechanism ever releases anything under a guarantee."""
    return factory.events is not Mechanism.events


def find(name: str) -> Plugin:
    """The mechanism called `name`: an installed one, or ``path/to/file.py:ClassName``.

    Raises:
        UsageError: there is none, or it is not a mechanism.
    """
    if ":" in name:
        found, version = from_file(name)
        return Plugin(name, _checked(name, found), version)
    points = catalog.mechanisms()
    if name not in points:
        raise UsageError(
            f"mechanism {name!r} is unknown{near_miss(name, points)}; installed are: "
            f"{', '.join(points)}. A file is named as ./my_mechanism.py:MyMechanism"
        )
    factory = _checked(name, points[name].load())
    return Plugin(name, factory, _installed_version(points[name], factory))


def _checked(name: str, factory: Any) -> type[Mechanism]:
    if not (inspect.isclass(factory) and issubclass(factory, Mechanism)):
        raise UsageError(f"mechanism {name!r} is not a subclass of dpcompare.mechanism.Mechanism")
    return factory


def _installed_version(point: EntryPoint, factory: type[Mechanism]) -> str:
    source = inspect.getsourcefile(factory)
    digest = content_hash(Path(source).read_bytes()) if source else "unknown"
    distribution = f"{point.dist.name}=={point.dist.version} " if point.dist else ""
    return f"{distribution}sha256:{digest}"


def _check_type(mechanism: str, name: str, value: Any, default: Any) -> None:
    numeric = isinstance(default, float)
    allowed = (int, float) if numeric else type(default)
    is_bool_for_number = isinstance(value, bool) and not isinstance(default, bool)
    is_endless = isinstance(value, float) and not math.isfinite(value)
    if not isinstance(value, allowed) or is_bool_for_number or is_endless:
        expected = "a finite number" if numeric else f"of type {type(default).__name__}"
        raise UsageError(
            f"mechanism {mechanism!r}: parameter {name!r} must be {expected}, got {value!r}"
        )


def describe(plugin: Plugin) -> str:
    """Name, code version, documentation and parameters, for the terminal."""
    defaults = parameter_defaults(plugin.factory)
    lines = [f"{plugin.name} ({plugin.factory.__name__}, {plugin.version})", ""]
    lines += [inspect.getdoc(plugin.factory) or "", "", f"sampling: {plugin.factory.sampling}"]
    lines += ["parameters:" if defaults else "parameters: none"]
    lines += [f"  {name} = {value!r}" for name, value in defaults.items()]
    if plugin.factory.gradient is not Mechanism.gradient:
        others = ", ".join(name for name in OPTIMIZERS if name not in LINEAR)
        lines += [
            "noise on embedding tables:",
            f"  {', '.join(LINEAR)}: big tables get it when a row is read (training.lazy_noise)",
            f"  {others}: every table gets it at every step, for lazy noise would not be exact",
        ]
    return "\n".join(lines) + "\n"
