"""Does a row add to the gradient sum what it may, and is the sum what it is said to be?"""

import jax
import jax.numpy as jnp
import numpy as np

from dpcompare.data.dataset import Features
from dpcompare.data.sampling import ABSENT, batch_draw
from dpcompare.errors import UsageError
from dpcompare.mechanism import Mechanism
from dpcompare.randomness import numpy_generator
from dpcompare.testing.norm_search import worst_norm
from dpcompare.testing.outcome import Check, NotApplicable
from dpcompare.testing.plain_step import mean_gradient, weigh
from dpcompare.testing.small_training import (
    BATCHES,
    SmallTraining,
    flat,
    one_table_a_column,
    release_generator,
    shared_tables,
)
from dpcompare.testing.subject import Subject, labels

ROUNDING = 1e-6
"""Of a product in float32, relative; a few roundings."""

STEP_ROUNDING = 1e-4
"""Of a sum of gradients in float32, relative to the sensitivity."""

SMALLEST_RATE = 1e-30
"""A learning rate at which float32 parameters stay where they are."""

SCALES = (0.0, 1e-3, 1.0, 1e3, 1e6, 1e18, 3e38)
"""Of the features of adversarial rows; the square of the last ones is infinite in float32."""


def check_weights_keep_the_sensitivity(subject: Subject) -> str:
    """No weight times its norm exceeds the declared sensitivity.

    Every float32 number near the sensitivity is tried, a grid elsewhere from 0 on (subnormal
    numbers too), and all neighbors of the worst.
    """
    worst_share, tried = 0.0, 0
    for epsilon in (1.0, 8.0):
        mechanism = _private(subject, epsilon)
        if mechanism is None:
            continue
        sensitivity = _sensitivity(mechanism)
        worst = worst_norm(mechanism, sensitivity)
        tried += worst.tried
        where = f"at epsilon {epsilon:g} the weight of a gradient of norm {worst.norm!r}"
        assert np.isfinite(worst.product), (
            f"{where} is {worst.weight:g}; weights are finite numbers"
        )
        worst_share = max(worst_share, worst.product / sensitivity)
        assert worst.product <= sensitivity * (1 + ROUNDING), (
            f"{where} is {worst.weight:g}, so it adds {worst.product:g} to the sum, "
            f"{worst.product / sensitivity:.6g} times the sensitivity of {sensitivity:g}"
        )
    return f"at most {worst_share:.7f} sensitivities at {tried / 1e6:.0f} million norms"


def check_weights_ignore_other_groups(subject: Subject) -> str:
    """The weight of a group does not depend on the norms of the others."""
    mechanism = _private(subject, 1.0)
    assert mechanism is not None, "it refuses the budget at which it accepts its tasks"
    sensitivity = _sensitivity(mechanism)
    rng = numpy_generator("norms to check weights with")
    norms = (sensitivity * np.exp(rng.uniform(-7, 7, 64))).astype(np.float32)
    norms[0] = sensitivity
    expected = weigh(mechanism, norms)
    half = np.arange(64) % 2 == 0
    companies = {
        "alone": [norms[place : place + 1] for place in range(64)],
        "in another order": [norms[::-1]],
        "with empty groups": [np.where(half, norms, 0.0), np.where(half, 0.0, norms)],
        "with huge groups": [np.where(half, norms, 1e18), np.where(half, 1e18, norms)],
        "in a smaller batch": [norms[:32], norms[32:]],
    }
    for company, batches in companies.items():
        for batch in batches:
            found = weigh(mechanism, batch.astype(np.float32))
            for norm, weight in zip(norms, expected, strict=True):
                again = found[batch == norm]
                assert np.allclose(again, weight, rtol=ROUNDING, atol=0), (
                    f"a group of norm {norm:g} weighs {weight:g} in one batch and {again[0]:g} "
                    f"{company}: one row changes what others add, without bound"
                )
    return f"{len(norms)} norms weigh the same in {len(companies)} other batches"


