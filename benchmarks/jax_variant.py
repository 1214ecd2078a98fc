"""A variant made of two JAX functions, compiled with its state donated."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import jax
import jax.numpy as jnp
from jax.stages import Compiled
from workload import Batch, Cell, batches

# As accurate as the peers: accelerators would otherwise multiply with fewer bits.
jax.config.update("jax_default_matmul_precision", "highest")

State = Any
Initial = Callable[[jax.Array], State]
Update = Callable[[State, Batch], State]


class JaxVariant:
    """Steps of `state = update(state, batch)`.

    Args:
        cell: what it works on.
        initial: the state (parameters and all else that lasts) from a key; traceable.
        update: one step; traceable.
    """

    def __init__(self, cell: Cell, initial: Initial, update: Update) -> None:
        self.cell, self.initial, self.update = cell, initial, update
        self._compiled: Compiled | None = None

    def compiled(self) -> Compiled:
        """The compiled step; made from shapes alone."""
        if self._compiled is None:
            state = jax.eval_shape(self.initial, jax.random.key(0))
            # The tables, not the batch, decide the cost of making one; shapes are what is needed.
            example = batches(self.cell.with_batch(1))[0]
            batch = jax.tree.map(
                lambda a: jax.ShapeDtypeStruct((self.cell.batch, *a.shape[1:]), a.dtype), example
            )
            self._compiled = jax.jit(self.update, donate_argnums=0).lower(state, batch).compile()
        return self._compiled

    def start(self) -> None:
        """Compile, allocate, make one step."""
        self.compiled()
        self._batches = cycle([jax.tree.map(jnp.asarray, batch) for batch in batches(self.cell)])
        self._state = jax.jit(self.initial)(jax.random.key(0))
        self.run(1)

    def run(self, steps: int) -> None:
        """Make so many steps and wait for the last."""
        for _ in range(steps):
            self._state = self.compiled()(self._state, next(self._batches))
        jax.block_until_ready(self._state)

    def temp_bytes(self) -> int | None:
        """Temporaries of the compiled step."""
        analysis = self.compiled().memory_analysis()
        return None if analysis is None else analysis.temp_size_in_bytes

    def needed_bytes(self) -> int:
        """State, one batch and temporaries of the compiled step; what is donated counts once."""
        sizes = self.compiled().memory_analysis()
        assert sizes is not None, "XLA tells no sizes on this platform"
        outputs = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
        return sizes.argument_size_in_bytes + outputs + sizes.temp_size_in_bytes
