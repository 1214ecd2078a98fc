"""Lazy noise: rows of big tables get the noise that they missed when they are next read.

A step of DP-SGD adds noise to every number, though it reads only the rows that its batch looks up.
Of a row that nobody reads only the distribution matters, so its noise is drawn later: before a
row is read, it is brought up to date ("settled") in place with one draw from the joint
Gaussian of everything it missed (:mod:`dpcompare.missed_noise`). Whatever is read has then exactly
the distribution that noise at every step would have given it.

Unsettled tables are not a release: they lack noise that the guarantee counts on. Everything must
be settled before anything but the next step reads it, and always in place: of two settled copies
of one table the difference of the noise, hence a weaker guarantee, could be computed.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from dpcompare.embeddings import Group, gather, scatter_add
from dpcompare.missed_noise import Catchup, MissedNoise
from dpcompare.noise import BLOCK, normal


class LazyState(NamedTuple):
    """What lazy tables remember besides their weights.

    Attributes:
        velocity: shaped like the weights: momentum times the velocity, with the gradients since;
            None for plain SGD.
        last: (rows,) the step of the window at which each row was settled last.
        claim: (rows,) -1; scratch space that tells the lookups of one row apart.
        missed: what rows have missed, by `last`.
    """

    velocity: jax.Array | None
    last: jax.Array
    claim: jax.Array
    missed: MissedNoise

    @classmethod
    def start(cls, weights: jax.Array, rows: int, optimizer: str) -> "LazyState":
        """At the first step, where all rows are settled."""
        velocity = jnp.zeros_like(weights) if optimizer == "momentum" else None
        last = jnp.zeros((rows,), jnp.int32)
        return cls(velocity, last, jnp.full((rows,), -1, jnp.int32), MissedNoise.nothing())


class Noise(struct.PyTreeNode):
    """The noise of this and all earlier steps, as rows catch up with it.

    Attributes:
        key: used for nothing else.
        size: standard deviation of one step's noise on the mean gradient; None draws nothing.
        momentum: of the optimizer; 0 for plain SGD.
        draws: float32 normals that are summed for one of the noise.
    """

    key: jax.Array
    size: jax.Array | None
    momentum: jax.Array
    draws: int = struct.field(pytree_node=False, default=1)


def settle_rows(
    groups: tuple[Group, ...],
    weights: jax.Array,
    state: LazyState,
    ids: jax.Array,
    step: jax.Array,
    noise: Noise,
) -> tuple[jax.Array, LazyState]:
    """Settle the rows that a batch is about to look up, each once, at a step of the window.

    Args:
        groups: of the lazy tables.
        weights: their numbers.
        state: what they remember.
        ids: (batch, columns).
        step: its number in the window.
        noise: what was missed.
    """
    rows = jnp.concatenate([group.places(ids) + group.first_row for group in groups], axis=1)
    first, claim = _first_lookups(state.claim, rows)
    last = state.last.at[rows].get(mode="promise_in_bounds")
    catchup = state.missed.catchup(last, noise.momentum)
    velocity = state.velocity
    outputs = slice(groups[0].outputs.start, groups[-1].outputs.stop)
    # One draw for all groups: many small ones take far longer to compile.
    drawn = _draw(noise, velocity, (len(ids), outputs.stop - outputs.start))
    column = 0
    for group in groups:
        of_group = slice(column, column + len(group.columns))
        column = of_group.stop
        mask = first[:, of_group, None]
        part = jax.tree.map(lambda values: values[:, of_group, None], catchup)  # noqa: B023
        starts = group.starts(ids)
        waiting = None
        if velocity is not None:
            waiting = lax.optimization_barrier(gather(velocity, starts, group.width))
        of_rows = None
        if drawn is not None:
            own = slice(group.outputs.start - outputs.start, group.outputs.stop - outputs.start)
            of_rows = drawn[:, :, own].reshape(-1, *starts.shape, group.width)
        to_weights, to_velocity = _changes(part, waiting, of_rows)
        weights = scatter_add(weights, starts, jnp.where(mask, to_weights, 0.0))
        if velocity is not None:
            velocity = scatter_add(velocity, starts, jnp.where(mask, to_velocity, 0.0))
    # Always the step, but not before `last` was read: else the compiler copies the whole array.
    now = jnp.maximum(last, step)
    settled = state.last.at[rows].set(now, mode="promise_in_bounds")
    return weights, LazyState(velocity, settled, claim, state.missed)


def settle_weights(
    groups: tuple[Group, ...], weights: jax.Array, state: LazyState, noise: Noise
) -> jax.Array:
    """Every row's weights, settled in place; :func:`settle_velocity` has to follow.

    Two functions, for the compiler updates only one array of a loop in place, and two passes over
    both arrays in one program may be reordered, which takes a copy.
    """
    return _settle(groups, weights, state, noise, of_weights=True)


def settle_velocity(groups: tuple[Group, ...], state: LazyState, noise: Noise) -> LazyState:
    """Every row's velocity, with the draws of :func:`settle_weights`, and a new window of steps."""
    velocity = state.velocity
    if velocity is not None:
        velocity = _settle(groups, velocity, state, noise, of_weights=False)
    last = jnp.zeros_like(state.last)
    return LazyState(velocity, last, state.claim, MissedNoise.nothing())