def check_step_is_the_plain_computation(subject: Subject) -> str:
    """A step equals one ordinary gradient per row, averaged, weighted, summed and divided.

    The divisor is the public expected number of groups. Batches of several chunks and of one, with
    padding, incomplete groups and rows that look up one table twice.
    """
    compared, largest = 0, 0.0
    for training in (shared_tables(subject), one_table_a_column(subject)):
        for error in _step_errors(training, steps=5):
            compared, largest = compared + 1, max(largest, error)
    return f"{compared} steps differ by at most {largest:.1e} of their size"


def _step_errors(training: SmallTraining, steps: int) -> list[float]:
    """How far each step but the first is from the plain one, relative to its size."""
    size = training.group_size
    draw = batch_draw(training.schedule, size, *BATCHES)
    (start,) = training.parameters_after(SMALLEST_RATE)
    sizes = [np.linalg.norm(mean_gradient(training, start, draw(step))) for step in range(steps)]
    largest = float(max(sizes))
    rate = 0.3 / largest if largest > 1e-20 else 1.0
    seen = training.parameters_after(rate, steps)
    errors = []
    for step in range(1, steps):
        before, after = flat(seen[step - 1]), flat(seen[step])
        expected = rate * mean_gradient(training, seen[step - 1], draw(step))
        error = np.abs(before - after - expected)
        # The parameters themselves are float32 numbers: a step resolves no more of them.
        resolved = 4e-7 * np.maximum(np.abs(before), np.abs(after))
        resolved += 2e-4 * np.max(np.abs(expected))
        rows = int(np.count_nonzero(draw(step) != ABSENT))
        assert np.all(error <= resolved), (
            f"step {step + 1} of task {training.task.name} with {rows} rows in "
            f"{len(draw(step)) // size} groups ({training.expected_groups:g} expected) moved the "
            f"parameters by {np.linalg.norm(before - after):.4g} instead of "
            f"{np.linalg.norm(expected):.4g}, and ended {np.linalg.norm(error):.2g} off"
        )
        errors.append(float(np.linalg.norm(error)) / max(float(np.linalg.norm(expected)), 1e-30))
    return errors


def check_one_row_moves_the_sum_within_the_sensitivity(subject: Subject) -> str:
    """A row replaced moves a step's sum by at most twice the sensitivity; one that leaves, by once.

    One that leaves a group of several rows counts as replaced. Rows of huge, tiny and infinite
    features with any label, in every pair; without noise.
    """
    training = shared_tables(subject)
    most_leaving = 1.0 if training.release.group_size == 1 else 2.0
    replaced = left = 0.0
    for row in _drawn_rows(training)[:2]:
        others = [_sum(training, *_with_row(training, row, *way)) for way in _ways(training)]
        others.append(_sum(training, training.features, training.released))
        without = _sum(training, training.features, training.released, silent=row)
        assert np.all(np.isfinite([without, *others])), "adversarial rows make the sum infinite"
        for place, one in enumerate(others):
            left = max(left, float(np.linalg.norm(one - without)))
            for other in others[:place]:
                replaced = max(replaced, float(np.linalg.norm(one - other)))
    for moved, most, what in ((left, most_leaving, "leaves"), (replaced, 2.0, "is replaced")):
        assert moved <= most + STEP_ROUNDING, (
            f"a row that {what} moves the sum of the other rows and itself by {moved:.4g} "
            f"sensitivities; accounting counts on {most:g}"
        )
    return f"at most {left:.3f} sensitivities if a row leaves, {replaced:.3f} if it is replaced"


def check_rows_that_are_not_finite_count_as_zero(subject: Subject) -> str:
    """An infinite feature silences its row, and no bad number reaches other rows."""
    training = shared_tables(subject)
    row = _drawn_rows(training)[0]
    most = 1.0 if training.release.group_size == 1 else 2.0
    without = _sum(training, training.features, training.released, silent=row)
    for value in (np.inf, -np.inf, np.nan, 3.4e38, -3.4e38):
        rows = _copy(training.features)
        rows.numeric[row, :] = value
        moved = np.linalg.norm(_sum(training, rows, training.released) - without)
        bound = STEP_ROUNDING if np.isinf(value) else most + STEP_ROUNDING
        assert moved <= bound, (
            f"a row with features {value:g} moves the sum by {moved:.4g} sensitivities from where "
            f"it is without that row; at most {bound:.4g} is right"
        )
    released = _with_nan(training, row)
    of_row = jax.tree.map(lambda column: column[row : row + 1], released)
    if np.isnan(training.mechanism.loss(training.task, jnp.zeros(1), of_row)).any():
        moved = np.linalg.norm(_sum(training, training.features, released) - without)
        assert moved <= STEP_ROUNDING, (
            f"a row whose loss is nan moves the sum by {moved:.4g} sensitivities; it is to be zero"
        )
    return "infinite rows add nothing, missing and huge numbers stay within their row's share"


