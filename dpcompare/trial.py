"""One trial: a complete configuration in, a record out.

`run_trial` is all that the runner knows; see :class:`dpcompare.configuration.Configuration`.
"""

import functools
import hashlib
import math
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from dpcompare import accounting, private_selection
from dpcompare.checkpoints import Checkpoints
from dpcompare.configuration import (
    SECRET,
    Configuration,
    budget_of,
    counted,
    final_of,
    identity,
    plugin_of,
    recipe_of,
    schedule_of,
    task_of,
    training_rows,
)
from dpcompare.devices import mesh_of
from dpcompare.errors import DpcompareError
from dpcompare.examples import PARTS, Examples, load_examples
from dpcompare.label_mechanism import LabelMechanism
from dpcompare.mechanism import Mechanism
from dpcompare.model import Parameters
from dpcompare.noise import SECRET_DRAWS
from dpcompare.privacy import Budget, Guarantee, Release, Schedule, check_delta
from dpcompare.randomness import PRNG, digest, numpy_generator
from dpcompare.results import FIELDS, FORMAT, holds_token
from dpcompare.tasks import CountTask, Task
from dpcompare.trainer import Streams, predict, table_updates, train

LARGE_SHARE = 0.01
"""From which on labels above all means that can be predicted are worth a note."""


class Trained(NamedTuple):
    """What a trial leaves behind.

    Attributes:
        mechanism: as it is after the release, with what it learnt there.
        examples: of the trial, with the encoder and the network.
        parameters: of the network, settled.
        guarantee: what may be claimed of them.
        record: with the fields of :data:`dpcompare.results.FIELDS`.
    """

    mechanism: Mechanism
    examples: Examples
    parameters: Parameters
    guarantee: Guarantee
    record: dict[str, Any]


def run_trial(
    configuration: Configuration, report: Callable[[float], None] = lambda fraction: None
) -> dict[str, Any]:
    """The record of a trial, see :func:`train_trial`."""
    return train_trial(configuration, report).record


