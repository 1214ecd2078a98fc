"""From a study to its trials: every mechanism at every epsilon, seed and candidate."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from dpcompare import __version__, data
from dpcompare.candidates import Trial, chosen_candidates
from dpcompare.configuration import (
    Configuration,
    budget_of,
    counted,
    final_of,
    identity,
    recipe_of,
    schedule_of,
    task_of,
    training_rows,
)
from dpcompare.data.toml_table import shown
from dpcompare.embeddings import EmbeddingTables
from dpcompare.errors import UsageError
from dpcompare.label_mechanism import LabelMechanism
from dpcompare.mechanism import Mechanism, Plugin, is_private, parameter_defaults
from dpcompare.model import Model
from dpcompare.privacy import Schedule, check_delta, default_delta
from dpcompare.private_selection import number_of_candidates
from dpcompare.randomness import digest, numpy_generator
from dpcompare.settings import at_epsilon, located
from dpcompare.study import Entry, Study
from dpcompare.tasks import CountTask, Task

GIVEN = "--data"
"""The source of a study whose data set the command line must name."""

MOST_TRIALS = 100_000
"""Making the list of more would take minutes, and running them years: a number is mistyped."""

MOST_STEPS = 10**12
"""More steps would take years, and computing with them is not exact."""


def expand(study: Study) -> list[Configuration]:
    """The trials of a study, in the order in which they should run.

    Raises:
        UsageError: a value that cannot work with the data set, e.g. a batch larger than it, or two
            curves that share a trial; with file and key.
        DpcompareError: the data set cannot be read.
    """
    with located(study.source):
        _check_number(study)
        settings = _data_settings(study)
        _check_model(study.model, settings["columns"])
        unique: dict[str, Configuration] = {}
        labels: dict[str, str] = {}
        for seed in range(study.seeds):
            for entry in study.entries:
                with located(f"mechanism {entry.label!r}"):
                    for epsilon in _epsilons_of(entry, study):
                        for configuration in _trials(study, entry, settings, seed, epsilon):
                            _check(configuration, entry.plugin)
                            _check_curve(labels, configuration)
                            unique.setdefault(identity(configuration), configuration)
    return list(unique.values())


def _check_number(study: Study) -> None:
    """Refuse a study of more than MOST_TRIALS trials.

    Raises:
        UsageError: it is one, or a table over epsilon ends too early.
    """
    number = 0.0
    for entry in study.entries:
        with located(f"mechanism {entry.label!r}"):
            for epsilon in _epsilons_of(entry, study):
                candidates = math.prod(len(values) for values in _lists(entry, epsilon).values())
                number += study.seeds * (entry.private_selection or candidates)
    if number > MOST_TRIALS:
        raise UsageError(
            f"it has {number:,.0f} trials (mechanisms, times epsilons, times seeds, times "
            f"candidates), and a study may have at most {MOST_TRIALS:,}"
        )


def _trials(
    study: Study, entry: Entry, settings: dict[str, Any], seed: int, epsilon: float
) -> Iterator[Configuration]:
    """The trials of one curve at one epsilon and seed.

    Where there is one candidate only, its trial is all there is. Several are compared first, on
    validation rows; then :func:`final_trials` follow.
    """
    candidates = list(_candidates(entry, epsilon))
    if study.kind == "account" and len(candidates) > 1:
        raise UsageError(
            f"{', '.join(candidates[0])}: a list is a list of candidates to choose from, but a "
            "study of kind 'account' trains nothing to choose by; use sweep to show them all"
        )
    selection = entry.private_selection
    if selection and entry.plugin.factory.gradient is Mechanism.gradient:
        raise UsageError(
            "private_selection is for mechanisms that release gradients; candidates of a label "
            "mechanism that differ in training only share one draw of the labels, so that choosing "
            "among them costs nothing more; leave it out"
        )
    if selection and study.kind == "account":
        trial = _configuration(study, entry, settings, seed, epsilon, candidates[0])
        yield trial | {"selection": {"mean": selection}}
    elif selection:
        yield from _draws(study, entry, settings, seed, epsilon, candidates)
    elif len(candidates) == 1:
        yield _configuration(study, entry, settings, seed, epsilon, candidates[0])
    elif study.tuning_seeds is None or seed < study.tuning_seeds:
        for candidate in candidates:
            trial = _configuration(study, entry, settings, seed, epsilon, candidate)
            yield trial | {"withheld": "test"}


def _draws(
    study: Study,
    entry: Entry,
    settings: dict[str, Any],
    seed: int,
    epsilon: float,
    candidates: list[dict[str, Any]],
) -> Iterator[Configuration]:
    """A random number of candidates, each drawn at random, with noise and batches of its own."""
    trials = [_configuration(study, entry, settings, seed, epsilon, c) for c in candidates]
    _check_equal_releases(trials, entry.plugin)
    mean = entry.private_selection
    # Another selection draws another number of candidates, and trains none of the same trials.
    among = digest([counted(trial) for trial in trials]).hex()
    rng = numpy_generator("private selection", mean, among)
    count = number_of_candidates(mean, rng)
    for draw, chosen in enumerate(rng.integers(len(candidates), size=count).tolist()):
        about = trials[chosen]["about"]
        about = about | {"candidate": about["candidate"] | {"draw": draw}}
        yield trials[chosen] | {
            "selection": {"mean": mean, "among": among, "draw": draw},
            "withheld": "test",
            "about": about,
        }


def _check_equal_releases(trials: list[Configuration], plugin: Plugin) -> None:
    """A private selection is accounted by what one candidate releases, so all must release alike.

    Raises:
        UsageError: at equal budgets the events of two candidates differ.
    """
    found = []
    for trial in trials:
        schedule = schedule_of(trial, training_rows(trial))
        mechanism = plugin.build(trial["mechanism"]["parameters"])
        mechanism = mechanism.calibrate(budget_of(trial), schedule, task_of(trial))
        found.append(list(mechanism.events(schedule)))
        if found[-1] != found[0]:
            first, other = trials[0]["about"]["candidate"], trial["about"]["candidate"]
            raise UsageError(
                "candidates of a private selection must release the same, so they may differ in "
                "clip norm or learning rate, but not in batch size, epochs or group size; these "
                f"differ: {first} and {other}"
            )


def final_trials(
    study: Study, compared: list[Configuration], records: Sequence[Trial]
) -> list[Configuration]:
    """The trials of the chosen candidates, which look at the test rows: once each.

    Args:
        study: whose candidates were compared.
        compared: its trials, from :func:`expand`.
        records: of those trials, as far as they are done.
    """
    by_identity = {identity(c): c for c in compared if "withheld" in c}
    finals = []
    for chosen in chosen_candidates([r for r in records if r["id"] in by_identity]):
        tried = by_identity[chosen["id"]]
        seeds = [tried["seed"]] if "selection" in tried else range(study.seeds)
        for seed in seeds:
            finals.append(final_of(tried) | {"seed": seed})
    return finals


def _check_curve(labels: dict[str, str], configuration: Configuration) -> None:
    """Equal candidates run once; equal curves are refused, for a trial belongs to one curve.

    The final trial of a candidate must not be another curve's either.
    """
    label = configuration["about"]["label"]
    other = labels.setdefault(identity(final_of(configuration)), label)
    if label != other:
        raise UsageError(
            f"it trains the same as mechanism {other!r} at epsilon "
            f"{configuration['budget']['epsilon']}; remove one of the two or change its settings"
        )


def _epsilons_of(entry: Entry, study: Study) -> tuple[float, ...]:
    """The non-private reference does not depend on epsilon, so it runs once per seed."""
    return study.epsilons if is_private(entry.plugin.factory) else (math.inf,)


def _data_settings(study: Study) -> dict[str, Any]:
    """The `data` section of the study's configurations."""
    settings = study.data
    split = [float(share) for share in settings["split"]]
    if settings["source"] == "synthetic":
        names = ("rows", "seed", "base_rate", "conversion_rate")
        arguments = {name: settings[name] for name in names}
        checksum = data.synthetic_checksum(**arguments)
        schema = data.load_schema(data.SYNTHETIC_SCHEMA)
        return {
            "source": "synthetic",
            **arguments,
            "columns": [len(schema.numeric), len(schema.categorical)],
            "split": split,
            "parts": _lengths(data.split_rows(settings["rows"], split)),
            "exposure": False,
            "checksum": checksum,
        }
    if settings["source"] == GIVEN:
        raise UsageError(
            "it runs on a prepared data set: name one with --data DIR (to make one: "
            "dpcompare prepare SCHEMA SOURCE... DIR)"
        )
    try:
        path = Path(settings["source"]).resolve()
        dataset = data.load_prepared(path)
    except (OSError, RuntimeError) as error:  # a name too long, or a link to itself
        raise UsageError(f"data.source {shown(settings['source'])}: {error}") from error
    parts = _lengths(dataset.parts(study.task, split))
    return {
        "source": "prepared",
        "path": str(path),
        "rows": sum(parts),
        "columns": [len(dataset.numeric_names), len(dataset.categorical_names)],
        "split": split,
        "parts": parts,
        "exposure": dataset.exposure is not None and study.cap is not None,  # of counts only
        "checksum": dataset.checksum,
    }


