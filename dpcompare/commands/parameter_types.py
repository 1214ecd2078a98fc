"""What the values of options may be."""

import math
from typing import Any

import click


class Number(click.ParamType):
    """A finite number above a bound; click's own ranges let nan pass."""

    name = "number"

    def __init__(self, below: float = math.inf) -> None:
        self.below = below

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Parse one number, refusing nan, infinity and what is out of range."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a number", param, ctx)
        if not 0 < number < self.below:
            limit = f"between 0 and {self.below:g}" if self.below < math.inf else "above 0"
            self.fail(f"{value} must be a finite number {limit}", param, ctx)
        return number


class Names(click.ParamType):
    """A comma-separated list."""

    name = "list"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        """Split at commas; an empty list is refused."""
        if isinstance(value, list):
            return value
        names = [part.strip() for part in value.split(",") if part.strip()]
        if not names:
            self.fail("the list is empty", param, ctx)
        return names
