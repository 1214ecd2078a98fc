"""Opacus as it comes: per-example gradients by hooks, in physical batches that fit memory."""

from functools import partial

from opacus.grad_sample import GradSampleModule  # type: ignore[import-not-found]
from opacus.optimizers import DPOptimizer  # type: ignore[import-not-found]
from torch.nn import functional  # type: ignore[import-not-found]
from workload import CLIP_NORM, NOISE_MULTIPLIER, Batch, Cell

from peers.torch_model import Network, Step, TorchVariant, descent

PHYSICAL_BYTES = 2.5e9


def build(cell: Cell) -> Step:
    """A private step: clipped sums of physical batches, then noise and one update."""
    network = GradSampleModule(Network(cell), loss_reduction="mean")
    optimizer = DPOptimizer(
        descent(network),
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=cell.batch,
        loss_reduction="mean",
    )
    physical = max(1, min(cell.batch, int(PHYSICAL_BYTES / (4 * cell.parameters))))

    def step(batch: Batch) -> None:
        for start in range(0, cell.batch, physical):
            part = Batch(*(column[start : start + physical] for column in batch))
            optimizer.signal_skip_step(do_skip=start + physical < cell.batch)
            logits = network(part.ids, part.numeric)
            functional.binary_cross_entropy_with_logits(logits, part.labels).backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


VARIANTS = {"opacus_hooks": partial(TorchVariant, build=build)}