def _settle(
    groups: tuple[Group, ...],
    buffer: jax.Array,
    state: LazyState,
    noise: Noise,
    of_weights: bool,
) -> jax.Array:
    keys = jax.random.split(noise.key, len(groups))
    for key, group in zip(keys, groups, strict=True):
        buffer = _settle_group(group, buffer, state, noise.replace(key=key), of_weights)
    return buffer


def _settle_group(
    group: Group, buffer: jax.Array, state: LazyState, noise: Noise, of_weights: bool
) -> jax.Array:
    """By blocks of rows."""
    per_block = max(1, min(group.rows, BLOCK // group.width))
    blocks, rest = divmod(group.rows, per_block)

    def settle(index: jax.Array | int, buffer: jax.Array, rows: int) -> jax.Array:
        start = group.start + index * per_block * group.width

        def block_of(values: jax.Array) -> jax.Array:
            block = lax.dynamic_slice(values, (start,), (rows * group.width,))
            return block.reshape(rows, group.width)

        first_row = group.first_row + index * per_block
        last = lax.dynamic_slice(state.last, (first_row,), (rows,))
        catchup = state.missed.catchup(last, noise.momentum)
        of_rows = jax.tree.map(lambda values: values[:, None], catchup)
        drawn = _draw(
            noise.replace(key=jax.random.fold_in(noise.key, index)),
            state.velocity,
            (rows, group.width),
        )
        old = block_of(buffer)
        waiting = None
        if state.velocity is not None:
            waiting = block_of(state.velocity) if of_weights else old
        to_weights, to_velocity = _changes(of_rows, waiting, drawn)
        new = old + (to_weights if of_weights else to_velocity)
        return lax.dynamic_update_slice(buffer, new.ravel(), (start,))

    buffer = lax.fori_loop(0, blocks, lambda i, b: settle(i, b, per_block), buffer)
    return settle(blocks, buffer, rest) if rest else buffer


def _draw(noise: Noise, velocity: jax.Array | None, shape: tuple[int, ...]) -> jax.Array | None:
    """Normals of one step's size: (2, ...) for velocity and weight, (1, ...) for plain SGD."""
    if noise.size is None:
        return None
    count = 1 if velocity is None else 2
    normals = normal(noise.key, count * math.prod(shape), noise.draws).reshape(count, *shape)
    return lax.optimization_barrier(noise.size * normals)


def _changes(
    catchup: Catchup, waiting: jax.Array | None, drawn: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """What catching up adds to weights and to velocities; the latter is unused by plain SGD."""
    to_weights = to_velocity = jnp.float32(0)
    l21, l22 = catchup.weight
    if waiting is not None:
        to_weights = -catchup.drift * waiting
        to_velocity = (catchup.decay - 1.0) * waiting
    if drawn is not None and waiting is None:
        to_weights = jnp.sqrt(l21**2 + l22**2) * drawn[0]
    elif drawn is not None:
        to_weights += l21 * drawn[0] + l22 * drawn[1]
        to_velocity += catchup.velocity * drawn[0]
    return to_weights, to_velocity


def _first_lookups(claim: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Which lookup of each row speaks for it, (batch, columns) booleans, and the claims, reset.

    The largest index wins, not the one that happens to be written last.
    """
    mine = jnp.arange(rows.size, dtype=jnp.int32).reshape(rows.shape)
    claim = claim.at[rows].max(mine, mode="promise_in_bounds")
    winner = claim.at[rows].get(mode="promise_in_bounds")
    # Always -1, but not before the winner was read: else the compiler copies the whole array.
    cleared = jnp.minimum(winner, -1)
    return winner == mine, claim.at[rows].set(cleared, mode="promise_in_bounds")
