"""The largest batch that fits a given memory, by compiling alone: nothing is allocated or run.

What must fit is what the compiled step needs: parameters, all other state, one batch and
temporaries. Variants made by JAX only; for others nobody knows the need without running out of it.

    python benchmarks/largest_batch.py --cells large/598 --gigabytes .5 1 2 4
"""

import argparse
import bisect
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jax_variant import JaxVariant
from registry import FAMILIES, HERE, load
from steps import tell, write
from workload import Cell

GRID = sorted([2**power for power in range(21)] + [3 * 2**power for power in range(19)])
COLUMNS = ("variant", "model", "width", "budget_gb", "largest_batch", "needed_bytes")
NAMES = tuple(name for family in FAMILIES if not family.peers for name in family.names)


def main() -> None:
    """Parse the arguments, search, write after each variant."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", nargs="+", default=["large/598", "small/598", "small/128"])
    parser.add_argument("--variants", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--gigabytes", nargs="+", type=float, default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for cell in (Cell.parse(f"{text}/1") for text in options.cells):
        for name in options.variants:
            try:
                need = needed(name, cell)
                found = [(budget, *largest(need, budget * 1e9)) for budget in options.gigabytes]
            except Exception as error:
                tell(f"LEFT OUT: {name} in {cell}: {type(error).__name__}: {error}")
                continue
            for budget, batch, size in found:
                values = (name, cell.model, cell.width, budget, batch, size)
                rows.append(dict(zip(COLUMNS, values, strict=True)))
                print(
                    f"{name:30}{cell.model:>7}{cell.width:5}{budget:6g} GB{batch:10,}", flush=True
                )
            write(options.out / "largest_batch.csv", COLUMNS, rows)
    if not rows:
        sys.exit("no variant could be compiled")


def needed(name: str, cell: Cell) -> Callable[[int], int]:
    """The bytes that a variant needs, by batch size."""
    make = load(name)

    @cache
    def bytes_of(batch: int) -> int:
        variant = make(cell.with_batch(batch))
        assert isinstance(variant, JaxVariant)
        return variant.needed_bytes()

    return bytes_of


def largest(need: Callable[[int], int], budget: float) -> tuple[int, int | None]:
    """The largest batch of the grid whose need is within the budget, and that need; 0 for none.

    The need grows with the batch, so bisection finds it; the grid has two sizes per doubling.
    """
    index = bisect.bisect_right(GRID, budget, key=need)
    return (GRID[index - 1], need(GRID[index - 1])) if index else (0, None)


if __name__ == "__main__":
    main()
