"""The non-private models that private ones are compared with."""

import math
from typing import Any

import pandas as pd

from dpcompare.metric_sets import metric_set


def references_by_size(summary: pd.DataFrame) -> dict[float, pd.Series]:
    """The non-private model of each number of training rows: the best by validation loss."""
    loss = f"validation_{metric_set(summary['task'].iloc[0]).selection}"
    free = summary[(summary["epsilon"] == math.inf) & summary[loss].notna()].sort_values(
        loss, kind="stable"
    )
    best = free.drop_duplicates("examples")
    return {size_key(row["examples"]): row for _, row in best.iterrows()}


def size_key(examples: Any) -> float:
    """A number of rows as a key; nan would not equal itself."""
    return -1.0 if pd.isna(examples) else float(examples)


def ratio(above: float, below: float) -> float:
    """Their quotient; nan over 0."""
    return above / below if below else math.nan
