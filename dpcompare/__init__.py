"""dpcompare: what each way of being private costs an ads model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpcompare.api import run_study, train
    from dpcompare.frame import load
    from dpcompare.trained_model import TrainedModel, load_model

__all__ = ["TrainedModel", "__version__", "load", "load_model", "run_study", "train"]
__version__ = "0.1.0"

_HOMES = {
    "TrainedModel": "dpcompare.trained_model",
    "load": "dpcompare.frame",
    "load_model": "dpcompare.trained_model",
    "run_study": "dpcompare.api",
    "train": "dpcompare.api",
}


def __getattr__(name: str) -> Any:
    """Functions are imported when they are asked for: the command line need not wait for them."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
