"""What privacy costs each curve at each epsilon."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from dpcompare.metric_sets import MetricSet
from dpcompare.verdict.references import ratio, references_by_size, size_key


@dataclass(frozen=True)
class Cost:
    """What one curve loses at one epsilon, on the test rows. Shares, nan where not known.

    Attributes:
        label, epsilon: which.
        auc_gap: (1 - AUC) over that of the non-private model, minus 1.
        gain_lost: share of the non-private model's gain in loss over the best constant prediction
            that is lost: 0 is as good as non-private, 1 as bad as the constant.
    """

    label: str
    epsilon: float
    auc_gap: float
    gain_lost: float


def find_costs(summary: pd.DataFrame, metrics: MetricSet) -> Iterator[Cost]:
    """Of every private row that has a score and a non-private model to compare it with."""
    references, loss = references_by_size(summary), metrics.selection
    for _, row in summary[summary["epsilon"] < math.inf].iterrows():
        free = references.get(size_key(row["examples"]))
        if free is None or math.isnan(row[loss]):
            continue
        gap = math.nan
        if "auc" in metrics.names:
            gap = ratio(1 - row["auc"], 1 - free["auc"]) - 1
        gain = row[f"constant_{loss}"] - free[loss]
        lost = ratio(row[loss] - free[loss], gain) if gain > 0 else math.nan
        yield Cost(str(row["label"]), float(row["epsilon"]), gap, lost)
