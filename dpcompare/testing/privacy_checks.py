"""Checks of what mechanisms claim: the budget is kept, and what is run is what is accounted."""

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpcompare.errors import UsageError
from dpcompare.mechanism import Mechanism, is_private, parameter_defaults
from dpcompare.privacy import (
    ACCOUNTANTS,
    ROW_RELATIONS,
    AccountantName,
    Budget,
    RowRelation,
    Schedule,
    default_delta,
)
from dpcompare.results import decode, encode
from dpcompare.steps import trace_count
from dpcompare.tasks import Task
from dpcompare.testing.claims import (
    TOLERANCE,
    accepted,
    calibrated_for,
    check_private,
    guarantee_of,
    tasks_of,
)
from dpcompare.testing.gradient_accounting import epsilon_bounds
from dpcompare.testing.label_samples import draw, same
from dpcompare.testing.outcome import Check, NotApplicable
from dpcompare.testing.subject import Subject
from dpcompare.testing.tiny_trials import configuration_of, releases_of, run

EPSILONS = (0.1, 0.5, 2.0, 10.0, 50.0)
NOISE_EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0)
GRADIENT_EPSILONS = (0.2, 2.0)
EXTREMES = (0.01, 50.0, math.inf)

ESTIMATE_ERROR = 1e-6
"""Relative: rounding of an optimistic estimate, far below the 1 % by which it is too small."""

LOOSEST = {"pld": 1.5, "rdp": 3.0}
"""How much more than the truth an accountant may say of released gradients."""


def check_calibration_keeps_the_budget(subject: Subject) -> str:
    """What is claimed after calibration is at most the epsilon that was asked for."""
    check_private(subject)
    kept, known = 0, {}
    for budget, task, mechanism in _calibrations(subject):
        key = budget, str(mechanism.events(subject.schedule()))
        try:
            if key not in known:
                known[key] = guarantee_of(
                    mechanism, subject.schedule(), budget.neighboring, budget.accountant
                )
        except UsageError:
            continue  # as a trial would be refused
        stated = known[key]
        assert stated.epsilon <= budget.epsilon * (1 + TOLERANCE), (
            f"asked for epsilon {budget.epsilon:g} on {task.name} (neighboring "
            f"{budget.neighboring}, accountant {budget.accountant}), it claims epsilon "
            f"{stated.epsilon:.9g}"
        )
        kept += 1
    if not kept:
        raise NotApplicable("it refuses every budget of this check")
    return f"{kept} budgets from epsilon 0.1 to 50, under every relation and accountant it takes"


def _calibrations(subject: Subject) -> Iterator[tuple[Budget, Task, Mechanism]]:
    """Every epsilon at the defaults, and one under all relations and accountants."""
    delta = default_delta(subject.schedule().examples)
    budgets = [Budget(epsilon, delta) for epsilon in EPSILONS]
    budgets += [
        Budget(EPSILONS[1], delta, relation, accountant)
        for relation in ROW_RELATIONS
        for accountant in ACCOUNTANTS
    ]
    for task in tasks_of(subject):
        for budget in dict.fromkeys(budgets):
            try:
                yield budget, task, calibrated_for(subject, budget, task)
            except UsageError:
                continue


def check_noise_falls_as_epsilon_grows(subject: Subject) -> str:
    """A larger epsilon never means more noise."""
    check_private(subject)
    looked_at: set[str] = set()
    for task in tasks_of(subject):
        before: dict[str, tuple[float, float]] = {}
        for epsilon, mechanism in accepted(subject, task, NOISE_EPSILONS):
            for name, value in _noise(mechanism, task).items():
                lower, at_lower = before.get(name, (epsilon, value))
                assert value <= at_lower * (1 + ESTIMATE_ERROR), (
                    f"the {name} grows from {at_lower:.6g} at epsilon {lower:g} to {value:.6g} "
                    f"at epsilon {epsilon:g} on {task.name}"
                )
                before[name] = epsilon, value
                looked_at.add(name)
    if not looked_at:
        raise NotApplicable("it has no gradient(), kernel() or label_noise() that would tell")
    return f"{' and '.join(sorted(looked_at))}, over epsilons from 0.1 to 50"


def _noise(mechanism: Mechanism, task: Task) -> dict[str, float]:
    """Numbers that say how noisy it is, each larger for more noise."""
    found = {}
    gradient, noise = mechanism.gradient(), mechanism.label_noise(task)
    kernel = draw(mechanism, task, 20_000).mechanism.kernel(task)
    if gradient is not None:
        found["noise on gradient sums"] = float(gradient.standard_deviation)
    if noise is not None:
        found["variance of label noise"] = noise.variance()
    if kernel is not None:
        found["smallest likelihood ratio of the label kernel"] = math.exp(-kernel.epsilon())
    return found


