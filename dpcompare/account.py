"""One trial of a study of kind "account": noise and guarantees, without data or training."""

from collections.abc import Callable
from typing import Any

from dpcompare.configuration import Configuration, budget_of, plugin_of, schedule_of, training_rows
from dpcompare.mechanism import Mechanism
from dpcompare.privacy import Guarantee, Schedule, check_delta
from dpcompare.shuffling import epsilon_lower_bound
from dpcompare.trial import (
    calibrated,
    delta_notes,
    noise_diagnostics,
    record_of,
    selection_diagnostics,
    stated,
)


def run_account(
    configuration: Configuration, report: Callable[[float], None] = lambda fraction: None
) -> dict[str, Any]:
    """Calibrate, and state the guarantee.

    Args:
        configuration: of the trial; of its data only the number of training rows counts.
        report: called with the fraction that is done.

    Returns:
        A record without rows and metrics. Its diagnostics hold the noise, and for row-wise clipped
        gradients what shuffled batches with the same noise provably exceed
        (:func:`dpcompare.shuffling.epsilon_lower_bound`).

    Raises:
        UsageError: no noise fits the budget.
    """
    schedule = schedule_of(configuration, training_rows(configuration))
    budget = budget_of(configuration)
    large = configuration["budget"]["allow_large_delta"]
    check_delta(budget.delta, schedule.examples, allow_large_delta=large)
    chosen = configuration["mechanism"]
    mechanism = plugin_of(chosen["name"], chosen["version"]).build(chosen["parameters"])
    mechanism = calibrated(mechanism, configuration, schedule)
    releases = mechanism.events(schedule)
    guarantee = stated(releases, configuration)
    return record_of(
        configuration,
        status="done",
        guarantee=vars(guarantee) | {"events": list(guarantee.events)},
        schedule=vars(schedule),
        notes=[*mechanism.notes(), *delta_notes(guarantee, schedule.examples)],
        diagnostics={
            **noise_diagnostics(mechanism, schedule),
            **selection_diagnostics(releases, configuration),
            **({} if "selection" in configuration else _shuffled(mechanism, schedule, guarantee)),
        },
    )


def _shuffled(mechanism: Mechanism, schedule: Schedule, guarantee: Guarantee) -> dict[str, float]:
    """What the same noise costs at least where batches are cut from permutations of the rows.

    For single rows, whole epochs, and relations that keep the number of rows: for those the bound
    is proven. Steps are whole numbers, so an epoch may be half a step off.
    """
    gradient = mechanism.gradient()
    steps_per_epoch = -(-schedule.examples // schedule.batch_size)
    epochs = round(schedule.steps * schedule.batch_size / schedule.examples)
    whole = abs(schedule.steps - epochs * schedule.examples / schedule.batch_size) <= 0.5
    if gradient is None or gradient.group_size > 1 or schedule.sampling != "poisson":
        return {}
    if not (epochs and whole) or guarantee.neighboring == "add-or-remove-one":
        return {}
    sigma = float(gradient.noise_multiplier)
    if sigma == 0:
        return {}
    bound = epsilon_lower_bound(sigma, steps_per_epoch, epochs, guarantee.delta)
    return {"shuffled_epsilon_at_least": bound}
