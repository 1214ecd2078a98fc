"""A label mechanism in numbers, for the terminal: kernel, worst likelihood ratio, moments."""

import math
import tomllib
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import stats

from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel
from dpcompare.label_noise import LabelNoise
from dpcompare.mechanism import Mechanism, Plugin, parameter_defaults
from dpcompare.privacy import Budget, Schedule
from dpcompare.tasks import BinaryTask, Task

MOST_COLUMNS = 11
EXAMPLE_RATE = 0.3


def label_table(
    plugin: Plugin,
    epsilon: float,
    task: Task,
    parameters: dict[str, Any],
    base_rate: float | None = None,
) -> str:
    """What a label mechanism does to each label at an epsilon.

    Args:
        plugin: the mechanism.
        epsilon: the whole budget, > 0.
        task: whose labels they are.
        parameters: of the mechanism.
        base_rate: where the kernel depends on a prior that is not given, the mean label of the
            prior to show it for: Bernoulli, or Poisson with the tail in the last label.

    Raises:
        UsageError: the mechanism does not randomize labels, a parameter cannot be, or a base rate
            is given that nothing depends on.
    """
    mechanism, prior = calibrated_to_show(plugin, epsilon, task, parameters, base_rate)
    head = [f"{plugin.name} at epsilon {epsilon:g}, labels 0 to {task.classes - 1} of {task.name}"]
    if prior is not None:
        shown = ", ".join(f"{share:.4g}" for share in prior)
        head += [
            f"shown for the public prior {shown}; without one a part of epsilon pays for a "
            "histogram, and the kernel is that of the rest"
        ]
    kernel, noise = mechanism.kernel(task), mechanism.label_noise(task)
    body = (
        _of_kernel(kernel) if kernel is not None else _of_noise(noise) if noise is not None else []
    )
    return "\n".join([*head, "", *body]) + "\n"


def calibrated_to_show(
    plugin: Plugin,
    epsilon: float,
    task: Task,
    parameters: dict[str, Any],
    base_rate: float | None = None,
) -> tuple[Mechanism, list[float] | None]:
    """A label mechanism with its kernel or noise, and the prior that was made up for that.

    Args and errors are those of :func:`label_table`; the prior is None where none was needed.
    """
    no_kernel = UsageError(
        f"{plugin.name} has no label kernel; --epsilon is for mechanisms that randomize labels "
        "and state how, by kernel() or label_noise()"
    )
    if not _may_randomize_labels(plugin):
        raise no_kernel
    mechanism, prior = _calibrated(plugin, epsilon, task, parameters), None
    if needs_prior(plugin, mechanism, task):
        prior = example_prior(task, EXAMPLE_RATE if base_rate is None else base_rate)
        mechanism = _calibrated(plugin, epsilon, task, {**parameters, "prior": prior})
    elif base_rate is not None:
        raise UsageError(
            "--base-rate is for a kernel that needs a prior which is not given; that of "
            f"{plugin.name} does not"
        )
    if mechanism.kernel(task) is None and mechanism.label_noise(task) is None:
        raise no_kernel
    return mechanism, prior


def needs_prior(plugin: Plugin, mechanism: Mechanism, task: Task) -> bool:
    """Whether its kernel waits for a prior of the labels."""
    return (
        "prior" in parameter_defaults(plugin.factory)
        and mechanism.kernel(task) is None
        and mechanism.label_noise(task) is None
    )


def example_prior(task: Task, rate: float) -> list[float]:
    """Probabilities of the task's labels at a mean label: Bernoulli or Poisson, (K,).

    Raises:
        UsageError: the rate is not possible for the task.
    """
    task.link(rate)
    if isinstance(task, BinaryTask):
        return [1 - rate, rate]
    counts = np.arange(task.classes)
    shares = stats.poisson.pmf(counts, rate)
    shares[-1] = stats.poisson.sf(task.classes - 2, rate)
    return [float(share) for share in shares / shares.sum()]


