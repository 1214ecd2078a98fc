"""How a step updates the embedding tables: only what a batch touches, and noise in place.

Small tables are updated eagerly: their noise is drawn at every step, by blocks, into the buffer
itself. Tables much larger than a batch are lazy (:mod:`dpcompare.lazy_tables`). Which are which is
decided by their size before training, from public numbers. Optimizers whose update of a number is
not linear in its gradient (Adam, Yogi, Adagrad, RMSProp) need every number at every step, so
they take the eager path with a dense gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpcompare.embeddings import Buffers, EmbeddingTables, Group
from dpcompare.lazy_tables import LazyState, Noise, settle_rows
from dpcompare.noise import add_gaussian_in_place
from dpcompare.optimizers import LINEAR, OPTIMIZERS, LazyNoise

LAZY_ABOVE = 2.0
"""Rows of a table, in expected batches, from which lazy noise is faster than noise at each step."""


class TableState(NamedTuple):
    """The tables while they are trained.

    Attributes:
        weights: the buffers of the eager and of the lazy tables.
        optimizer: of the eager tables: the velocity under momentum, none for plain SGD, an
            optax state otherwise.
        lazy: what the lazy tables remember; None if there are none.
    """

    weights: Buffers
    optimizer: Any
    lazy: LazyState | None


@dataclass(frozen=True)
class TableUpdates:
    """The choice of paths; compared by value, a part of what a compiled step depends on.

    Attributes:
        tables: the shape of the store.
        optimizer: one of OPTIMIZERS.
        eager: how many of the tables, smallest first, are updated eagerly.
    """

    tables: EmbeddingTables
    optimizer: str
    eager: int

    @classmethod
    def choose(
        cls,
        tables: EmbeddingTables,
        optimizer: str,
        noisy: bool,
        batch_size: int,
        lazy_noise: LazyNoise = "auto",
        weight_decay: float = 0.0,
    ) -> "TableUpdates":
        """Lazy are tables of more than LAZY_ABOVE expected batches of rows, where that is exact.

        Without noise plain SGD has nothing to catch up with, so it needs no lazy tables. Weight
        decay changes every number at every step, which the lazy recurrence does not know.
        """
        exact = optimizer in LINEAR and (noisy or optimizer != "sgd") and weight_decay == 0
        if not exact or lazy_noise == "never":
            return cls(tables, optimizer, len(tables.sizes))
        limit = LAZY_ABOVE * batch_size if lazy_noise == "auto" else 0
        return cls(tables, optimizer, sum(size <= limit for size in tables.sizes))

    @property
    def lazy(self) -> int:
        """How many tables are lazy."""
        return len(self.tables.sizes) - self.eager

    def start(self, store: jax.Array, momentum: jax.Array | float) -> TableState:
        """The state of the first step, from the whole store."""
        # Empty buffers may be one and the same, which must not be donated twice.
        weights = tuple(
            part if part.size else jnp.array(part) for part in self.tables.cut(store, self.eager)
        )
        optimizer: Any = None
        if self.optimizer == "momentum":
            optimizer = jnp.zeros_like(weights[0])
        elif self.optimizer != "sgd":
            optimizer = OPTIMIZERS[self.optimizer](momentum).init(weights[0])
        rows = sum(self.tables.sizes[table] for table in self.tables.order[self.eager :])
        lazy = LazyState.start(weights[1], rows, self.optimizer) if self.lazy else None
        return TableState(weights, optimizer, lazy)

    def before_lookup(
        self, state: TableState, ids: jax.Array, step: jax.Array, noise: Noise
    ) -> TableState:
        """Settle what a batch is about to look up.

        Args:
            state: the tables.
            ids: (batch, columns).
            step: the step's number in its window.
            noise: of the lazy tables.
        """
        if state.lazy is None:
            return state
        eager, lazy = state.weights
        lazy, memory = settle_rows(self.lazy_groups, lazy, state.lazy, ids, step, noise)
        return TableState((eager, lazy), state.optimizer, memory)

    def after_step(
        self,
        state: TableState,
        add_gradients: Callable[[Buffers, jax.Array], Buffers],
        step: jax.Array,
        rate: jax.Array,
        noise: Noise,
        decay: jax.Array | None = None,
    ) -> TableState:
        """Make a step's update.

        Args:
            state: the tables, of which every row that was looked up is settled.
            add_gradients: adds a factor times the mean gradient to buffers.
            step: the step's number in its window.
            rate: the learning rate.
            noise: of the eager tables.
            decay: the weight decay, only where no table is lazy.
        """
        eager, lazy = state.weights
        optimizer, memory = state.optimizer, state.lazy
        shrunk = eager if decay is None else eager * (1.0 - rate * decay)
        # Where each buffer's gradients go: into the velocity, a dense gradient, or the weights.
        targets = [shrunk, lazy]
        if self.optimizer == "momentum":
            targets[0] = self._noised(optimizer, noise, decay=noise.momentum)
        elif self.optimizer != "sgd":
            targets[0] = jnp.zeros_like(eager)
        if decay is not None and self.optimizer != "sgd":
            targets[0] += decay * eager
        if memory is not None and memory.velocity is not None:
            targets[1] = memory.velocity
        factor = -rate if self.optimizer == "sgd" else jnp.float32(1)
        first, second = add_gradients((targets[0], targets[1]), factor)

        if self.optimizer == "sgd":
            eager = self._noised(first, noise, scale=rate)
        elif self.optimizer == "momentum":
            optimizer = first
            eager = eager - rate * first
        else:
            gradient = self._noised(first, noise)
            update, optimizer = OPTIMIZERS[self.optimizer](noise.momentum).update(
                gradient, optimizer, eager
            )
            eager = eager - rate * update
        if memory is not None:
            missed = memory.missed.after_step(step, rate, noise.momentum)
            if memory.velocity is None:
                lazy, memory = second, memory._replace(missed=missed)
            else:
                memory = memory._replace(velocity=second, missed=missed)
        return TableState((eager, lazy), optimizer, memory)

    @property
    def lazy_groups(self) -> tuple[Group, ...]:
        """The lazy tables, by width."""
        groups = self.tables.groups(self.tables.cut_sizes(self.eager))
        return tuple(group for group in groups if group.buffer == 1)

    @staticmethod
    def _noised(
        buffer: jax.Array,
        noise: Noise,
        decay: jax.Array | float = 1.0,
        scale: jax.Array | float = 1.0,
    ) -> jax.Array:
        if noise.size is None:
            return decay * buffer
        return add_gaussian_in_place(noise.key, buffer, scale * noise.size, decay, noise.draws)
