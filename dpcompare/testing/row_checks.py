"""Checks that each row's label is randomized, and by randomness of its own."""

import numpy as np

from dpcompare.mechanism import Mechanism
from dpcompare.randomness import numpy_generator
from dpcompare.tasks import Task
from dpcompare.testing.claims import accepted, label_claim, tasks_of
from dpcompare.testing.confidence import Array, clopper_pearson
from dpcompare.testing.label_samples import ROWS, Draw, draw, draw_of, stored_columns
from dpcompare.testing.outcome import Check
from dpcompare.testing.subject import Subject

ERROR = 1e-9
"""The chance that a check fails a mechanism that keeps its promise."""

FEW_ROWS, DRAWS = 500, 600
"""Rows that are looked at one by one, and releases of them."""

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
COMMON_VALUES = 8

LOOKS = 1000
"""More than there are thresholds, signs, columns and tasks, which share the chance of an error."""

SLACK = 1.1
"""On a bound of sums, for means that are estimated."""


def check_every_row_keeps_the_claim(subject: Subject) -> str:
    """No single row shows its label better than claimed, the first and the last one included."""
    task = min(tasks_of(subject), key=lambda task: task.classes)
    mechanism = _at_epsilon_one(subject, task)
    claim = label_claim(mechanism, subject.schedule())
    rng = numpy_generator("labels of rows to check one by one", task.name)
    true = rng.integers(0, task.classes, (DRAWS, FEW_ROWS))
    seen = [stored_columns(draw_of(mechanism, task, row, i)) for i, row in enumerate(true)]
    names = [name for name in seen[0] if all(name in one for one in seen)]
    worst, looked_at = 0.0, max(1, len(names)) * FEW_ROWS
    for name in names:
        events = _events(np.nan_to_num(np.stack([one[name] for one in seen]), nan=1e300))
        error = ERROR / (looked_at * len(events) * task.classes**2)
        for event in events:
            bounds = [
                clopper_pearson(np.sum(event & mine, axis=0), np.sum(mine, axis=0), error / 2)
                for mine in (true == label for label in range(task.classes))
            ]
            for one, (low, _) in enumerate(bounds):
                for other, (_, high) in enumerate(bounds):
                    proved = np.log(np.maximum(low - claim.delta, 1e-300)) - np.log(high)
                    row = int(np.argmax(proved))
                    assert one == other or proved[row] <= claim.epsilon, (
                        f"{name} of row {row} (of {FEW_ROWS}) tells label {one} from {other} on "
                        f"{task.name} with an epsilon of at least {proved[row]:.2f}; "
                        f"{claim.epsilon:.2f} is claimed: is this row randomized like the others?"
                    )
                    worst = max(worst, float(proved[row]))
    return f"{FEW_ROWS} rows, {DRAWS} releases of each, prove epsilon {worst:.2f} at most"


def _events(values: Array) -> list[np.ndarray]:
    """Booleans, shaped like the values, (draws, rows): thresholds, and the most common values."""
    distinct, counts = np.unique(values, return_counts=True)
    common = distinct[np.argsort(-counts, kind="stable")[:COMMON_VALUES]]
    below = [values <= t for t in np.unique(np.quantile(values, QUANTILES, method="nearest"))]
    return [*below, *(~event for event in below), *(values == value for value in common)]


def check_rows_share_no_randomness(subject: Subject) -> str:
    """Labels at no distance from each other are randomized by the same draw."""
    largest = 0.0
    for task in tasks_of(subject):
        mechanism = _at_epsilon_one(subject, task)
        label_claim(mechanism, subject.schedule())
        one, other, third = (draw(mechanism, task, ROWS, seed) for seed in range(1, 4))
        columns = [stored_columns(drawn) for drawn in (one, other, third)]
        for name in columns[0]:
            if name in columns[1] and name in columns[2]:
                a, b, c = (np.nan_to_num(column[name], nan=1e300) for column in columns)
                largest = max(largest, _largest_share(one, a, b, c, f"{name} on {task.name}"))
    return f"over {ROWS:,} labels the largest correlation at any distance is {largest:.3f}"


def _largest_share(drawn: Draw, first: Array, second: Array, third: Array, where: str) -> float:
    """The largest correlation between rows at any distance, if none is too large.

    What differs between two releases of the same labels is noise, whatever else a row holds. A flip
    moves small labels up and large ones down, so noise is looked at with both signs.
    """
    small = drawn.labels <= np.mean(drawn.labels)
    largest = 0.0
    for threshold in np.unique(np.quantile(third, (0.25, 0.5, 0.75), method="nearest")):
        noise = (first <= threshold).astype(float) - (second <= threshold)
        for label in np.unique(drawn.labels):
            mine = drawn.labels == label
            noise[mine] -= noise[mine].mean()
        for signed in (noise, np.where(small, noise, -noise)):
            largest = max(largest, _correlation(signed, drawn.labels, where))
    return largest


def _correlation(noise: Array, labels: np.ndarray, where: str) -> float:
    """Of independent noise the sum of products at a distance is a martingale of small variance.

    It is bounded by Freedman (Annals of Probability 3, 1975).
    """
    most = max(float(np.mean(noise[labels == label] ** 2)) for label in np.unique(labels))
    total = float(np.sum(noise**2))
    if total < 1:
        return 0.0
    sums = _products_at_all_distances(noise)
    log_error = np.log(2 * len(noise) / (ERROR / LOOKS))
    bound = SLACK * (log_error / 3 + np.sqrt(log_error**2 / 9 + 2 * log_error * total * most))
    distance = 1 + int(np.argmax(np.abs(sums)))
    worst = float(np.abs(sums).max())
    assert worst <= bound, (
        f"{where}: the noise of rows that lie {distance:,} apart is correlated by "
        f"{worst / total:.3f}; independent noise stays below {bound / total:.3f}. Rows that "
        "share their randomness tell of each other's labels"
    )
    return worst / total


def _products_at_all_distances(noise: Array) -> Array:
    """``sum_i noise[i] noise[i + k]`` for k = 1, ..., n - 1."""
    size = 1 << (2 * len(noise) - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(noise, size)) ** 2
    return np.fft.irfft(spectrum, size)[1 : len(noise)]


def _at_epsilon_one(subject: Subject, task: Task) -> Mechanism:
    """At epsilon 1, which every task of a subject accepts."""
    return next(iter(dict(accepted(subject, task, (1.0,))).values()))


CHECKS: tuple[Check, ...] = (check_every_row_keeps_the_claim, check_rows_share_no_randomness)
