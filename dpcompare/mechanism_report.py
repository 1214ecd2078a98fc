"""A mechanism as plain data, for programs: its parameters, and what it does to labels."""

import inspect
import re
from typing import Any

from dpcompare.label_table import calibrated_to_show
from dpcompare.mechanism import Mechanism, Plugin, parameter_defaults
from dpcompare.tasks import Task

_ATTRIBUTE = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", re.MULTILINE)


def described(plugin: Plugin) -> dict[str, Any]:
    """What :func:`dpcompare.mechanism.describe` tells, part by part.

    Returns:
        `name`, `class`, `version`, `documentation`, `sampling`, what it releases ("gradient" and
        "label"), and `parameters`: name to type, default and documentation ("" where the class has
        no line on it under "Attributes:").
    """
    factory = plugin.factory
    said = parameter_documentation(factory)
    return {
        "name": plugin.name,
        "class": factory.__name__,
        "version": plugin.version,
        "documentation": inspect.getdoc(factory) or "",
        "sampling": factory.sampling,
        "releases_gradients": factory.gradient is not Mechanism.gradient,
        "parameters": {
            name: {
                "type": type(default).__name__,
                "default": default,
                "documentation": said.get(name, ""),
            }
            for name, default in parameter_defaults(factory).items()
        },
    }


def parameter_documentation(factory: type[Mechanism]) -> dict[str, str]:
    """What the sections "Attributes:" of a class and its bases say, by name, each on one line."""
    found: dict[str, str] = {}
    for base in reversed(factory.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes:\n")[2]
        for names, text in _ATTRIBUTE.findall(section.partition("\n\n")[0]):
            found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found


def on_labels(
    plugin: Plugin,
    epsilon: float,
    task: Task,
    parameters: dict[str, Any],
    base_rate: float | None = None,
) -> dict[str, Any]:
    """What :func:`dpcompare.label_table.label_table` prints, as numbers.

    Returns:
        `bias`, `variance` (one number per true label) and `worst_log_ratio`; `prior` where one was
        made up to show it; of a kernel the `outputs` and `probabilities` (a row per label); of
        additive noise its `noise` (shape, sensitivity, clamped), else null.

    Raises:
        UsageError: as for ``label_table``.
    """
    mechanism, prior = calibrated_to_show(plugin, epsilon, task, parameters, base_rate)
    report = {"name": plugin.name, "epsilon": epsilon, "task": task.name, "prior": prior}
    report |= {"parameters": parameters, "outputs": None, "probabilities": None, "noise": None}
    kernel, noise = mechanism.kernel(task), mechanism.label_noise(task)
    if kernel is not None:
        return report | {
            "outputs": kernel.outputs,
            "probabilities": kernel.probabilities,
            "bias": kernel.bias(kernel.outputs),
            "variance": kernel.variance(kernel.outputs),
            "worst_log_ratio": kernel.epsilon(),
        }
    assert noise is not None  # else there would have been nothing to show
    bias, variance = noise.moments()
    return report | {
        "noise": {"shape": noise.shape, "sensitivity": noise.cap, "clamped": noise.clamped},
        "bias": bias,
        "variance": variance,
        "worst_log_ratio": noise.worst_log_ratio(),
    }
