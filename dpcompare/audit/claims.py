"""Which claims an audit attacks: of one mechanism, or of all trials of a results folder."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from dpcompare.audit.bounds import library
from dpcompare.audit.finding import NOT_ATTACKED, Finding
from dpcompare.audit.gradient_attack import affordable, attack_gradients, full_participation
from dpcompare.audit.label_attack import attack_labels
from dpcompare.configuration import Configuration, budget_of, task_of
from dpcompare.errors import DpcompareError
from dpcompare.mechanism import Plugin, find, is_private
from dpcompare.privacy import Budget, Schedule, default_delta
from dpcompare.results import ResultsFolder, Say
from dpcompare.summary import shown_trials
from dpcompare.tasks import Task
from dpcompare.trial import calibrated as calibrated_for

LABELS_LEFT = "labels were not attacked: gradients of whole rows are the stronger canaries"


def audit_mechanism(
    plugin: Plugin,
    parameters: Mapping[str, Any],
    epsilon: float,
    task: Task,
    count: int,
    seed: int = 0,
) -> Finding:
    """Attack a mechanism at one epsilon, where that shows most: every row in every step.

    Args:
        plugin: the mechanism.
        parameters: as a study would set them.
        epsilon: that it is calibrated for, at the default delta of the attacked rows.
        task: whose labels are attacked.
        count: canaries.
        seed: names all random streams.

    Raises:
        UsageError: the mechanism refuses its parameters or the budget, or jax-privacy is missing.
        DpcompareError: what it releases cannot be attacked.
    """
    library()
    mechanism = plugin.build(dict(parameters))
    private = is_private(plugin.factory)
    budget = Budget(epsilon if private else math.inf, default_delta(count))
    schedule = full_participation(mechanism, count)
    calibrated = mechanism.calibrate(budget, schedule, task)
    release = calibrated.gradient()
    if release is None:
        return attack_labels(mechanism, budget, task, count, seed, plugin.name)
    if release.group_size > 1:
        chosen = affordable(schedule, release.group_size, count)
        schedule = full_participation(mechanism, chosen.examples)
        calibrated = mechanism.calibrate(budget, schedule, task)
    found = attack_gradients(calibrated, schedule, budget, seed, plugin.name)
    return replace(found, notes=[*found.notes, LABELS_LEFT])


def audit_results(path: Path, count: int, seed: int, say: Say) -> list[Finding]:
    """Attack every claim of a results folder: each curve at each epsilon.

    Gradient mechanisms are attacked with the noise multiplier, group size and sampling probability
    of the trials, and with their number of steps where that is affordable. Claims whose settings
    are the same are attacked once.

    Args:
        path: the results folder.
        count: canaries, at most.
        seed: names all random streams.
        say: receives lines about the progress.

    Raises:
        UsageError: there is no such folder, or jax-privacy is missing.
        DpcompareError: it holds no results.
    """
    library()
    folder = ResultsFolder(path)
    cells = shown_trials(folder.records(folder.plan()))
    distinct = len({_settings(trials[0]) for trials in cells.values() if trials})
    attacked: dict[str, Finding] = {}
    findings = []
    for place, ((label, epsilon), trials) in enumerate(cells.items(), start=1):
        where = f"{place} of {len(cells)}: {label} at epsilon {epsilon:g}"
        if not trials:
            findings.append(_left_out(label, epsilon, "no trial is done"))
            continue
        key = _settings(trials[0])
        if key not in attacked:
            say(f"attacking {where}")
            attacked[key] = _attacked(trials[0], count, seed, distinct)
        ids = [str(record["id"]) for record in trials]
        findings.append(replace(attacked[key], label=label, asked=epsilon, trials=ids))
    return findings


def _attacked(record: Mapping[str, Any], count: int, seed: int, claims: int) -> Finding:
    try:
        return _attack(record, count, seed, claims)
    except DpcompareError as error:
        return _left_out(record["label"], record["epsilon"], str(error))
    except Exception as error:  # of a plug-in: the other claims are still to be attacked
        told = f"the attack ended in {type(error).__name__}: {error}"
        return _left_out(record["label"], record["epsilon"], told)


def _attack(record: Mapping[str, Any], count: int, seed: int, claims: int) -> Finding:
    configuration = cast(Configuration, record["configuration"])
    if missing := [part for part in ("mechanism", "budget", "task") if part not in configuration]:
        raise DpcompareError(f"its record lacks the {' and the '.join(missing)} of its trial")
    chosen, budget = configuration["mechanism"], budget_of(configuration)
    task = task_of(configuration)
    plugin = find(str(record["mechanism"]))  # as the study named it: a file with its path
    notes = []
    if plugin.version != chosen["version"]:
        notes.append("the code of the mechanism is not the one that the trials ran")
    mechanism = plugin.build(chosen["parameters"])
    schedule = Schedule(**record["schedule"])
    calibrated = calibrated_for(mechanism, configuration, schedule)
    if "selection" in configuration:
        notes.append("one candidate of the private selection was attacked, at its own epsilon")
        budget = _candidate_budget(record, budget)
    label, epsilon = record["label"], record["epsilon"]
    release = calibrated.gradient()
    if release is None:
        found = attack_labels(mechanism, budget, task, count, seed, label, claims)
        return replace(found, notes=[*notes, *found.notes])
    if math.isinf(epsilon):
        return _left_out(label, epsilon, "no noise was asked for", attack="none")
    chosen_schedule = affordable(schedule, release.group_size, count)
    if chosen_schedule.steps < schedule.steps:
        notes.append(
            f"{chosen_schedule.steps:,} of {schedule.steps:,} steps were attacked; "
            "the claim is that of those steps"
        )
    found = attack_gradients(calibrated, chosen_schedule, budget, seed, label, claims)
    return replace(found, notes=[*notes, *found.notes, LABELS_LEFT])


def _candidate_budget(record: Mapping[str, Any], budget: Budget) -> Budget:
    return replace(budget, epsilon=float(record["diagnostics"]["candidate_epsilon"]))


def _settings(record: Mapping[str, Any]) -> str:
    """The same for claims of which one attack tells all: seeds and optimizers do not matter."""
    configuration = record["configuration"]
    parts = ("mechanism", "budget", "task", "cap", "selection")
    chosen = {part: configuration.get(part) for part in parts}
    return json.dumps([chosen, record.get("schedule")], sort_keys=True)


def _left_out(label: str, epsilon: float, reason: str, **fields: Any) -> Finding:
    return Finding(label, epsilon, "none", NOT_ATTACKED, notes=[reason], trials=[], **fields)
