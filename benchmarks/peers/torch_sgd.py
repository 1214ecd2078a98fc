"""Ordinary training in torch, with dense or with sparse gradients of the embeddings."""

from functools import partial

from torch.nn import functional  # type: ignore[import-not-found]
from workload import Batch, Cell

from peers.torch_model import Network, Step, TorchVariant, descent


def build(cell: Cell, sparse: bool) -> Step:
    """A step of stochastic gradient descent."""
    network = Network(cell, sparse)
    optimizer = descent(network)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        logits = network(batch.ids, batch.numeric)
        functional.binary_cross_entropy_with_logits(logits, batch.labels).backward()
        optimizer.step()

    return step


VARIANTS = {
    "torch_dense": partial(TorchVariant, build=partial(build, sparse=False)),
    "torch_sparse": partial(TorchVariant, build=partial(build, sparse=True)),
}