def _private(subject: Subject, epsilon: float) -> Mechanism | None:
    """The mechanism as compiled code sees it; None where it refuses the budget.

    Raises:
        NotApplicable: it refuses all tasks, or releases plain mean gradients.
    """
    if not subject.tasks:
        raise NotApplicable("it refuses every task that checks are made with")
    try:
        mechanism = subject.calibrated(epsilon, subject.tasks[0])
    except UsageError:
        return None
    if mechanism.gradient() is None:
        raise NotApplicable("it trains on plain mean gradients, which nothing weighs")
    return jax.tree.map(jnp.float32, mechanism)


def _sensitivity(mechanism: Mechanism) -> float:
    release = mechanism.gradient()
    assert release is not None
    sensitivity = float(release.sensitivity)
    assert 0 < sensitivity < np.inf, f"a sensitivity is a finite number above 0, not {sensitivity}"
    return sensitivity


def _drawn_rows(training: SmallTraining) -> np.ndarray:
    """The rows of the first step."""
    drawn = batch_draw(training.schedule, training.group_size, *BATCHES)(0)
    return drawn[drawn != ABSENT]


def _sum(
    training: SmallTraining, features: Features, released: object, silent: int | None = None
) -> np.ndarray:
    """The first step's sum in units of the sensitivity, up to one constant vector, (numbers,)."""
    counts = np.ones(len(features.ids), bool)
    if silent is not None:
        counts[silent] = False
    rate = 0.1 * training.unit_rate
    (after,) = training.parameters_after(rate, counts=counts, features=features, released=released)
    return flat(after) / -0.1


def _ways(training: SmallTraining) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Numbers, ids and a label of adversarial rows."""
    rng = numpy_generator("adversarial rows")
    tables = training.model.tables
    sizes = [tables.sizes[table] for table in tables.column_tables]
    return [
        (
            np.float32(scale) * rng.choice([-1, 1], training.model.numeric).astype(np.float32),
            rng.integers(0, sizes),
            label,
        )
        for scale in SCALES
        for label in range(training.task.classes)
        for _ in range(2)
    ]


def _with_row(
    training: SmallTraining, row: int, numeric: np.ndarray, ids: np.ndarray, label: int
) -> tuple[Features, object]:
    """Features and released labels of which one row is another one."""
    rows = _copy(training.features)
    rows.numeric[row], rows.ids[row] = numeric, ids
    return rows, _released_with(training, row, label)


def _released_with(training: SmallTraining, row: int, label: int) -> object:
    """What was released, but for a row whose label is another one."""
    true = labels(training.schedule.examples, training.task)
    true[row] = label
    _, other = training.mechanism.release_labels(
        true, training.features, release_generator(), training.task
    )

    def replaced(column: np.ndarray, from_other: np.ndarray) -> np.ndarray:
        new = np.array(column)
        new[row] = np.asarray(from_other)[row]
        return new

    return jax.tree.map(replaced, training.released, other)


def _with_nan(training: SmallTraining, row: int) -> object:
    """What was released, with nan for one row wherever that can be written."""

    def poisoned(column: np.ndarray) -> np.ndarray:
        new = np.array(column)
        if np.issubdtype(new.dtype, np.floating):
            new[row] = np.nan
        return new

    return jax.tree.map(poisoned, training.released)


def _copy(features: Features) -> Features:
    return jax.tree.map(np.array, features)


CHECKS: tuple[Check, ...] = (
    check_weights_keep_the_sensitivity,
    check_weights_ignore_other_groups,
    check_step_is_the_plain_computation,
    check_one_row_moves_the_sum_within_the_sensitivity,
    check_rows_that_are_not_finite_count_as_zero,
)
