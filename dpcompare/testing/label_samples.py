"""Draws of released labels, and everything of them that training gets to see."""

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpcompare.mechanism import Mechanism, diagnostic_fields
from dpcompare.randomness import numpy_generator
from dpcompare.tasks import Task
from dpcompare.testing.confidence import Array
from dpcompare.testing.subject import features, labels

ROWS = 100_000
_MOST_COLUMNS = 64  # of one array; what is wider is looked at as a whole
_LOGIT = 2.0


class Draw(NamedTuple):
    """One release.

    Attributes:
        mechanism: as it came out of the release.
        labels: (rows,) the true ones.
        released: what training reads, one row per example.
    """

    mechanism: Mechanism
    labels: np.ndarray
    released: Any


def draw(mechanism: Mechanism, task: Task, rows: int = ROWS, seed: int = 0) -> Draw:
    """A release of made-up labels; equal seeds use equal generators."""
    return draw_of(mechanism, task, labels(rows, task), seed)


def draw_of(mechanism: Mechanism, task: Task, true: np.ndarray, seed: int = 0) -> Draw:
    """A release of given labels, (rows,); the mechanism may do to its copy what it likes."""
    rng = numpy_generator("labels drawn to check mechanisms with", seed)
    after, released = mechanism.release_labels(true.copy(), features(len(true)), rng, task)
    for path, leaf in jax.tree_util.tree_flatten_with_path(released)[0]:
        assert np.shape(leaf)[:1] == (len(true),), (
            f"released{jax.tree_util.keystr(path)} has the shape {np.shape(leaf)}; training reads "
            f"it batch by batch, so it needs one row for each of the {len(true):,} examples"
        )
    return Draw(after, true, released)


def as_compiled(mechanism: Mechanism) -> Mechanism:
    """The mechanism as compiled code gets it: all numbers float32."""
    return jax.tree.map(jnp.float32, mechanism)


def compiled_loss(mechanism: Mechanism, task: Task, logits: jax.Array, released: Any) -> jax.Array:
    """The loss, (rows,), as training computes it."""
    return _compiled_loss(type(mechanism), mechanism, task, logits, released)


@partial(jax.jit, static_argnames=("kind", "task"))
def _compiled_loss(
    kind: type[Mechanism],  # for JAX to tell mechanisms apart, see dpcompare.steps.Program
    mechanism: Mechanism,
    task: Task,
    logits: jax.Array,
    released: Any,
) -> jax.Array:
    return mechanism.loss(task, logits, released)


def columns_of_rows(drawn: Draw, task: Task) -> dict[str, Array]:
    """What there is of each row after the release, (rows,) each: released, kept, and in the loss.

    The loss is seen through its difference between two log-odds: what gradients are made of.
    """
    rows, columns = len(drawn.labels), stored_columns(drawn)
    mechanism = as_compiled(drawn.mechanism)
    high, low = (
        compiled_loss(mechanism, task, jnp.full(rows, z, jnp.float32), drawn.released)
        for z in (_LOGIT, -_LOGIT)
    )
    return columns | {"the slope of the loss": np.asarray(high, float) - np.asarray(low, float)}


def stored_columns(drawn: Draw) -> dict[str, Array]:
    """What there is of each row after the release, (rows,) each: released, and kept."""
    rows = len(drawn.labels)
    columns: dict[str, Array] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(drawn.released)[0]:
        columns |= _columns(f"released{jax.tree_util.keystr(path)}", leaf)
    for name, value in _fields(drawn.mechanism):
        for leaf in [value, *jax.tree.leaves(value)]:
            numbers = _numbers(leaf)
            if numbers is not None and numbers.shape[:1] == (rows,):
                columns |= _columns(f"the field {name}", numbers)
    return columns


def columns_of_draws(draws: list[Draw], *, released: bool) -> dict[str, Array]:
    """What there is of each draw as a whole, (draws,) each: its fields, and what it `released`."""
    seen = [_seen(one, released) for one in draws]
    names = dict.fromkeys(name for one in seen for name in one)
    return {name: np.array([one.get(name, np.nan) for one in seen]) for name in names}


def same(one: Any, other: Any) -> bool:
    """Whether two pytrees hold the same numbers, to the last bit."""
    first, second = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(first) == len(second) and all(
        np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind in "fc")
        for a, b in zip(first, second, strict=True)
    )


def _seen(drawn: Draw, released: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in _fields(drawn.mechanism):
        found |= _summary(f"the field {name}", value)
    if released:
        for path, leaf in jax.tree_util.tree_flatten_with_path(drawn.released)[0]:
            found |= _summary(f"released{jax.tree_util.keystr(path)}", leaf)
    return found


def _summary(name: str, value: Any) -> dict[str, float]:
    """Some numbers as they are; anything else by a hash, which is equal where the thing is."""
    numbers = _numbers(value)
    if numbers is not None and numbers.size <= _MOST_COLUMNS:
        flat = numbers.reshape(-1)
        return {f"{name}[{i}]" if numbers.ndim else name: float(x) for i, x in enumerate(flat)}
    content = repr(value).encode() if numbers is None else numbers.tobytes()
    return {f"a hash of {name}": float(int.from_bytes(hashlib.sha256(content).digest()[:6]))}


def _columns(name: str, leaf: Any) -> dict[str, Array]:
    """The columns of an array, (rows, ...)."""
    table = np.asarray(leaf, float).reshape(len(leaf), -1)[:, :_MOST_COLUMNS]
    several = table.shape[1] > 1
    return {f"{name}[:, {i}]" if several else name: table[:, i] for i in range(table.shape[1])}


def _fields(mechanism: Mechanism) -> Iterator[tuple[str, Any]]:
    """Names and values, but for what is declared to be counted outside the guarantee."""
    hidden = diagnostic_fields(type(mechanism))
    for name in type(mechanism).__dataclass_fields__:
        if name not in hidden:
            yield name, getattr(mechanism, name)


def _numbers(value: Any) -> Array | None:
    """As an array of numbers, if it is one."""
    if value is None:
        return None
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError):
        return None
