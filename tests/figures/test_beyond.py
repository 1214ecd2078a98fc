"""Marks of what lies beyond an axis."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from dpcompare.figures.axes import log_places, text_width
from dpcompare.figures.beyond import marks, room, with_beyond
from dpcompare.metric_sets import METRICS

EPSILONS = [0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 50.0]
WIDTH = 370.0


def rows(bad: dict[str, list[float]], constant: float, good: float) -> pd.DataFrame:
    made = [
        ("curve", label, epsilon, value)
        for label, values in bad.items()
        for epsilon, value in zip(EPSILONS, values, strict=True)
    ]
    made += [("uninformed", "constant", np.nan, constant), ("best possible", "best", np.nan, good)]
    frame = pd.DataFrame(made, columns=["kind", "label", "epsilon", "mean"])
    return frame.assign(low=frame["mean"], high=frame["mean"])


@pytest.mark.parametrize(("metric", "sign"), [("log_loss", 1), ("d2", -1)])
def test_every_value_outside_is_written_once_and_marks_do_not_touch(metric: str, sign: int) -> None:
    rng = np.random.default_rng(1)
    bad = {f"curve {k}": list(sign * rng.uniform(2, 30, len(EPSILONS))) for k in range(6)}
    bad["good"] = [sign * -0.05] * len(EPSILONS)
    side = "above" if sign > 0 else "below"
    panel = with_beyond(rows(bad, 0.0, sign * -0.1), METRICS[metric])
    assert panel[f"{side}_axis"].sum() == 42
    marked = marks(panel, METRICS[metric], side, "epsilon", WIDTH)  # type: ignore[arg-type]
    assert sorted(marked["mean"]) == sorted(panel.loc[panel[f"{side}_axis"], "mean"])
    place = dict(zip(EPSILONS, log_places(EPSILONS, WIDTH)[1], strict=True))
    for _, row in marked.groupby("row"):
        starts = sorted(
            (place[e] - 2, place[e] + 4 + text_width(t))
            for e, t in zip(row["epsilon"], row["text"], strict=True)
        )
        assert all(end < start for (_, end), (start, _) in pairwise(starts))
    for _, column in marked.groupby("epsilon"):  # the least extreme is nearest to the axis
        ordered = column.sort_values("row")["mean"].abs()
        assert ordered.is_monotonic_increasing
    other = "below" if sign > 0 else "above"
    assert marks(panel, METRICS[metric], other, "epsilon", WIDTH).empty  # type: ignore[arg-type]


def test_room_is_as_high_as_the_rows() -> None:
    assert room(pd.DataFrame({"row": []})) == 0
    assert room(pd.DataFrame({"row": [0, 2, 1]})) == pytest.approx(30 / 72)


def test_nothing_is_beyond_where_nothing_is_known() -> None:
    panel = rows({"x": [np.nan] * len(EPSILONS)}, 1.0, 0.9).iloc[: len(EPSILONS)]
    marked = with_beyond(panel, METRICS["log_loss"])
    assert not marked[["above_axis", "below_axis"]].any(axis=None)