def check_claim_covers_the_gradients(subject: Subject) -> str:
    """The claim is no smaller than what the noise that training uses is known to cost."""
    check_private(subject)
    schedule, narrowest = subject.schedule(), math.inf
    looked_at: set[str] = set()
    for asked, mechanism in _accepted_on_all_tasks(subject, GRADIENT_EPSILONS):
        gradient, events = mechanism.gradient(), list(mechanism.events(schedule))
        if str((asked, gradient, events)) in looked_at:
            continue  # as it is on the task before
        looked_at.add(str((asked, gradient, events)))
        if all(release.unit == "label" for release in events):
            raise NotApplicable("it claims to protect labels only, and releases no gradients")
        assert gradient is not None, (
            "it claims to protect whole examples, and gradient() is None: training then takes "
            "plain gradients of their features"
        )
        alone = all(release.unit == "example" for release in events)
        for accountant in ACCOUNTANTS:
            for relation, stated in _claims(mechanism, schedule, accountant).items():
                bounds = epsilon_bounds(gradient, schedule, relation, asked)
                claim = (
                    f"asked for epsilon {asked:g}, the events claim epsilon {stated:.6g} under "
                    f"{relation} by {accountant}"
                )
                assert stated >= bounds.at_least * (1 - ESTIMATE_ERROR), (
                    f"{claim}, but gradients of noise multiplier "
                    f"{float(gradient.noise_multiplier):.6g} in groups of {gradient.group_size} "
                    f"cost at least {bounds.at_least:.6g} over {schedule.steps} steps"
                )
                assert not alone or stated <= bounds.at_most * LOOSEST[accountant], (
                    f"{claim}, {stated / bounds.at_most:.1f} times what the gradients cost at "
                    f"most, {bounds.at_most:.6g}: the events tell of something else"
                )
                narrowest = min(narrowest, stated / bounds.at_least - 1)
    if math.isinf(narrowest):
        raise NotApplicable("it refuses every budget of this check")
    return f"every claim is above what dp-accounting proves, the closest by {narrowest:.2%}"


def _accepted_on_all_tasks(
    subject: Subject, epsilons: Sequence[float]
) -> Iterator[tuple[float, Mechanism]]:
    for task in tasks_of(subject):
        yield from accepted(subject, task, epsilons)


def _claims(
    mechanism: Mechanism, schedule: Schedule, accountant: AccountantName
) -> dict[RowRelation, float]:
    """The claimed epsilons under every relation that is defined; none if it is refused."""
    try:
        stated = guarantee_of(mechanism, schedule, "zero-out", accountant)
    except UsageError:
        return {}
    claims: dict[str, float | None] = {"zero-out": stated.epsilon, **stated.other_relations}
    return {name: claim for name in ROW_RELATIONS if (claim := claims[name]) is not None}


def check_extreme_budgets(subject: Subject) -> str:
    """At epsilon 0.01 and 50 it works or says what it can do; at infinity it claims nothing."""
    told = []
    for task in tasks_of(subject):
        for epsilon in EXTREMES:
            if math.isfinite(epsilon) and not is_private(subject.plugin.factory):
                continue
            told.append(f"{epsilon:g} {_extreme(subject, task, epsilon)}")
    return f"epsilon {', '.join(dict.fromkeys(told))}"


def _extreme(subject: Subject, task: Task, epsilon: float) -> str:
    schedule, where = subject.schedule(), f"at epsilon {epsilon:g} on {task.name}"
    try:
        mechanism = subject.calibrated(epsilon, task)
    except UsageError as error:
        if not any(character.isdigit() for character in str(error)):
            raise AssertionError(
                f"{where} it refuses without a number that says what can be reached: {error}"
            ) from error
        return "is refused"
    claimed = guarantee_of(mechanism, schedule).epsilon
    if math.isinf(epsilon):
        assert math.isinf(claimed), f"{where} it claims epsilon {claimed:g}"
    assert claimed <= epsilon * (1 + TOLERANCE), f"{where} it claims epsilon {claimed:.9g}"
    drawn = draw(mechanism, task, 200)
    losses = drawn.mechanism.loss(task, jnp.linspace(-3.0, 3.0, 200), drawn.released)
    assert bool(jnp.all(jnp.isfinite(losses))), f"{where} some losses are not finite"
    return "works"


