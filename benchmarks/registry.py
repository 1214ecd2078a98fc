"""Which variants there are, and where: the names are known without importing any of them.

A family is a module with a dictionary ``VARIANTS: dict[str, Make]``. To add variants, write such a
module and name it here.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from workload import Cell

HERE = Path(__file__).resolve().parent
PEERS_PYTHON = HERE / ".peers" / "bin" / "python"


class Variant(Protocol):
    """One way to make a training step, for one cell. Making it must allocate nothing large."""

    def start(self) -> None:
        """Allocate the parameters, compile, and make one step."""

    def run(self, steps: int) -> None:
        """Make so many steps, one batch after the other, and wait until the last is done."""

    def temp_bytes(self) -> int | None:
        """What the compiled step needs beside its arguments; None where nothing is compiled."""


Make = Callable[[Cell], Variant]


@dataclass(frozen=True)
class Family:
    """The variants of one module.

    Attributes:
        module: below this folder.
        names: of its variants.
        peers: whether it runs in the peers' environment.
        largest_batch: per model, where a larger batch would take many seconds or gigabytes.
    """

    module: str
    names: tuple[str, ...]
    peers: bool = False
    largest_batch: Mapping[str, int] = field(default_factory=dict)


PER_EXAMPLE = {"small": 256, "large": 8}

FAMILIES = (
    Family("references.floor", ("matmul_floor",)),
    Family("references.non_private", ("non_private_dense",)),
    Family(
        "ours",
        (
            "non_private_sparse",
            "ours_without_noise",
            "ours_eager",
            "ours_lazy",
            "ours_eager_momentum",
            "ours_lazy_momentum",
        ),
    ),
    Family("references.two_pass_ghost", ("two_pass_ghost", "two_pass_ghost_without_noise")),
    Family(
        "references.naive",
        ("naive", "naive_without_noise", "naive_at_once_without_noise"),
        largest_batch=PER_EXAMPLE,
    ),
    Family("peers.torch_sgd", ("torch_dense", "torch_sparse"), peers=True),
    Family("peers.opacus_ghost", ("opacus_ghost",), peers=True),
    Family("peers.opacus_hooks", ("opacus_hooks",), peers=True, largest_batch=PER_EXAMPLE),
    Family("peers.jax_privacy_vmap", ("jax_privacy",), largest_batch=PER_EXAMPLE),
)

NAMES = tuple(name for family in FAMILIES for name in family.names)


def family_of(name: str) -> Family:
    """The family that has the variant of this name."""
    return next(family for family in FAMILIES if name in family.names)


def load(name: str) -> Make:
    """Import the variant's module and return its maker; ImportError where something is missing."""
    made: dict[str, Make] = importlib.import_module(family_of(name).module).VARIANTS
    return made[name]


def own_cell(name: str, cell: Cell) -> Cell:
    """The cell with the batch size that this variant can bear."""
    limit = family_of(name).largest_batch.get(cell.model, cell.batch)
    return cell.with_batch(min(cell.batch, limit))


def interpreter(name: str, peers_python: Path) -> Path:
    """The Python that runs the variant."""
    return peers_python if family_of(name).peers else Path(sys.executable)
