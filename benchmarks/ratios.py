"""Which variants are set against each other, and the ratios of one run."""

import statistics
from dataclasses import dataclass
from typing import Any

from workload import Cell


@dataclass(frozen=True)
class Pair:
    """Two variants whose speeds are compared.

    Attributes:
        numerators: the one with the highest median speed counts.
        denominator: what it is compared with.
        required: the smallest acceptable median ratio, by "model/width/batch", or by "" for
            everywhere; the first that fits holds.
    """

    numerators: tuple[str, ...]
    denominator: str
    required: dict[str, float]

    def required_in(self, cell: Cell) -> float | None:
        """The smallest acceptable median ratio in a cell; None where nothing is required."""
        for key in (str(cell), ""):
            if key in self.required:
                return self.required[key]
        return None


OURS = ("ours_eager", "ours_lazy")
PAIRS = (
    Pair(
        ("ours_lazy",),
        "non_private_dense",
        {"large/598/1024": 2.0, "large/598/4096": 1.05, "large/598/16384": 0.97},
    ),
    Pair(OURS, "non_private_dense", {}),
    Pair(OURS, "non_private_sparse", {"small/598/1024": 0.80, "small/598/4096": 0.88}),
    Pair(("ours_without_noise",), "non_private_sparse", {"": 0.85}),
    Pair(("ours_without_noise",), "non_private_dense", {}),
    Pair(("ours_without_noise",), "two_pass_ghost_without_noise", {}),
    Pair(OURS, "two_pass_ghost", {}),
    Pair(("ours_lazy",), "ours_eager", {}),
    Pair(("ours_lazy_momentum",), "ours_eager_momentum", {"large/598/1024": 3.0}),
    Pair(("ours_lazy_momentum",), "ours_lazy", {}),
    Pair(OURS, "naive", {}),
    Pair(OURS, "opacus_ghost", {"large/598/1024": 10.0, "": 2.3}),
    Pair(OURS, "opacus_hooks", {}),
    Pair(OURS, "jax_privacy", {}),
    Pair(("non_private_sparse",), "torch_sparse", {}),
    Pair(OURS, "matmul_floor", {}),
    Pair(("non_private_sparse",), "matmul_floor", {}),
    Pair(("non_private_dense",), "matmul_floor", {}),
    Pair(("opacus_ghost",), "matmul_floor", {}),
    Pair(("two_pass_ghost_without_noise",), "non_private_dense", {}),
    Pair(("non_private_dense",), "torch_dense", {}),
)

COLUMNS = (
    "numerator",
    "denominator",
    "model",
    "width",
    "numerator_batch",
    "denominator_batch",
    "ratio_median",
    "ratio_min",
    "ratio_max",
    "repetitions",
    "required_minimum",
)


@dataclass
class Measured:
    """What one variant did in one cell.

    Attributes:
        cell: with the batch size truly used.
        temp_bytes: of the compiled step, None where nothing is compiled.
        seconds: per step, by repetition.
        peak_rss: in bytes, so far.
    """

    cell: Cell
    temp_bytes: int | None
    seconds: dict[int, float]
    peak_rss: int = 0

    def speed(self, repetition: int) -> float:
        """Examples per second in one repetition."""
        return self.cell.batch / self.seconds[repetition]

    @property
    def speeds(self) -> list[float]:
        """Examples per second in every repetition that it took part in."""
        return [self.speed(repetition) for repetition in self.seconds]


def ratios(measured: dict[str, Measured]) -> list[dict[str, Any]]:
    """The rows of one cell: per repetition, so that what slows both sides cancels."""
    rows = []
    for pair in PAIRS:
        present = [name for name in pair.numerators if name in measured]
        if not present or pair.denominator not in measured:
            continue
        name = max(present, key=lambda n: statistics.median(measured[n].speeds))
        above, below = measured[name], measured[pair.denominator]
        shared = above.seconds.keys() & below.seconds.keys()
        values = [above.speed(repetition) / below.speed(repetition) for repetition in shared]
        row = (
            name,
            pair.denominator,
            above.cell.model,
            above.cell.width,
            above.cell.batch,
            below.cell.batch,
            *spread(values),
            len(values),
            pair.required_in(above.cell),
        )
        rows.append(dict(zip(COLUMNS, row, strict=True)))
    return rows


def spread(values: list[float]) -> tuple[float, float, float]:
    """Median, minimum, maximum."""
    return statistics.median(values), min(values), max(values)
