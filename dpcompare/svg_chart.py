"""Curves over epsilon as an SVG that goes into a page: values on hover and by keyboard, no script.

Colors, markers, dashes, axis limits and what is written beyond an axis are those of
`dpcompare.figures`. Every point is a group of its own that can be focused and holds its tooltip;
the page's style sheet shows the tooltip while the group is hovered or focused.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.ticker import MaxNLocator

from dpcompare.figures.axes import SMALL, decimals, log_places, value_label, value_limits
from dpcompare.figures.axes import value_text as written
from dpcompare.figures.beyond import SIDES, marks, with_beyond
from dpcompare.figures.curves import CURVE_LOOK
from dpcompare.figures.numbers import entries, lines, scores
from dpcompare.figures.style import curve_styles, line_styles
from dpcompare.metric_sets import METRICS

WIDTH, LEFT, PLOT, HEIGHT = 760.0, 66.0, 530.0, 250.0  # pixels; the rest is for names of lines
FONT = 12.0  # pixels
CHARACTER = 0.62 * FONT  # pixels, more than most fonts need on average
ROW = 16.0  # pixels, from one line of text to the next
TOP, BOTTOM = 14.0, 44.0  # pixels around the axes, without what is written beyond them
RADIUS = 4.2  # pixels, of a marker
REACH = 9.0  # pixels: how near to a point the mouse has to be; nearer points share a tooltip
TIP_COLUMNS, TIP_DECIMALS = 48, 4
INK, GRID = "#262626", "#e6e6e6"

_MARKERS = {  # in units of the radius
    "s": "M-.9 -.9H.9V.9H-.9Z",
    "^": "M0 -1.1L1 .9H-1Z",
    "v": "M0 1.1L1 -.9H-1Z",
    "D": "M0 -1.2L1.2 0L0 1.2L-1.2 0Z",
    "P": "M-.4 -1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    "X": "M0 -.5L.6 -1.1L1.1 -.6L.5 0L1.1 .6L.6 1.1L0 .5L-.6 1.1L-1.1 .6L-.5 0L-1.1 -.6L-.6 -1.1Z",
    "o": "M-1 0A1 1 0 1 1 1 0A1 1 0 1 1 -1 0Z",
}


@dataclass(frozen=True)
class LegendEntry:
    """One line of the legend.

    Attributes:
        sample: an SVG of the line with its marker.
        text: what it is; not escaped.
    """

    sample: str
    text: str


def legend(summary: pd.DataFrame, names: Sequence[str]) -> list[LegendEntry]:
    """What the lines in the charts are.

    Args:
        summary: from :func:`dpcompare.summary.summarize`.
        names: the metrics that are drawn.
    """
    numbers = pd.concat([_numbers(summary, name) for name in names])
    styles, looks = _looks(numbers)
    named = numbers[numbers["mean"].notna() & (numbers["kind"] != "uninformed")]
    found = []
    for kind, label, tried in entries(named):
        svg = ET.Element("svg", {"viewBox": "0 0 44 14", "aria-hidden": "true", "class": "sample"})
        style = styles[label] if kind == "curve" else looks[kind, label]
        _path(svg, "M2 7H42", CURVE_LOOK | style)
        if kind == "curve":
            _marker(svg, 22, 7, style)
        note = " (epsilon = inf)" if kind == "reference" else ""
        found.append(LegendEntry(_text_of(svg), label + note + tried))
    return found


def chart(summary: pd.DataFrame, name: str, prefix: str) -> str:
    """A metric against epsilon, as the text of an ``svg`` element.

    Args:
        summary: from :func:`dpcompare.summary.summarize`.
        name: of the metric.
        prefix: starts every id, so that a page can hold several charts.

    Returns:
        The element, everything in it escaped; "" where no curve has a value at a finite epsilon.
        Its classes are for the page's style sheet: ``point`` (can be focused), ``tip`` and
        ``ring`` in it, to be shown while the point is hovered or has the focus.
    """
    numbers = _numbers(summary, name)
    curves = numbers[numbers["kind"] == "curve"]
    if curves["mean"].isna().all():
        return ""
    return _text_of(_Panel(summary, numbers, name, prefix).draw())


def _numbers(summary: pd.DataFrame, name: str) -> pd.DataFrame:
    """All that is in the chart of a metric: curves first, then horizontal lines."""
    finite = np.isfinite(summary["epsilon"])
    rows = scores(summary, name)
    rows.insert(0, "kind", np.where(finite, "curve", "reference"))
    rows["unit"], rows["candidate"] = summary["unit"], summary["candidate"]
    rows = pd.concat([rows[finite], rows[~finite], lines(summary, name)], ignore_index=True)
    return with_beyond(rows, METRICS[name])


def _looks(numbers: pd.DataFrame) -> tuple[dict[str, Any], dict[tuple[str, str], Any]]:
    curves, rest = numbers[numbers["kind"] == "curve"], numbers[numbers["kind"] != "curve"]
    styles = curve_styles(list(dict.fromkeys(curves["label"])))
    return styles, line_styles(zip(rest["kind"], rest["label"], strict=True))


@dataclass(frozen=True)
class _Spot:
    """A point of a curve and where it is, in pixels."""

    label: str
    x: float
    y: float
    row: Any


class _Panel:
    """One chart while it is drawn."""

    def __init__(self, summary: pd.DataFrame, numbers: pd.DataFrame, name: str, prefix: str):
        self.metric, self.prefix, self.numbers = METRICS[name], f"{prefix}-{name}", numbers
        self.curves = numbers[(numbers["kind"] == "curve")]
        self.lines = numbers[(numbers["kind"] != "curve") & numbers["mean"].notna()]
        self.styles, self.looks = _looks(numbers)
        self.low, self.high = value_limits(numbers, self.metric)
        self.places = decimals(self.low, self.high)
        epsilons = sorted(set(self.curves["epsilon"]))
        pixels = log_places(epsilons, PLOT)[1]
        self.x = {e: LEFT + float(p) for e, p in zip(epsilons, pixels, strict=True)}
        width = PLOT * SMALL / FONT  # of axes with text as large as in the other figures
        self.beyond = {s: marks(numbers, self.metric, s, "epsilon", width) for s in SIDES}
        rows = {s: int(m["row"].max()) + 1 if len(m) else 0 for s, m in self.beyond.items()}
        self.top = TOP + ROW * rows["above"]
        self.bottom = self.top + HEIGHT
        self.ticks_at = self.bottom + ROW * rows["below"]
        self.total = self.ticks_at + BOTTOM

    def y(self, value: float) -> float:
        return self.top + HEIGHT * (self.high - value) / (self.high - self.low)

    def draw(self) -> ET.Element:
        names = ", ".join(dict.fromkeys(self.curves["label"]))
        root = ET.Element(
            "svg",
            {
                "class": "chart",
                "viewBox": f"0 0 {WIDTH:g} {self.total:g}",
                "role": "group",
                "aria-label": f"{self.metric.title} against epsilon: {names}. Every point can be "
                "focused; all values are in the table of numbers.",
                "font-size": f"{FONT:g}",
                "fill": INK,
            },
        )
        visible = _sub(root, "g", aria_hidden="true")
        clip = _sub(_sub(visible, "clipPath", id=f"{self.prefix}-clip"), "rect")
        box = {"x": LEFT, "y": self.top, "width": PLOT, "height": HEIGHT}
        for key, value in box.items():
            clip.set(key, _pixels(value))
        self._axes(visible)
        inside = _sub(visible, "g", clip_path=f"url(#{self.prefix}-clip)")
        self._horizontal_lines(inside)
        spots = [spot for label in self.styles for spot in self._curve(inside, label)]
        for spot in spots:
            _marker(visible, spot.x, spot.y, self.styles[spot.label], spot.row["n_seeds"] == 1)
        self._line_names(visible)
        spots += self._beyond(visible)
        for spot in sorted(spots, key=lambda s: list(self.styles).index(s.label)):
            self._point(root, spot, spots)
        return root

    def _axes(self, parent: ET.Element) -> None:
        for tick in _ticks(self.low, self.high):
            y = self.y(tick)
            _path(parent, f"M{LEFT:g} {y:.1f}H{LEFT + PLOT:g}", {"color": GRID, "linewidth": 1})
            _text(parent, LEFT - 8, y + 4, _tick_text(tick, self.low, self.high), "end")
        last = -math.inf
        for epsilon, x in self.x.items():
            look = {"color": GRID, "linewidth": 1}
            _path(parent, f"M{x:.1f} {self.top:.1f}V{self.bottom:.1f}", look)
            half = CHARACTER * (len(f"{epsilon:g}") + 1) / 2
            if x - half >= last:
                _text(parent, x, self.ticks_at + 17, f"{epsilon:g}", "middle")
                last = x + half
        frame = f"M{LEFT:g} {self.top:.1f}V{self.bottom:.1f}H{LEFT + PLOT:g}"
        _path(parent, frame, {"color": INK, "linewidth": 1})
        middle = LEFT + PLOT / 2
        _text(parent, middle, self.ticks_at + 36, "epsilon (log scale)", "middle")
        label = _text(parent, 0, 0, value_label(self.metric).replace("\n", " "), "middle")
        label.set("transform", f"translate(13 {self.top + HEIGHT / 2:.1f}) rotate(-90)")

    def _horizontal_lines(self, parent: ET.Element) -> None:
        for _, line in self.lines.iterrows():
            if not math.isnan(line["standard_error"]):
                band = _sub(parent, "rect", fill=INK, fill_opacity="0.12")
                top, bottom = self.y(line["high"]), self.y(line["low"])
                size = {"x": LEFT, "y": top, "width": PLOT, "height": bottom - top}
                for key, value in size.items():
                    band.set(key, _pixels(value))
            y = self.y(line["mean"])
            path = f"M{LEFT:g} {y:.1f}H{LEFT + PLOT:g}"
            _path(parent, path, self.looks[line["kind"], line["label"]])

    def _line_names(self, parent: ET.Element) -> None:
        """Names beside the axes, moved apart where lines are close."""
        named = []
        for _, line in self.lines.sort_values("mean", ascending=False, kind="stable").iterrows():
            value = line["mean"]
            arrow = "↑ " if value > self.high else "↓ " if value < self.low else ""
            text = f"{arrow}{line['label']} {written(value, self.places)}"
            inside = min(max(value, self.low), self.high)
            named.append((self.y(inside), textwrap.wrap(text, 20)))
        end = -math.inf
        ends = []
        for y, rows in named:
            start = max(y - ROW * len(rows) / 2, end)
            end = start + ROW * len(rows)
            ends.append(end)
        overflow = max(0.0, end - self.ticks_at - ROW / 2)
        for (y, rows), bottom in zip(named, ends, strict=True):
            start = bottom - ROW * len(rows) - overflow
            x, center = LEFT + PLOT, start + ROW * len(rows) / 2
            path = f"M{x:g} {y:.1f}L{x + 14:g} {center:.1f}"
            _path(parent, path, {"color": "#999999", "linewidth": 0.8})
            for number, row in enumerate(rows):
                _text(parent, x + 17, start + ROW * (number + 0.75), row)

    def _curve(self, parent: ET.Element, label: str) -> list[_Spot]:
        """Draw band, line and error bars of a curve; its points within the axes come back."""
        style = self.styles[label]
        curve = self.curves[self.curves["label"] == label]
        known = curve[curve["mean"].notna()]
        for piece in _pieces(curve, "standard_error"):
            upper = [f"{self.x[r['epsilon']]:.1f} {self.y(r['high']):.1f}" for r in piece]
            lower = [f"{self.x[r['epsilon']]:.1f} {self.y(r['low']):.1f}" for r in piece]
            band = _sub(parent, "path", fill=to_hex(style["color"]), fill_opacity="0.18")
            band.set("d", f"M{'L'.join(upper + lower[::-1])}Z")
        for piece in _pieces(curve, "mean"):
            points = [f"{self.x[r['epsilon']]:.1f} {self.y(r['mean']):.1f}" for r in piece]
            _path(parent, f"M{'L'.join(points)}", CURVE_LOOK | style)
        for _, row in known[known["standard_error"].notna()].iterrows():
            ends = f"{self.y(row['low']):.1f}V{self.y(row['high']):.1f}"
            look = {"color": style["color"], "linewidth": 1.2}
            _path(parent, f"M{self.x[row['epsilon']]:.1f} {ends}", look)
        return [
            _Spot(label, self.x[row["epsilon"]], self.y(row["mean"]), row)
            for _, row in known[~known["above_axis"] & ~known["below_axis"]].iterrows()
        ]

    def _beyond(self, parent: ET.Element) -> list[_Spot]:
        """Write what is beyond the axes; its points come back."""
        spots = []
        for side, found in self.beyond.items():
            for _, mark in found.iterrows():
                shift = 9 + ROW * mark["row"]
                y = self.top - shift if side == "above" else self.bottom + shift
                spot = _Spot(str(mark["label"]), self.x[mark["epsilon"]], y, mark)
                _marker(parent, spot.x, y, self.styles[spot.label], scale=0.85)
                _text(parent, spot.x + 6.5, y + 4, mark["text"])
                spots.append(spot)
        return spots

    def _point(self, parent: ET.Element, spot: _Spot, spots: Sequence[_Spot]) -> None:
        """A place that can be hovered and focused, with its tooltip; drawn above all else."""
        same = [
            other
            for other in spots
            if other is not spot and math.hypot(other.x - spot.x, other.y - spot.y) <= REACH
        ]
        texts = [spot.label, *self._told(spot)]
        texts += [f"also here: {other.label} {self._value(other)}" for other in same]
        group = _sub(parent, "g", class_="point", tabindex="0", role="img")
        group.set("aria-label", "; ".join(texts))
        for kind, radius in (("reach", REACH), ("ring", RADIUS + 3.5)):
            circle = _sub(group, "circle", class_=kind, fill="none", pointer_events="all")
            for key, value in {"cx": spot.x, "cy": spot.y, "r": radius}.items():
                circle.set(key, _pixels(value))
            if kind == "ring":
                circle.set("stroke", INK)
                circle.set("stroke-width", "2")
        rows = [(row, number == 0) for number, text in enumerate(texts) for row in _wrap(text)]
        width = CHARACTER * max(len(row) for row, _ in rows) + 18
        height = ROW * len(rows) + 12
        x = spot.x + 13 if spot.x + 15 + width < WIDTH else max(2.0, spot.x - 13 - width)
        y = min(max(spot.y - height / 2, 2.0), max(2.0, self.total - height - 2))
        tip = _sub(group, "g", class_="tip", aria_hidden="true", pointer_events="none")
        box = _sub(tip, "rect", rx="4", fill="#ffffff", stroke=INK)
        for key, value in {"x": x, "y": y, "width": width, "height": height}.items():
            box.set(key, _pixels(value))
        for number, (row, bold) in enumerate(rows):
            text = _text(tip, x + 9, y + ROW * (number + 1), row)
            if bold:
                text.set("font-weight", "bold")

    def _told(self, spot: _Spot) -> list[str]:
        row = spot.row
        unit = f", protects one {row['unit']}" if isinstance(row["unit"], str) else ""
        seeds = "1 seed" if row["n_seeds"] == 1 else f"{row['n_seeds']:.0f} seeds"
        told = [
            f"epsilon {row['epsilon']:g}{unit}",
            f"{self.metric.title} {self._value(spot)} ({seeds})",
        ]
        if isinstance(row["candidate"], str) and row["candidate"]:
            told.append(f"chosen of {row['n_candidates']:.0f}: {row['candidate']}")
        return told

    def _value(self, spot: _Spot) -> str:
        error, places = spot.row["standard_error"], max(self.places, TIP_DECIMALS)
        spread = "" if math.isnan(error) else f" ± {written(error, places)}"
        return f"{written(spot.row['mean'], places)}{spread}"


def _pieces(curve: pd.DataFrame, column: str) -> list[list[Any]]:
    """The rows of a curve between those where a column has no value."""
    pieces: list[list[Any]] = [[]]
    for _, row in curve.iterrows():
        if math.isnan(row[column]):
            pieces.append([])
        else:
            pieces[-1].append(row)
    return [piece for piece in pieces if piece]


def _ticks(low: float, high: float) -> list[float]:
    found = MaxNLocator(nbins=6, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(tick) for tick in found if low <= tick <= high]


def _tick_text(tick: float, low: float, high: float) -> str:
    ticks = _ticks(low, high)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else high - low
    text = f"{tick:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, TIP_COLUMNS) or [""]


def _sub(parent: ET.Element, tag: str, **attributes: str) -> ET.Element:
    names = {key: key.rstrip("_").replace("_", "-") for key in attributes}
    return ET.SubElement(parent, tag, {names[key]: value for key, value in attributes.items()})


def _text(
    parent: ET.Element, x: float, y: float, content: str, anchor: str = "start"
) -> ET.Element:
    element = _sub(parent, "text", x=_pixels(x), y=_pixels(y))
    if anchor != "start":
        element.set("text-anchor", anchor)
    element.text = content
    return element


def _path(parent: ET.Element, d: str, look: dict[str, Any]) -> None:
    """A line in the settings of matplotlib."""
    width = look["linewidth"] * 1.1
    color = to_hex(look["color"])
    path = _sub(parent, "path", d=d, fill="none", stroke=color, stroke_width=f"{width:g}")
    dashes = _dashes(look.get("linestyle", "-"))
    if dashes:
        path.set("stroke-dasharray", " ".join(f"{width * dash:.3g}" for dash in dashes))


def _dashes(linestyle: Any) -> tuple[float, ...]:
    """The pattern of a line style of matplotlib, in widths of the line."""
    if isinstance(linestyle, str):
        return {"-": (), ":": (1, 1.65), "-.": (6.4, 1.6, 1, 1.6)}[linestyle]
    return tuple(linestyle[1])


def _marker(
    parent: ET.Element,
    x: float,
    y: float,
    style: dict[str, Any],
    hollow: bool = False,
    scale: float = 1.0,
) -> None:
    color, radius = to_hex(style["color"]), RADIUS * scale
    marker = _sub(parent, "path", d=_MARKERS[style["marker"]], stroke=color)
    marker.set("fill", "#ffffff" if hollow else color)
    marker.set("stroke-width", f"{1.2 / radius:.3g}")
    marker.set("transform", f"translate({_pixels(x)} {_pixels(y)}) scale({radius:g})")


def _pixels(value: float) -> str:
    return f"{value:.1f}"


def _text_of(element: ET.Element) -> str:
    return ET.tostring(element, encoding="unicode")
