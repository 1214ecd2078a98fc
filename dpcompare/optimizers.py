"""How updates are made from gradients: the optimizers of optax, and a trial's choice among them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import optax

from dpcompare.errors import UsageError

Decay = Literal["cosine", "constant"]
LazyNoise = Literal["auto", "always", "never"]

OPTIMIZERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
    "sgd": lambda momentum: optax.identity(),
    "momentum": lambda momentum: optax.trace(decay=momentum),
    "adam": lambda momentum: optax.scale_by_adam(),
    "yogi": lambda momentum: optax.scale_by_yogi(),
    "adagrad": lambda momentum: optax.scale_by_rss(),
    "rmsprop": lambda momentum: optax.scale_by_rms(),
}

LINEAR = ("sgd", "momentum")
"""Their updates are linear in all gradients, so what a number missed can be made up for later."""


@dataclass(frozen=True)
class Recipe:
    """How updates are made from gradients; public.

    Attributes:
        optimizer: one of OPTIMIZERS.
        learning_rate: the peak learning rate.
        decay: "cosine" to zero over all steps, or "constant".
        momentum: used by the optimizer "momentum".
        chunk_size: rows per forward and backward pass; None chooses. It changes memory and
            rounding, nothing else, and has nothing to do with the paper's microbatches.
        lazy_noise: which embedding tables get their noise only when they are read, if the
            optimizer is one of LINEAR: "auto" chooses big ones, "always" all, "never" none.
        evaluations: how often the validation rows are looked at, evenly spaced over the steps;
            the last time is at the end.
        weight_decay: L2 penalty: this times every weight that is no bias is added to the mean
            gradient, after noise. Above 0 it keeps every table from being lazy.
        base_rate: the output bias starts where the prediction is this rate (or mean count); 0
            starts it at 0. Public knowledge: it is not paid for.
    """

    optimizer: str = "momentum"
    learning_rate: float = 0.1
    decay: Decay = "cosine"
    momentum: float = 0.9
    chunk_size: int | None = None
    lazy_noise: LazyNoise = "auto"
    evaluations: int = 1
    weight_decay: float = 0.0
    base_rate: float = 0.0

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise UsageError(
                f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}"
            )
        if self.decay not in get_args(Decay):
            raise UsageError(f"decay must be one of {', '.join(get_args(Decay))}")
        if not 0 < self.learning_rate < float("inf"):
            raise UsageError(f"learning_rate must be above 0, got {self.learning_rate}")
        if not 0 <= self.momentum < 1:
            raise UsageError(f"momentum must be in [0, 1), got {self.momentum}")
        if self.chunk_size is not None and self.chunk_size < 1:
            raise UsageError(f"chunk_size must be at least 1, got {self.chunk_size}")
        if self.lazy_noise not in get_args(LazyNoise):
            raise UsageError(
                f"lazy_noise must be one of {', '.join(get_args(LazyNoise))}, "
                f"got {self.lazy_noise!r}"
            )
        if self.evaluations < 1:
            raise UsageError(f"evaluations must be at least 1, got {self.evaluations}")
        for name in ("weight_decay", "base_rate"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise UsageError(f"{name} must be 0 or more, got {value}")

    def learning_rates(self, steps: int) -> np.ndarray:
        """The learning rate of each step, (steps,) float32."""
        if self.decay == "constant":
            return np.full(steps, self.learning_rate, np.float32)
        schedule = optax.cosine_decay_schedule(self.learning_rate, steps)
        return np.asarray(schedule(np.arange(steps)), np.float32)

    def evaluation_steps(self, steps: int) -> list[int]:
        """After how many steps the validation rows are looked at; rising, `steps` is the last."""
        every = [round(steps * (place + 1) / self.evaluations) for place in range(self.evaluations)]
        return sorted({step for step in every if step > 0})