def check_parameters(subject: Subject) -> str:
    """Parameters have defaults, nonsense is refused, and a mechanism never changes."""
    factory = subject.plugin.factory
    defaults = parameter_defaults(factory)
    tasks_of(subject)
    factory()  # every field has a default
    _check_refused(subject, {"no_such_parameter": 1}, "an unknown parameter")
    for name, default in defaults.items():
        if not isinstance(default, dict):
            _check_refused(subject, {name: {"no": "value"}}, f"{name} = a table")
        if isinstance(default, float):
            _check_refused(subject, {name: math.nan}, f"{name} = nan")
        if isinstance(default, str):
            _check_refused(subject, {name: "no such choice"}, f"{name} = 'no such choice'")
    mechanism = subject.plugin.build(subject.parameters)
    for name in factory.__dataclass_fields__:
        try:
            setattr(mechanism, name, getattr(mechanism, name))
        except dataclasses.FrozenInstanceError:
            continue
        raise AssertionError(f"the field {name} can be set: a mechanism must be immutable")
    return f"{len(defaults)} parameters: {', '.join(defaults) or 'none'}"


def _check_refused(subject: Subject, parameters: dict[str, Any], what: str) -> None:
    """Refused by a message, when it is built or when it is calibrated."""
    wrong = Subject(subject.plugin, subject.parameters | parameters)
    try:
        for task in subject.tasks:
            wrong.calibrated(1.0, task)
    except UsageError:
        return
    except Exception as error:
        raise AssertionError(
            f"{what} ends in {type(error).__name__}: {error}; check() should refuse it with a "
            "UsageError that says what is allowed"
        ) from error
    raise AssertionError(f"{what} is accepted; check() should refuse it")


def check_pytree(subject: Subject) -> str:
    """Its numbers are leaves that compiled code can take, and everything else is static."""
    for task in tasks_of(subject):
        mechanism = draw(subject.calibrated(1.0, task), task, 200).mechanism
        leaves, structure = jax.tree.flatten(mechanism)
        for leaf in leaves:
            try:
                np.float32(leaf)
            except (TypeError, ValueError) as error:
                raise AssertionError(
                    f"{leaf!r} is no number; declare its field with flax.struct.field("
                    "pytree_node=False)"
                ) from error
        back = jax.tree.unflatten(structure, leaves)
        assert same(back, mechanism), "it is another one after it was flattened and put together"
        again = draw(subject.calibrated(1.0, task), task, 200).mechanism
        structures = {structure, jax.tree.flatten(again)[1]}
        assert len(structures) == 1, (
            "two mechanisms of equal settings have other static fields, so each trial would be "
            "compiled anew"
        )
    return "it flattens to numbers and back, equal settings alike"


def check_trials_repeat(subject: Subject) -> str:
    """A trial releases labels once; repeated, it gives the same metrics, from the same program."""
    task = tasks_of(subject)[0]
    configuration = configuration_of(subject, task, _epsilon(subject))
    first, calls = releases_of(subject, configuration)
    assert calls == 1, f"a trial released its labels {calls} times"
    programs = trace_count()
    again = run(subject, json.loads(json.dumps(configuration)))
    for part in ("test", "validation", "guarantee"):
        assert first[part] == again[part], (
            f"the same trial gave {part} {first[part]}, and then {again[part]}"
        )
    assert trace_count() == programs, "the same trial was compiled a second time"
    other = run(subject, configuration_of(subject, task, _epsilon(subject), seed=1))
    assert other["test"] != first["test"], "another seed gave the same metrics"
    return "equal to the last bit, from one compiled program; another seed gives other metrics"


def check_records_keep_the_claim(subject: Subject) -> str:
    """A record is read back as it was written, and its claim is that of the settings alone."""
    task = tasks_of(subject)[0]
    configuration = configuration_of(subject, task, _epsilon(subject))
    record = run(subject, configuration)
    line = encode(record)
    back = decode(line)
    assert encode(back) == line, "the record is another one after it was written and read"
    schedule = subject.schedule(**{
        key: record["schedule"][key] for key in ("examples", "batch_size", "steps")
    })  # fmt: skip
    mechanism = subject.calibrated(float(_epsilon(subject)), task, schedule)
    fresh = guarantee_of(mechanism, schedule)
    for name in ("epsilon", "delta", "unit", "neighboring"):
        assert back["guarantee"][name] == getattr(fresh, name), (
            f"the record claims {name} {back['guarantee'][name]}, and without looking at data the "
            f"claim is {getattr(fresh, name)}: a claim must not depend on data"
        )
    return f"strict JSON that claims epsilon {fresh.epsilon:.6g} for unit {fresh.unit}"


def _epsilon(subject: Subject) -> float | str:
    return 1.0 if is_private(subject.plugin.factory) else "inf"


CHECKS: tuple[Check, ...] = (
    check_parameters,
    check_pytree,
    check_calibration_keeps_the_budget,
    check_noise_falls_as_epsilon_grows,
    check_claim_covers_the_gradients,
    check_extreme_budgets,
    check_trials_repeat,
    check_records_keep_the_claim,
)