def train_trial(
    configuration: Configuration,
    report: Callable[[float], None] = lambda fraction: None,
    secret: bytes = b"",
) -> Trained:
    """Build, calibrate, release, train, evaluate, and state the guarantee.

    Args:
        configuration: of the trial.
        report: called with the fraction of the training that is done.
        secret: names the random streams in place of the seed, which is then SECRET.

    Raises:
        DpcompareError: training diverged, the data set changed, or a setting cannot work.
    """
    timings: dict[str, float] = {}
    seed = _seed(configuration, secret)
    task = task_of(configuration)
    budget = budget_of(configuration)
    with _timed(timings, "data"):
        examples = load_examples(configuration)
    schedule = schedule_of(configuration, len(examples.labels["train"]))
    settings = configuration["budget"]
    check_delta(budget.delta, schedule.examples, allow_large_delta=settings["allow_large_delta"])
    chosen = configuration["mechanism"]
    mechanism = plugin_of(chosen["name"], chosen["version"]).build(chosen["parameters"])
    with _timed(timings, "calibrate"):
        mechanism = calibrated(mechanism, configuration, schedule)
    with _timed(timings, "release"):
        of_labels = label_stream(configuration, mechanism, task, seed)
        mechanism, released = mechanism.release_labels(
            examples.labels["train"],
            examples.features["train"],
            numpy_generator(*of_labels),
            task,
        )
    with _timed(timings, "account"):  # before training, so that what cannot be claimed costs none
        releases = mechanism.events(schedule)
        guarantee = stated(releases, configuration)
        _check_claim(mechanism, releases, guarantee)
        _check_kernel(mechanism, task, guarantee)
    recipe = recipe_of(configuration)
    devices = configuration["run"]["devices"] if "run" in configuration else 1
    streams = _streams(configuration, mechanism, seed)
    checkpoints = _checkpoints(configuration, digest(of_labels, streams.noise).hex()[:20])
    curve: list[dict[str, Any]] = checkpoints.kept if checkpoints else []

    def look_at_validation(step: int, parameters: Parameters) -> None:
        if step < schedule.steps:
            part = examples.features["validation"]
            predictions = predict(mechanism, task, examples.model, parameters, part)
            metrics = _evaluate(task, examples.labels["validation"], predictions)
            curve.append({"step": step, **metrics})

    with _timed(timings, "train"):
        parameters = train(
            mechanism,
            task,
            examples.model,
            examples.features["train"],
            released,
            schedule,
            recipe,
            streams,
            report,
            look_at_validation,
            mesh_of(devices),
            checkpoints,
        )
    if checkpoints and checkpoints.seconds_before:
        timings["train_before_resuming"] = checkpoints.seconds_before
    with _timed(timings, "evaluate"):
        looked_at = [part for part in PARTS[1:] if part != configuration.get("withheld")]
        predictions = {
            part: predict(mechanism, task, examples.model, parameters, examples.features[part])
            for part in looked_at
        }
        metrics = {
            part: _evaluate(task, examples.labels[part], predictions[part]) for part in looked_at
        }
    best = examples.true_rates
    effective = None
    if best is not None:
        effective = mechanism.effective_sample_size_fraction(task, best["train"])
    record = record_of(
        configuration,
        status="done",
        guarantee=vars(guarantee) | {"events": list(guarantee.events)},
        schedule=vars(schedule),
        rows={part: len(examples.labels[part]) for part in PARTS},
        validation=metrics["validation"],
        test=metrics.get("test"),
        best_possible=_best_possible(task, examples) if "test" in metrics else None,
        notes=[
            *mechanism.notes(),
            *examples.notes,
            *delta_notes(guarantee, schedule.examples),
            *(_bound_notes(task, examples.labels["test"]) if "test" in metrics else []),
        ],
        diagnostics={
            **noise_diagnostics(mechanism, schedule),
            **selection_diagnostics(releases, configuration),
            "mean_prediction": float(np.mean(predictions[looked_at[-1]])),
            **({} if effective is None else {"effective_examples": effective * schedule.examples}),
            "parameters": examples.model.parameters,
            **({"devices": devices} if devices > 1 else {}),
            "lazy_tables": table_updates(mechanism, examples.model, schedule, recipe).lazy,
            "evaluations": [*curve, {"step": schedule.steps, **metrics["validation"]}],
        },
        timings={name: round(seconds, 4) for name, seconds in timings.items()},
    )
    return Trained(mechanism, examples, parameters, guarantee, record)


def _seed(configuration: Configuration, secret: bytes) -> int | str:
    """What names the random streams: the published seed, or the secret.

    Raises:
        DpcompareError: the seed is secret, and the secret is not there.
    """
    if (configuration["seed"] == SECRET) != bool(secret):
        raise DpcompareError(
            "a trial with a secret seed needs the secret that it was started with; it cannot be "
            "repeated from its configuration"
        )
    return secret.hex() if secret else configuration["seed"]


def _checkpoints(configuration: Configuration, streams: str) -> Checkpoints | None:
    run = configuration.get("run")
    if not run or not run["checkpoints"]:
        return None
    folder = Path(run["checkpoints"])
    # A node of a cluster may not see the results folder: a trial then starts anew when it is lost.
    if not holds_token(folder.parent, run["token"]):
        return None
    return Checkpoints(
        folder,
        identity(configuration),
        run["checkpoint_seconds"],
        run["devices"],
        streams,
    )


def calibrated(mechanism: Mechanism, configuration: Configuration, schedule: Schedule) -> Mechanism:
    """The mechanism with the noise that fits the budget of a configuration.

    Of a private selection each candidate gets so much noise that the choice fits the budget.
    """
    budget, task = budget_of(configuration), task_of(configuration)
    if "selection" in configuration:

        def releases_at(budget: Budget) -> Sequence[Release]:
            return mechanism.calibrate(budget, schedule, task).events(schedule)

        mean = configuration["selection"]["mean"]
        budget = private_selection.candidate_budget(releases_at, budget, mean)
    return mechanism.calibrate(budget, schedule, task)