def _lengths(parts: Iterable[slice]) -> list[int]:
    return [part.stop - part.start for part in parts]


def _candidates(entry: Entry, epsilon: float) -> Iterator[dict[str, Any]]:
    """Every combination of the values to tune, at one epsilon."""
    lists = _lists(entry, epsilon)
    for chosen in product(*lists.values()):
        yield dict(zip(lists, chosen, strict=True))


def _lists(entry: Entry, epsilon: float) -> dict[str, list[Any]]:
    """The values to tune, at one epsilon, by the key that they stand under."""
    values = {f"training.{key}": value for key, value in entry.training.items()}
    values |= entry.parameters
    at = {key: at_epsilon(value, epsilon, key) for key, value in values.items()}
    defaults = parameter_defaults(entry.plugin.factory)
    return {
        key: value
        for key, value in at.items()
        if isinstance(value, list) and not isinstance(defaults.get(key), list)
    }


def _configuration(
    study: Study,
    entry: Entry,
    data_settings: dict[str, Any],
    seed: int,
    epsilon: float,
    candidate: dict[str, Any],
) -> Configuration:
    def resolved(values: dict[str, Any], prefix: str) -> dict[str, Any]:
        return {
            key: candidate.get(prefix + key, at_epsilon(value, epsilon, prefix + key))
            for key, value in values.items()
        }

    training = resolved(entry.training, "training.")
    training["chunk_size"] = training["chunk_size"] or None
    steps = training.pop("steps")
    examples = _examples(training["examples"], data_settings["parts"][0])
    if examples == data_settings["parts"][0]:
        training["examples"] = 0  # all of them, however it was written
    if steps:
        training["epochs"] = _epochs(steps, training["batch_size"], examples)
    _check_steps(training, examples)
    delta = default_delta(examples) if study.delta is None else study.delta
    check_delta(delta, examples, allow_large_delta=study.allow_large_delta)
    model = dict(study.model)
    del model["min_count" if model["categories"] == "hash" else "buckets"]
    configuration: Configuration = {
        "task": study.task,
        "cap": study.cap,
        "data": data_settings,
        "model": model,
        "training": training,
        "mechanism": {
            "name": entry.plugin.name,
            "parameters": resolved(entry.parameters, ""),
            "version": entry.plugin.version,
        },
        "budget": {
            "epsilon": epsilon if math.isfinite(epsilon) else "inf",
            "delta": delta,
            "neighboring": entry.neighboring or study.neighboring,
            "accountant": entry.accountant or study.accountant,
            "allow_large_delta": study.allow_large_delta,
        },
        "seed": seed,
        "dpcompare": __version__,
        "about": {
            "study": study.name,
            "title": study.title,
            "metric": study.metric,
            "label": entry.label,
            "candidate": candidate,
        },
    }
    if study.kind == "account":
        configuration["kind"] = "account"
    return configuration


