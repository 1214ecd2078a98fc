"""The network in torch, and a variant made of one Python function per step."""

from collections.abc import Callable
from itertools import cycle

import numpy as np
import torch  # type: ignore[import-not-found]
from torch import nn
from workload import LEARNING_RATE, Batch, Cell, batches

torch.set_num_threads(1)


class Network(nn.Module):
    """Embeddings, dense ReLU layers, one output."""

    def __init__(self, cell: Cell, sparse: bool = False) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(*shape, sparse=sparse) for shape in cell.tables)
        layers: list[nn.Module] = []
        for inputs, outputs in cell.layers:
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.tower = nn.Sequential(*layers[:-1])

    def forward(self, ids: torch.Tensor, numeric: torch.Tensor) -> torch.Tensor:
        """Log-odds, (batch,)."""
        rows = [table(ids[:, column]) for column, table in enumerate(self.tables)]
        return self.tower(torch.cat([numeric, *rows], dim=1))[:, 0]


Step = Callable[[Batch], None]


class TorchVariant:
    """Steps of a function that keeps its own state.

    Args:
        cell: what it works on.
        build: makes the step from the cell.
    """

    def __init__(self, cell: Cell, build: Callable[[Cell], Step]) -> None:
        self.cell, self.build = cell, build

    def start(self) -> None:
        """Make the network and one step."""
        self._batches = cycle([as_tensors(batch) for batch in batches(self.cell)])
        self._step = self.build(self.cell)
        self.run(1)

    def run(self, steps: int) -> None:
        """Make so many steps."""
        for _ in range(steps):
            self._step(next(self._batches))

    def temp_bytes(self) -> None:
        """Nothing is compiled."""


def as_tensors(batch: Batch) -> Batch:
    """The batch in torch; its embedding wants 64-bit ids."""
    return Batch(
        torch.from_numpy(batch.ids.astype(np.int64)),
        torch.from_numpy(batch.numeric),
        torch.from_numpy(batch.labels),
    )


def descent(network: nn.Module) -> torch.optim.Optimizer:
    """Stochastic gradient descent on all of the network."""
    return torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
