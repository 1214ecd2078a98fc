"""What the comparisons of a verdict do not contain."""

import math
from collections.abc import Iterator

import pandas as pd

from dpcompare.auc_error import sample_error_sentences
from dpcompare.summary import Records
from dpcompare.verdict.units import UNITS, unit_of

EQUAL_EPSILON = (
    "Equal epsilon is not equal privacy: for a whole-row mechanism (unit example) epsilon protects "
    "all of a row, for a label mechanism (unit label) only its label. Where features have to be "
    "protected too, only whole-row mechanisms count."
)


def limit_sentences(records: Records, summary: pd.DataFrame, compared: bool) -> Iterator[str]:
    """What stands beside every crossover: units, missing sides, and test-sample error."""
    yield EQUAL_EPSILON
    private = summary[(summary["epsilon"] < math.inf)]
    units = set(unit_of(private[private["n_seeds"] > 0]).values())
    if not compared:
        missing = [f"{name} mechanism" for unit, name in UNITS.items() if unit not in units]
        lack = (
            f"no {' and no '.join(missing)} has a score"
            if missing
            else ("none has the same epsilon, seeds and number of training rows as another")
        )
        yield f"No whole-row mechanism is compared with a label mechanism: {lack}."
        return
    yield (
        "Intervals are paired t intervals at 95%, over seeds, and hold at each epsilon by itself, "
        "not at all of them together."
    )
    yield from sample_error_sentences(records)