def _epochs(steps: int, batch_size: int, examples: int) -> float:
    """So many passes that rounding them to steps gives `steps`."""
    if steps < 0:
        raise UsageError(f"training.steps must be at least 1, or 0 to take epochs, got {steps}")
    return steps * batch_size / examples


def _check_steps(training: dict[str, Any], examples: int) -> None:
    steps = training["epochs"] * examples / max(1, training["batch_size"])
    if steps > MOST_STEPS:
        raise UsageError(
            f"training.epochs {training['epochs']:g} are {steps:.3g} steps; a trial may have at "
            f"most {MOST_STEPS:,}"
        )


def _examples(wanted: int, there: int) -> int:
    """How many rows are trained on; 0 stands for all."""
    if not 0 <= wanted <= there:
        raise UsageError(
            f"training.examples must lie between 1 and the {there:,} training rows, or be 0 for "
            f"all, got {wanted:,}"
        )
    return wanted or there


def _check_model(settings: dict[str, Any], columns: list[int]) -> None:
    numeric, categorical = columns
    buckets = settings["buckets"]
    data.HashBuckets(buckets, categorical)
    Model(numeric, EmbeddingTables((buckets,) * categorical), tuple(settings["tower"]))


def _check(configuration: Configuration, plugin: Plugin) -> None:
    """Build what can be built without data, so that mistakes show before anything runs."""
    training = configuration["training"]
    recipe = recipe_of(configuration)
    task = task_of(configuration)
    _check_start(recipe.base_rate, task, configuration["data"]["exposure"])
    mechanism = plugin.build(configuration["mechanism"]["parameters"])
    schedule = Schedule.from_epochs(
        training_rows(configuration),
        training["batch_size"],
        training["epochs"],
        plugin.factory.sampling,
    )
    if isinstance(mechanism, LabelMechanism):  # others may take long
        mechanism.calibrate(budget_of(configuration), schedule, task)


def _check_start(base_rate: float, task: Task, exposure: bool) -> None:
    """Whether the output can start at a base rate, and must.

    Raises:
        UsageError: it cannot, or there is an exposure and no rate per unit of it.
    """
    if not base_rate:
        if exposure:
            raise UsageError(
                "the data set has an exposure, whose log is added to the output: set "
                "training.base_rate to the public rate per unit of exposure, from which to start"
            )
        return
    task.link(base_rate)
    if isinstance(task, CountTask) and not exposure:
        low, high = task.smallest_mean, task.largest_mean
        if not low <= base_rate <= high:
            raise UsageError(
                f"training.base_rate must be a mean that can be predicted, from {low:.2g} to "
                f"{high:.3g} at cap {task.cap}, got {base_rate:g}"
            )