def stated(releases: Sequence[Release], configuration: Configuration) -> Guarantee:
    """What a trial with these releases may claim."""
    budget = budget_of(configuration)
    if "selection" in configuration:
        mean = configuration["selection"]["mean"]
        return private_selection.guarantee(releases, mean, budget.delta, budget.neighboring)
    return accounting.guarantee(releases, budget.delta, budget.neighboring, budget.accountant)


def noise_diagnostics(mechanism: Mechanism, schedule: Schedule) -> dict[str, Any]:
    """What calibration found, and the noise on each entry of the mean gradient, if there is any."""
    found: dict[str, Any] = {"calibrated": _calibrated(mechanism)}
    gradient = mechanism.gradient()
    if gradient is not None:
        groups = schedule.expected_groups(gradient.group_size)
        found["noise_on_mean"] = float(gradient.standard_deviation) / groups
    return found


def selection_diagnostics(
    releases: Sequence[Release], configuration: Configuration
) -> dict[str, float]:
    """The epsilon of one candidate of a private selection, as a tuning that is not counted says."""
    if "selection" not in configuration:
        return {}
    budget = budget_of(configuration)
    one = accounting.guarantee(releases, budget.delta, budget.neighboring, budget.accountant)
    return {"candidate_epsilon": one.epsilon}


def failed_record(configuration: Configuration, reason: str, traceback: str = "") -> dict[str, Any]:
    """The record of a trial that did not finish; a traceback goes to its diagnostics."""
    diagnostics = {"traceback": traceback} if traceback else {}
    return record_of(configuration, status="failed", error=reason, diagnostics=diagnostics)


def label_stream(
    configuration: Configuration, mechanism: Mechanism, task: Task, seed: int | str | None = None
) -> tuple[Any, ...]:
    """The words that name the draw of the labels: shared by all that differ only in training.

    What decides the draw is the kernel. Where a mechanism has none, everything does that it may
    build its release on: its own fields, and the encoded rows unless it is a LabelMechanism. Two
    releases of other size must not share their randomness.
    """
    kernel = mechanism.kernel(task)
    settings = counted(configuration)["mechanism"]
    what: Any
    if kernel is None:
        what = {"mechanism": settings, "dpcompare": configuration["dpcompare"]}
        if not isinstance(mechanism, LabelMechanism):
            what |= {"budget": configuration["budget"], "model": configuration["model"]}
        what["fields"] = [_exactly(leaf) for leaf in jax.tree.leaves(mechanism)]
    else:
        what = hashlib.sha256(kernel.probabilities.tobytes()).hexdigest()
    rows = [configuration["data"][key] for key in ("checksum", "split")]
    rows += [configuration["cap"], training_rows(configuration)]
    if "selection" in configuration:  # each candidate of a private selection draws anew
        rows.append(configuration["selection"]["draw"])
    seed = configuration["seed"] if seed is None else seed
    return "labels", *rows, task.name, settings["name"], what, seed


def _exactly(leaf: Any) -> str:
    """A number as text, or all bytes of an array, whose text would leave most of it out."""
    return str(leaf) if np.ndim(leaf) == 0 else np.asarray(leaf).tobytes().hex()


def _streams(configuration: Configuration, mechanism: Mechanism, seed: int | str) -> Streams:
    """Batches, groups and initial weights depend on no row, noise on everything, its size too."""
    shared: tuple[Any, ...] = (training_rows(configuration), seed)
    if "selection" in configuration:  # candidates of a private selection share no batches
        shared += (configuration["selection"]["draw"],)
    # The final trial of a candidate repeats it: a draw of other noise would be another release.
    settings = counted(final_of(configuration))
    noise = {"settings": settings, "calibrated": _calibrated(mechanism)}
    if configuration["seed"] == SECRET:
        return Streams(shared, (digest(noise, seed).hex(),), SECRET_DRAWS)
    return Streams(shared, (digest(noise).hex(),))


