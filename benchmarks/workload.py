"""What every variant works on: the models, the batches and the settings of a step.

Only numpy, so that variants in other environments see the same shapes and the same batches.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

NUMERIC = 13
DEPTH = 4
LEARNING_RATE = 0.01
MOMENTUM = 0.9
CLIP_NORM = 1.0
NOISE_MULTIPLIER = 1.0
BATCHES = 3  # distinct batches, taken in turn, so that no step finds its rows in the cache

VOCABULARIES = {
    # 1,166 rows: to test the harness.
    "tiny": (
        29, 11, 160, 120, 6, 3, 60, 12, 3, 80, 50, 160, 30,
        3, 50, 100, 3, 40, 24, 3, 100, 3, 3, 60, 3, 50,
    ),
    # 57,387 rows, .89 million embedding parameters.
    "small": (
        1460, 583, 8000, 6000, 305, 24, 3000, 633, 3, 4000, 2500, 8000, 1500,
        27, 2500, 5000, 10, 2000, 1200, 4, 5000, 18, 15, 3000, 105, 2500,
    ),
    # 1,659,929 rows, 76.8 million embedding parameters.
    "large": (
        1460, 583, 473862, 103021, 305, 24, 12517, 633, 3, 20000, 5683, 390625, 3194,
        27, 14992, 255439, 10, 5652, 2173, 4, 329584, 18, 15, 20000, 105, 20000,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One place of the benchmark's grid.

    Attributes:
        model: one of `VOCABULARIES`.
        width: of each of the `DEPTH` dense layers.
        batch: examples per step.
    """

    model: str
    width: int
    batch: int

    @classmethod
    def parse(cls, text: str) -> "Cell":
        """The cell of "model/width/batch"; ValueError if there is none."""
        model, width, batch = text.split("/")
        if model not in VOCABULARIES:
            raise ValueError(f"no model {model!r}; there are: {', '.join(VOCABULARIES)}")
        return cls(model, int(width), int(batch))

    def __str__(self) -> str:
        return f"{self.model}/{self.width}/{self.batch}"

    def with_batch(self, batch: int) -> "Cell":
        """The same model with another batch size."""
        return replace(self, batch=batch)

    @property
    def tables(self) -> list[tuple[int, int]]:
        """(rows, width) of each embedding table; the width is int(2 rows^.25) as in the paper."""
        return [(rows, int(2 * rows**0.25)) for rows in VOCABULARIES[self.model]]

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each dense layer; the last one has one output."""
        inputs = NUMERIC + sum(width for _, width in self.tables)
        return list(pairwise([inputs, *[self.width] * DEPTH, 1]))

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        embeddings = sum(rows * width for rows, width in self.tables)
        return embeddings + sum((inputs + 1) * outputs for inputs, outputs in self.layers)


class Batch(NamedTuple):
    """A batch of examples, as arrays of any library.

    Attributes:
        ids: (batch, tables) int32, each within its table.
        numeric: (batch, NUMERIC) float32, finite.
        labels: (batch,) float32, 0 or 1.
    """

    ids: Any
    numeric: Any
    labels: Any


def batches(cell: Cell) -> list[Batch]:
    """The cell's batches; ids are log-uniform, so the first rows of each table are hit most."""
    rows = np.array(VOCABULARIES[cell.model])
    made = []
    for seed in range(BATCHES):
        rng = np.random.default_rng(seed)
        ids = np.exp(rng.random((cell.batch, rows.size)) * np.log(rows + 1)) - 1
        made.append(
            Batch(
                np.minimum(ids, rows - 1).astype(np.int32),
                np.log1p(rng.exponential(5, (cell.batch, NUMERIC))).astype(np.float32),
                (rng.random(cell.batch) < 0.25).astype(np.float32),
            )
        )
    return made
