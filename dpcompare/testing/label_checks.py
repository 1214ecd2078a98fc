"""Checks of what mechanisms do with labels: released at the claimed price, once, and then gone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpcompare import trial
from dpcompare.configuration import Configuration, schedule_of
from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel
from dpcompare.mechanism import Mechanism, diagnostic_fields
from dpcompare.randomness import numpy_generator
from dpcompare.tasks import Task
from dpcompare.testing.claims import (
    TOLERANCE,
    accepted,
    label_claim,
    tasks_of,
    whole_claim,
)
from dpcompare.testing.confidence import clopper_pearson, separation
from dpcompare.testing.label_samples import (
    ROWS,
    Draw,
    as_compiled,
    columns_of_draws,
    columns_of_rows,
    compiled_loss,
    draw,
    draw_of,
    same,
)
from dpcompare.testing.outcome import Check, NotApplicable
from dpcompare.testing.subject import Subject, features, labels
from dpcompare.testing.tiny_trials import configuration_of, with_plugin

ERROR = 1e-9
"""The chance that a check which samples fails a mechanism that keeps its promise."""

KERNEL_EPSILONS = (0.1, 1.0, 5.0, 20.0)
SAMPLED_EPSILONS = (1.0, 3.0)

FEW = 8
"""Rows of which one label is changed."""

DRAWS = 300
"""Releases of each of two neighboring vectors: what tells them apart for sure proves 1.9."""

JUMP = 0.05
"""Far above what a loss changes by where log-odds change by NUDGE, far below one label's worth."""

NUDGE = 1e-5

_ROUNDING = 1e-12


def check_kernel_keeps_the_claim(subject: Subject) -> str:
    """The exact likelihood ratio of the label kernel is at most what the events claim."""
    schedule, largest = subject.schedule(), 0.0
    for task in tasks_of(subject):
        for epsilon, mechanism in accepted(subject, task, KERNEL_EPSILONS):
            claim = label_claim(mechanism, schedule)
            kernel = draw(mechanism, task, 2000).mechanism.kernel(task)
            if kernel is None:
                raise NotApplicable(
                    "it has no finite kernel; released_labels_keep_the_claim samples it"
                )
            spent = _beyond(kernel, claim.epsilon) if claim.delta else kernel.epsilon()
            allowed = claim.delta if claim.delta else claim.epsilon * (1 + TOLERANCE)
            assert spent <= allowed, (
                f"at epsilon {epsilon:g} on {task.name} the events claim epsilon "
                f"{claim.epsilon:.9g}, delta {claim.delta:g}, but the kernel's "
                f"{'delta there is' if claim.delta else 'worst likelihood ratio is the exp of'} "
                f"{spent:.9g}"
            )
            largest = max(largest, spent / allowed)
    return f"uses up to {largest:.4f} of the claim, at epsilons from 0.1 to 20"


def _beyond(kernel: LabelKernel, epsilon: float) -> float:
    """The delta of a kernel at an epsilon: the largest hockey-stick divergence of two rows."""
    p = kernel.probabilities
    excess = np.maximum(p[:, None] - np.exp(epsilon) * p[None, :], 0.0)
    return float(excess.sum(axis=2).max())


def check_released_labels_follow_the_kernel(subject: Subject) -> str:
    """Labels are drawn with the probabilities that the kernel states."""
    looked_at = 0
    for task in tasks_of(subject):
        for epsilon, mechanism in accepted(subject, task, SAMPLED_EPSILONS):
            label_claim(mechanism, subject.schedule())
            drawn = draw(mechanism, task)
            kernel = drawn.mechanism.kernel(task)
            if kernel is None:
                raise NotApplicable("it has no finite kernel that its labels could follow")
            looked_at += _compare(drawn, kernel, f"at epsilon {epsilon:g} on {task.name}")
    if not looked_at:
        raise NotApplicable(
            "what it releases is an encoding of the kernel's outputs, which cannot be told apart; "
            "released_labels_keep_the_claim samples it"
        )
    return f"{looked_at} frequencies, of {ROWS:,} labels each time, are those of the kernel"