def _check_claim(mechanism: Mechanism, releases: Sequence[Release], guarantee: Guarantee) -> None:
    """Refuse a claim that what was trained cannot bear.

    Raises:
        DpcompareError: examples are claimed to be protected though plain gradients were taken of
            their features, or groups were clipped that the release does not mention.
    """
    gradient = mechanism.gradient()
    if guarantee.unit != "example" or math.isinf(guarantee.epsilon):
        return
    if gradient is None:
        raise DpcompareError(
            "the mechanism claims to protect whole examples, but trains on their features with "
            "plain gradients; release gradients, or claim the unit 'label' only"
        )
    sizes = {release.group_size for release in releases if release.unit == "example"}
    if gradient.group_size not in sizes:
        raise DpcompareError(
            f"the mechanism clips groups of {gradient.group_size} rows, but accounts groups of "
            f"{', '.join(map(str, sorted(sizes)))}; name the group size in its events"
        )


def _check_kernel(mechanism: Mechanism, task: Task, guarantee: Guarantee) -> None:
    """Refuse a claim that the labels' kernel does not keep.

    Raises:
        DpcompareError: an output is more than e^epsilon times as probable for one label as for
            another.
    """
    kernel = mechanism.kernel(task)
    if kernel is None:
        return
    worst = kernel.epsilon()
    if worst > guarantee.epsilon * (1 + 1e-9):
        raise DpcompareError(
            f"the mechanism claims epsilon {guarantee.epsilon:.9g}, but its label kernel has a "
            f"likelihood ratio of exp({worst:.9g}); repair the kernel, or state what it costs"
        )


def _evaluate(task: Task, labels: np.ndarray, predictions: np.ndarray) -> dict[str, Any]:
    if not np.all(np.isfinite(predictions)):
        raise DpcompareError("some predictions are nan; training diverged at its last steps")
    return dict(task.evaluate(labels, predictions))


def _best_possible(task: Task, examples: Examples) -> dict[str, Any] | None:
    """The scores of the true rates on the test rows, where they are known."""
    rates = examples.true_rates
    return rates and _evaluate(task, examples.labels["test"], rates["test"])


def _calibrated(mechanism: Mechanism) -> dict[str, float]:
    """The numbers that calibration found: in the fields whose default is None."""
    fields = type(mechanism).__dataclass_fields__.values()
    found = {f.name: getattr(mechanism, f.name) for f in fields if f.default is None}
    return {name: float(value) for name, value in found.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return value is not None and np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf"


def delta_notes(guarantee: Guarantee, examples: int) -> list[str]:
    """A delta at which whole rows might be published is marked."""
    if math.isinf(guarantee.epsilon) or guarantee.delta * examples < 1 - 1e-9:
        return []
    return [
        f"delta {guarantee.delta:.3g} is not below 1/n = {1 / examples:.3g}: it would allow a "
        "mechanism that publishes a whole row"
    ]


def _bound_notes(task: Task, labels: np.ndarray) -> list[str]:
    """Many counts above all means that can be predicted are marked; a few are in any tail."""
    if not isinstance(task, CountTask):
        return []
    share = float(np.mean(labels > task.largest_mean))
    if share < LARGE_SHARE:
        return []
    return [
        f"{share:.1%} of the test labels are above {task.largest_mean:.3g}, the largest mean that "
        f"is predicted at cap {task.cap}, under every mechanism"
    ]


def record_of(configuration: Configuration, **values: Any) -> dict[str, Any]:
    """A record of a configuration: `values`, with empty ones for what they do not hold."""
    about = configuration["about"]
    empty = dict.fromkeys(
        ("error", "guarantee", "schedule", "rows", "validation", "test", "best_possible")
    )
    record = {
        "format": FORMAT,
        "id": identity(configuration),
        **{key: about[key] for key in ("study", "title", "metric", "label", "candidate")},
        "task": configuration["task"],
        "mechanism": configuration["mechanism"]["name"],
        "epsilon": float(configuration["budget"]["epsilon"]),
        "seed": configuration["seed"],
        "configuration": counted(configuration),
        **empty,
        "notes": [],
        "diagnostics": {},
        "timings": {},
        "versions": _versions(),
        "prng": PRNG,
        **values,
    }
    return {field: record[field] for field in FIELDS}


@functools.cache
def _versions() -> dict[str, str]:
    packages = ("dpcompare", "jax", "jaxlib", "flax", "optax", "dp-accounting", "numpy", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Any:
    start = time.perf_counter()
    yield
    timings[name] = time.perf_counter() - start
