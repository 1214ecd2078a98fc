"""Upright boxes, to tell what overlaps."""

from typing import NamedTuple


class Box(NamedTuple):
    """Its edges, in points."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: "Box") -> bool:
        """Whether they overlap; touching is not enough."""
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.top <= other.bottom or other.top <= self.bottom)

    def within(self, other: "Box") -> bool:
        """Whether it does not stick out of the other."""
        aside = self.left < other.left or self.right > other.right
        return not (aside or self.bottom < other.bottom or self.top > other.top)


def box_around(x: float, y: float, half_width: float, half_height: float) -> Box:
    """The box with its middle at x and y."""
    return Box(x - half_width, y - half_height, x + half_width, y + half_height)
