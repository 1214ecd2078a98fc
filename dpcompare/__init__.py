"""dpcompare: what each way of being private costs an ads model."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpcompare.frame import load

__all__ = ["__version__", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """:func:`load` is imported when it is asked for: the command line need not wait for pandas."""
    if name == "load":
        from dpcompare.frame import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