def parse_parameters(settings: Iterable[str]) -> dict[str, Any]:
    """``name=value`` texts as parameters; a value is read as TOML, or else as text.

    Raises:
        UsageError: one has no "=".
    """
    parameters = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"-p {setting}: write name=value, e.g. -p correction=backward")
        try:
            parameters[name] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            if text.startswith("["):
                raise UsageError(f"-p {setting}: the list is not TOML: {error}") from error
            parameters[name] = text
    return parameters


def _may_randomize_labels(plugin: Plugin) -> bool:
    """Asked before calibration, which gradient mechanisms can take long for."""
    base, factory = Mechanism, plugin.factory
    return factory.kernel is not base.kernel or factory.label_noise is not base.label_noise


def _calibrated(
    plugin: Plugin, epsilon: float, task: Task, parameters: dict[str, Any]
) -> Mechanism:
    """At the epsilon; a label mechanism does not depend on the schedule."""
    mechanism = plugin.build(parameters)
    schedule = Schedule(1_000_000, 1000, 1000, mechanism.sampling)
    return mechanism.calibrate(Budget(epsilon, 1e-7), schedule, task)


def _of_kernel(kernel: LabelKernel) -> list[str]:
    labels = len(kernel.probabilities)
    lines = []
    if labels <= MOST_COLUMNS:
        lines += _row("output", [f"P(.|{label})" for label in range(labels)])
        columns = zip(kernel.outputs, kernel.probabilities.T, strict=True)
        for output, chances in columns:
            # A chance that is tiny is not 0: that would be no privacy.
            lines += _row(f"{output:.5g}", [f"{chance:.4g}" for chance in chances])
    else:
        outputs = kernel.probabilities.shape[1]
        lines += [f"kernel: {outputs} outputs; printed for at most {MOST_COLUMNS} labels only"]
    lines += [""]
    lines += _moments("", kernel.bias(kernel.outputs), kernel.variance(kernel.outputs))
    estimates = _unbiased(kernel)
    if estimates is not None:
        shown = ", ".join(f"{value:.5g}" for value in estimates)
        lines += ["", f"unbiased estimates for the outputs: {shown}"]
        lines += _moments("estimate's ", kernel.bias(estimates), kernel.variance(estimates))
    return [*lines, "", _ratio(kernel.epsilon())]


def _of_noise(noise: LabelNoise) -> list[str]:
    bias, variance = noise.moments()
    cut = f", cut to 0..{noise.cap}" if noise.clamped else ""
    lines = [f"output: label + {noise.shape} noise of sensitivity {noise.cap}{cut}"]
    return [*lines, "", *_moments("", bias, variance), "", _ratio(noise.worst_log_ratio())]


def _unbiased(kernel: LabelKernel) -> np.ndarray | None:
    """Values with the label as their mean, unless the outputs are that already or none exist."""
    if np.max(np.abs(kernel.bias(kernel.outputs))) < 1e-6:
        return None
    try:
        return kernel.unbiased_estimates()
    except UsageError:
        return None


def _moments(what: str, bias: np.ndarray, variance: np.ndarray) -> list[str]:
    lines = []
    for start in range(0, len(bias), MOST_COLUMNS):
        part = slice(start, start + MOST_COLUMNS)
        lines += _row("label", [str(label) for label in range(len(bias))[part]])
        lines += _row(f"{what}bias", map(_number, bias[part]))
        lines += _row(f"{what}variance", map(_number, variance[part]))
    return lines


def _row(name: str, cells: Iterable[str]) -> list[str]:
    return [f"{name:<20}" + "".join(f"{cell:>11}" for cell in cells)]


def _number(value: float) -> str:
    return f"{0.0 if abs(value) < 1e-12 else value:.4g}"


def _ratio(epsilon: float) -> str:
    if math.isinf(epsilon):
        return "worst likelihood ratio: infinite; these outputs are not private"
    return f"worst likelihood ratio of an output between two labels: exp({epsilon:.9g})"