def _compare(drawn: Draw, kernel: LabelKernel, where: str) -> int:
    """How many frequencies were compared; none if outputs cannot be recognized."""
    leaves = jax.tree.leaves(drawn.released)
    if len(leaves) != 1 or np.size(leaves[0]) != len(drawn.labels):
        return 0
    of_column = kernel.outputs.astype(np.float32)
    values, outputs = np.asarray(leaves[0], np.float32).reshape(-1), np.unique(of_column)
    different = np.unique(values)
    assert len(different) <= len(outputs), (
        f"{where} it releases {len(different):,} different values, more than the "
        f"{len(outputs)} outputs of its kernel; a kernel must describe all that is drawn"
    )
    if not np.isin(different, outputs).all():
        return 0
    compared = len(kernel.probabilities) * len(outputs)
    for label, row in enumerate(kernel.probabilities):
        mine = values[drawn.labels == label]
        for output in outputs:
            chance = float(row[of_column == output].sum())
            count = int(np.sum(mine == output))
            low, high = clopper_pearson(count, len(mine), ERROR / (8 * compared))
            assert low - _ROUNDING <= chance <= high + _ROUNDING, (
                f"{where} label {label} becomes {output:g} in {count:,} of {len(mine):,} draws "
                f"({count / len(mine):.5f}), and the kernel says {chance:.5f}"
            )
    return compared


def check_released_labels_keep_the_claim(subject: Subject) -> str:
    """No event in what is left of a row tells its true label better than claimed."""
    found = []
    for task in tasks_of(subject):
        for epsilon, mechanism in accepted(subject, task, SAMPLED_EPSILONS):
            claim = label_claim(mechanism, subject.schedule())
            drawn = draw(mechanism, task)
            columns = columns_of_rows(drawn, task)
            groups = [
                {name: column[drawn.labels == label] for name, column in columns.items()}
                for label in range(task.classes)
            ]
            proved = separation(groups, claim.delta, ERROR / 4)
            assert proved.epsilon <= claim.epsilon, (
                f"at epsilon {epsilon:g} on {task.name} the event {proved} is so much more "
                f"frequent for label {proved.groups[0]} than for {proved.groups[1]} that epsilon "
                f"is at least {proved.epsilon:.3f}, and {claim.epsilon:.3f} is claimed"
            )
            found.append(f"{proved.epsilon:.2f} of {claim.epsilon:.2f} ({task.name})")
    return f"{ROWS:,} labels prove epsilon {', '.join(found)}"


def check_nothing_is_learnt_for_free(subject: Subject) -> str:
    """What the mechanism learns from the labels fits the claim, like all that it releases."""
    task = min(tasks_of(subject), key=lambda task: task.classes)
    mechanism = _at_some_epsilon(subject, task, 0.5)
    schedule = subject.schedule()
    claim = whole_claim(mechanism, schedule)
    labels_are_released = any(r.unit == "label" for r in mechanism.events(schedule))
    first = np.arange(FEW) % task.classes
    second = first.copy()
    second[0] = task.classes - 1
    groups = [
        columns_of_draws(
            [draw_of(mechanism, task, true, DRAWS * number + i) for i in range(DRAWS)],
            released=labels_are_released,
        )
        for number, true in enumerate((first, second))
    ]
    shared = [name for name in groups[0] if name in groups[1]]
    groups = [{name: group[name] for name in shared} for group in groups]
    proved = separation(groups, claim.delta, ERROR * 1000)
    assert proved.epsilon <= claim.epsilon, (
        f"one label of {FEW} was changed, and the event {proved} tells the two apart: epsilon is "
        f"at least {proved.epsilon:.2f}, and {claim.epsilon:.2f} is claimed on {task.name}. What "
        "is learnt from labels must be public, or be a release of its own in events()"
    )
    _check_room_for_what_was_learnt(mechanism, task, claim.epsilon)
    return f"{2 * DRAWS} releases of neighboring labels prove epsilon {proved.epsilon:.2f}"


def _check_room_for_what_was_learnt(mechanism: Mechanism, task: Task, epsilon: float) -> None:
    """A kernel that depends on the labels is a second release, which needs a part of the claim."""
    kernels = []
    for label in (0, task.classes - 1):
        kernel = draw_of(mechanism, task, np.full(2000, label)).mechanism.kernel(task)
        if kernel is None:
            return
        kernels.append(kernel)
    one, other = kernels
    if np.array_equal(one.outputs, other.outputs) and np.array_equal(
        one.probabilities, other.probabilities
    ):
        return
    spent = max(one.epsilon(), other.epsilon())
    assert spent < epsilon * (1 - TOLERANCE), (
        f"its kernel is made from the labels, and the kernel alone has a likelihood ratio of "
        f"exp({spent:.6g}) on {task.name}: of the claimed epsilon {epsilon:.6g} nothing is left "
        "for what was learnt to make it"
    )


