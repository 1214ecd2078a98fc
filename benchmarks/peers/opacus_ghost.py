"""Opacus with ghost clipping: two backward passes, noise on every parameter."""

from functools import partial

from opacus.grad_sample import (  # type: ignore[import-not-found]
    GradSampleModuleFastGradientClipping,
)
from opacus.optimizers import (  # type: ignore[import-not-found]
    DPOptimizerFastGradientClipping,
)
from opacus.utils.fast_gradient_clipping_utils import (  # type: ignore[import-not-found]
    DPLossFastGradientClipping,
)
from torch import nn  # type: ignore[import-not-found]
from workload import CLIP_NORM, NOISE_MULTIPLIER, Batch, Cell

from peers.torch_model import Network, Step, TorchVariant, descent


def build(cell: Cell) -> Step:
    """A private step."""
    network = GradSampleModuleFastGradientClipping(
        Network(cell), max_grad_norm=CLIP_NORM, use_ghost_clipping=True, loss_reduction="mean"
    )
    optimizer = DPOptimizerFastGradientClipping(
        descent(network),
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=cell.batch,
        loss_reduction="mean",
    )
    loss = DPLossFastGradientClipping(
        network, optimizer, nn.BCEWithLogitsLoss(reduction="mean"), loss_reduction="mean"
    )

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        loss(network(batch.ids, batch.numeric), batch.labels).backward()
        optimizer.step()

    return step


VARIANTS = {"opacus_ghost": partial(TorchVariant, build=build)}
