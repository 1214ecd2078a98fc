"""Which metrics each task has, and how they are shown and compared; nothing heavy is imported."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dpcompare.catalog import near_miss
from dpcompare.errors import UsageError


@dataclass(frozen=True)
class Metric:
    """How a metric is shown.

    Attributes:
        title: its name on axes and in tables.
        better: which values are better; "one" where 1 is right and both sides are wrong.
        uninformed: its value for the best prediction that ignores the features; None where that
            depends on the labels.
        reference: what that value is called in figures.
    """

    title: str
    better: Literal["higher", "lower", "one"]
    uninformed: float | None
    reference: str


METRICS = {
    "auc": Metric("AUC", "higher", 0.5, "chance"),
    "average_precision": Metric("average precision", "higher", None, "chance"),
    "log_loss": Metric("log loss", "lower", None, "base rate"),
    "normalized_entropy": Metric("normalized entropy", "lower", 1.0, "base rate"),
    "poisson_loss": Metric("Poisson loss", "lower", None, "constant mean"),
    "deviance": Metric("Poisson deviance", "lower", None, "constant mean"),
    "d2": Metric("D²", "higher", 0.0, "constant mean"),
    "calibration": Metric("calibration", "one", 1.0, "calibrated"),
}


@dataclass(frozen=True)
class MetricSet:
    """The metrics of one kind of task.

    Attributes:
        names: keys of METRICS, the one that a study draws unless it names another first.
        selection: the loss by which candidates are chosen, on validation rows.
        relative: that loss beside the one of the best constant prediction, whose own value is the
            metric's `uninformed`.
        constant: what the best constant prediction is called.
    """

    names: tuple[str, ...]
    selection: str
    relative: str
    constant: str

    @property
    def main(self) -> str:
        """The metric that a study draws unless it names another."""
        return self.names[0]

    def worse_than_constant(self, value: float) -> bool:
        """Whether a value of the relative metric is worse than that of the best constant."""
        metric = METRICS[self.relative]
        assert metric.uninformed is not None
        excess = value - metric.uninformed
        return excess < 0 if metric.better == "higher" else excess > 0


BINARY = MetricSet(
    ("auc", "average_precision", "log_loss", "normalized_entropy", "calibration"),
    selection="log_loss",
    relative="normalized_entropy",
    constant="base rate",
)
COUNT = MetricSet(
    ("poisson_loss", "deviance", "d2", "calibration"),
    selection="poisson_loss",
    relative="d2",
    constant="constant mean",
)
_OF_TASK = {"pctr": BINARY, "pcvr": BINARY, "pconvs": COUNT}


def metric_set(task: str) -> MetricSet:
    """The metrics of the task called `task`.

    Raises:
        UsageError: there is no such task.
    """
    if task not in _OF_TASK:
        known = ", ".join(_OF_TASK)
        raise UsageError(f"task {task!r} is unknown{near_miss(task, _OF_TASK)}; there are: {known}")
    return _OF_TASK[task]


def constant_scores(scores: Mapping[str, Any], metrics: MetricSet) -> dict[str, float]:
    """What the best constant prediction scores, told from the scores of another on the same rows.

    Normalized entropy is log loss over that of the base rate. D2 is 1 minus deviance over that of
    the mean, and Poisson loss differs from half the deviance by a constant of the labels. The
    average precision of a random order is the share of positives.

    Args:
        scores: metrics of any predictions, with `rows` and `positives` or `total`.
        metrics: of the task.

    Returns:
        Every metric of the task, nan where the scores do not tell.
    """
    known = {name: METRICS[name].uninformed for name in metrics.names}
    found = {name: math.nan if value is None else value for name, value in known.items()}

    def score(name: str) -> float:
        value = scores.get(name)
        return math.nan if value is None else float(value)

    if metrics is COUNT:
        unexplained = 1 - score("d2")
        deviance = score("deviance") / unexplained if unexplained else math.nan
        found["deviance"] = deviance
        found["poisson_loss"] = score("poisson_loss") + (deviance - score("deviance")) / 2
    else:
        entropy = score("normalized_entropy")
        found["log_loss"] = score("log_loss") / entropy if entropy else math.nan
        found["average_precision"] = score("positives") / score("rows")
    return found