def check_release_follows_its_generator(subject: Subject) -> str:
    """The same generator gives the same labels to the last bit, another one gives others."""
    for task in tasks_of(subject):
        mechanism = _at_some_epsilon(subject, task, 1.0)
        label_claim(mechanism, subject.schedule())
        first, again, other = (draw(mechanism, task, 2000, seed) for seed in (0, 0, 1))
        assert same(first.released, again.released), (
            f"the same generator gave other labels on {task.name}: randomness comes from "
            "elsewhere, so labels are redrawn whenever a trial is repeated, at the full price"
        )
        assert same(first.mechanism, again.mechanism), (
            f"the same generator gave another mechanism on {task.name}: what it learnt is drawn "
            "with other randomness"
        )
        assert not same(first.released, other.released), (
            f"another generator gave the same labels on {task.name}: they are not random, or the "
            "randomness is not the generator's"
        )
    return "labels depend on the generator that they are given, and on no other"


def check_loss_draws_nothing(subject: Subject) -> str:
    """The loss of a row is a function of its logit and its released label, and nothing else."""
    everything = np.arange(ROWS)
    changes = {
        "computed a second time": (everything, 0.0),
        f"at logits that are {NUDGE:g} larger": (everything, NUDGE),
        "in a batch of the other order": (everything[::-1], 0.0),
        "in a batch of other rows": (everything % (ROWS // 2), 0.0),
    }
    for task in tasks_of(subject):
        drawn = draw(_at_some_epsilon(subject, task, 1.0), task)
        rng = numpy_generator("log-odds to check losses at", task.name)
        logits = jnp.asarray(rng.uniform(-3, 3, ROWS), jnp.float32)
        losses = _losses(drawn, task, logits)
        for change, (rows, nudge) in changes.items():
            released = jax.tree.map(lambda leaf, rows=rows: leaf[rows], drawn.released)
            again = _losses(drawn._replace(released=released), task, logits[rows] + nudge)
            expected = losses[rows]
            off = np.abs(again - expected) > JUMP * (1 + 1e-2 * np.abs(expected))
            assert not off.any(), (
                f"{change}, the loss of {off.sum():,} of {ROWS:,} rows is another one on "
                f"{task.name} ({again[off][0]:.4f} where it was {expected[off][0]:.4f}); a loss "
                "that draws redraws labels at every step"
            )
        few = jax.tree.map(lambda leaf: leaf[:200], drawn.released)
        mechanism = as_compiled(drawn.mechanism)
        once, twice = (mechanism.loss(task, logits[:200], few) for _ in range(2))
        assert same(once, twice), f"outside compiled code, two calls differ on {task.name}"
    return "the same whenever it is computed, in any batch, and continuous"


def _losses(drawn: Draw, task: Task, logits: jax.Array) -> np.ndarray:
    """(rows,), compiled."""
    return np.asarray(
        compiled_loss(as_compiled(drawn.mechanism), task, logits, drawn.released), float
    )


def check_one_draw_serves_all_trials(subject: Subject) -> str:
    """Trials that differ only in training share one draw of the labels, and no others do."""
    task = tasks_of(subject)[0]
    mechanism = _at_some_epsilon(subject, task, 1.0)
    label_claim(mechanism, subject.schedule())
    if whole_claim(mechanism, subject.schedule()).unit != "label":
        raise NotApplicable("it releases gradients too, whose schedule may decide about labels")
    configuration = configuration_of(subject, task, 1.0)
    stream, drawn = _stream_and_draw(subject, configuration, task)
    for changes in ({"learning_rate": 0.1}, {"batch_size": 20}, {"epochs": 3.0}):
        changed = configuration_of(subject, task, 1.0, training=changes)
        other_stream, other = _stream_and_draw(subject, changed, task)
        shared = other_stream == stream and same(other.released, drawn.released)
        assert shared, (
            f"trials that differ in {', '.join(changes)} only get other labels: each candidate of "
            "a tuning then costs the full epsilon again"
        )
    other_seed, _ = _stream_and_draw(subject, configuration_of(subject, task, 1.0, seed=1), task)
    assert other_seed != stream, "another seed gets the same draw"
    for epsilon in (0.5, 2.0):
        try:
            changed = configuration_of(subject, task, epsilon)
            other_stream, other = _stream_and_draw(subject, changed, task)
        except UsageError:
            continue
        assert other_stream != stream or same(other.released, drawn.released), (
            f"epsilons 1 and {epsilon:g} draw other labels from the same randomness, so the two "
            "releases together reveal more than their epsilons add up to; kernel() must describe "
            "what is drawn"
        )
    return "learning rate, batch size and epochs share it; seed and epsilon do not"


def _stream_and_draw(
    subject: Subject, configuration: Configuration, task: Task
) -> tuple[tuple[Any, ...], Draw]:
    """The words that name a trial's draw, and the draw."""

    def find() -> tuple[tuple[Any, ...], Draw]:
        rows = trial.training_rows(configuration)
        schedule = schedule_of(configuration, rows)
        mechanism = subject.plugin.build(configuration["mechanism"]["parameters"])
        mechanism = trial.calibrated(mechanism, configuration, schedule)
        stream = trial.label_stream(configuration, mechanism, task)
        true = labels(rows, task)
        rng = numpy_generator(*stream)
        after, released = mechanism.release_labels(true.copy(), features(rows), rng, task)
        return stream, Draw(after, true, released)

    return with_plugin(subject, find)


def check_true_labels_are_out_of_reach(subject: Subject) -> str:
    """Once labels are released, nothing the mechanism answers depends on the true ones."""
    rows = 200
    for task in tasks_of(subject):
        mechanism = _at_some_epsilon(subject, task, 1.0)
        schedule = subject.schedule()
        label_claim(mechanism, schedule)
        true = labels(rows, task)
        rng = numpy_generator("labels drawn to check mechanisms with", 0)
        after, released = mechanism.release_labels(true, features(rows), rng, task)
        before = _answers(subject, after, released, task)
        true[:] = task.classes - 1 - true  # in place: who still looks at them sees others
        draw_of(mechanism, task, true, 1)  # and who remembers the last ones elsewhere does too
        for name, value in _answers(subject, after, released, task).items():
            assert same(value, before[name]), (
                f"{name} changed on {task.name} when the true labels did, after their release: "
                "the mechanism still has them"
            )
    return "loss, predictions, weights, events and fields stay what they were"


def check_diagnostics_decide_nothing(subject: Subject) -> str:
    """What is counted outside the guarantee, in fields made by diagnostic(), changes no answer."""
    names = diagnostic_fields(subject.plugin.factory)
    if not names:
        raise NotApplicable("it has no field made by diagnostic()")
    for task in tasks_of(subject):
        drawn = draw(_at_some_epsilon(subject, task, 1.0), task, 200)
        before = _answers(subject, drawn.mechanism, drawn.released, task)
        for other in (None, -1.0, 0.5):
            changed = drawn.mechanism.replace(**dict.fromkeys(names, other))
            try:
                after = _answers(subject, changed, drawn.released, task)
            except Exception as error:
                raise AssertionError(
                    f"with {' and '.join(names)} = {other} it ends in {type(error).__name__}: "
                    f"{error}; an exported model does not hold them"
                ) from error
            for name in before.keys() - {"the fields", "the notes"}:
                assert same(after[name], before[name]), (
                    f"{name} on {task.name} depends on {' or '.join(names)}, which the guarantee "
                    "does not cover and an exported model does not hold"
                )
    return f"{', '.join(names)}: told in notes only"


def _answers(subject: Subject, mechanism: Mechanism, released: Any, task: Task) -> dict[str, Any]:
    """Everything that the contract asks after the release, as copies."""
    logits = jnp.linspace(-3.0, 3.0, jax.tree.leaves(released)[0].shape[0])
    gradient = mechanism.gradient()
    kernel = mechanism.kernel(task)
    answers: dict[str, Callable[[], Any]] = {
        "what was released": lambda: released,
        "the fields": lambda: jax.tree.leaves(mechanism),
        "the loss": lambda: mechanism.loss(task, logits, released),
        "the predictions": lambda: mechanism.predict(task, logits),
        "the gradient release": lambda: gradient,
        "the weights": lambda: mechanism.weights(jnp.abs(logits)) if gradient else None,
        "the kernel": lambda: kernel and (kernel.probabilities, kernel.outputs),
        "the events": lambda: str(mechanism.events(subject.schedule())),
        "the notes": lambda: str(mechanism.notes()),
    }
    return {
        name: jax.tree.map(lambda leaf: np.array(leaf, copy=True), answer())
        for name, answer in answers.items()
    }


def _at_some_epsilon(subject: Subject, task: Task, wanted: float) -> Mechanism:
    """At the wanted epsilon, or else at 1, which every task of a subject accepts."""
    return next(iter(dict(accepted(subject, task, (wanted, 1.0))).values()))


CHECKS: tuple[Check, ...] = (
    check_kernel_keeps_the_claim,
    check_released_labels_follow_the_kernel,
    check_released_labels_keep_the_claim,
    check_nothing_is_learnt_for_free,
    check_release_follows_its_generator,
    check_loss_draws_nothing,
    check_one_draw_serves_all_trials,
    check_true_labels_are_out_of_reach,
    check_diagnostics_decide_nothing,
)
