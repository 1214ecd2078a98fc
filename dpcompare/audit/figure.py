"""The figure of an audit: the lower bound by attack against the epsilon that is claimed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpcompare.audit.finding import HOLDS, UNDECIDED, VIOLATED, Finding
from dpcompare.errors import DpcompareError
from dpcompare.figures.axes import SMALL, log_axis, log_places, round_numbers
from dpcompare.figures.caption import wrapped
from dpcompare.figures.page import CAPTION_COLUMNS, PANEL, Slot, page
from dpcompare.figures.style import INK, NothingToDraw, curve_styles, figure_style, render
from dpcompare.results import ResultsFolder, write_atomically

NAME = "audit"
HEIGHT = 3.6  # inches
DECIDED = (HOLDS, VIOLATED, UNDECIDED)
FLOOR = 0.2  # of the smallest claim: the axis of bounds ends there
BAR: dict[str, Any] = {"marker": "_", "markersize": 11, "markeredgewidth": 1.4, "linestyle": "none"}
UNITS = {"example": "whole rows", "label": "labels only"}


def draw(folder: Path, findings: Sequence[Finding], title: str) -> list[Path]:
    """Draw the figure into a results folder, beside it the numbers in it.

    Args:
        folder: the results folder.
        findings: of its audit.
        title: of the study.

    Returns:
        The files written.

    Raises:
        NothingToDraw: no claim was attacked; no file is touched.
        DpcompareError: a file cannot be written.
    """
    png, svg, csv = _files(folder)
    with figure_style():
        figure, numbers = audit_figure(findings, title)
    contents = {file: render(figure, file.suffix[1:]) for file in (png, svg)}
    contents[csv] = numbers.to_csv(index=False).encode()
    for path, content in contents.items():
        write_atomically(path, content)
    return list(contents)


def remove(folder: Path) -> list[Path]:
    """Remove the figure of an earlier audit, which does not show the present one.

    Returns:
        The files removed.

    Raises:
        DpcompareError: one cannot be removed.
    """
    removed = []
    for file in _files(folder):
        try:
            file.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DpcompareError(f"cannot remove {file}: {error.strerror}") from error
        removed.append(file)
    return removed


def _files(folder: Path) -> list[Path]:
    return [ResultsFolder(folder).figures / f"{NAME}.{form}" for form in ("png", "svg", "csv")]


def audit_figure(findings: Sequence[Finding], title: str) -> tuple[Figure, pd.DataFrame]:
    """One mark per claim, the diagonal where bound and claim are equal, violations shaded.

    Bounds below the axis are marks at its lower end.

    Args:
        findings: of one audit.
        title: of the study.

    Returns:
        The figure, and the numbers in it: label, unit, claimed, delta, bound, expected_at_claim,
        expected_if_half, verdict, and whether the bound lies `below_axis`.

    Raises:
        NothingToDraw: no claim was attacked.
    """
    numbers = _numbers(findings)
    if numbers.empty:
        raise NothingToDraw("nothing to draw of this audit: no claim was attacked")
    styles = curve_styles(list(dict.fromkeys(numbers["label"])))
    slots = [Slot("audit", HEIGHT)]
    caption = wrapped(_caption(findings, numbers), CAPTION_COLUMNS)
    handles = [
        _handle(str(label), rows["unit"].iloc[0], styles[str(label)])
        for label, rows in numbers.groupby("label", sort=False)
    ]
    handles.append(Line2D([], [], color="0.4", **BAR, label="to expect if the noise were half"))
    figure, (ax,) = page(f"{title}. Audit by attack", handles, slots, caption)
    low, high = _limits(ax, numbers)
    _shade(ax, low, high)
    for label, rows in numbers.groupby("label", sort=False):
        _draw_marks(ax, rows, styles[str(label)], low)
    return figure, numbers


def _numbers(findings: Sequence[Finding]) -> pd.DataFrame:
    attacked = [finding for finding in findings if finding.verdict in DECIDED]
    columns = ["label", "unit", "epsilon", "delta", "lower_bound"]
    columns += ["expected_at_claim", "expected_if_half", "verdict"]
    numbers = pd.DataFrame(
        [[getattr(finding, column) for column in columns] for finding in attacked], columns=columns
    ).rename(columns={"epsilon": "claimed", "lower_bound": "bound"})
    if numbers.empty:
        return numbers
    return numbers.assign(below_axis=numbers["bound"] < FLOOR * numbers["claimed"].min())


def _limits(ax: Axes, numbers: pd.DataFrame) -> tuple[float, float]:
    """Set both axes, and give the limits of the one of bounds."""
    claims = sorted(set(numbers["claimed"]))
    log_axis(ax, claims, PANEL, form=lambda value: f"{value:.3g}")
    bottom = FLOOR * claims[0]
    top = max(claims[-1], numbers["bound"].max())
    (low, high), _ = log_places([bottom, top], PANEL)
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ticks = [tick for tick in round_numbers(low, high) if low <= tick <= high]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlabel("claimed epsilon (log scale; what it protects is named in the legend)")
    ax.set_ylabel("lower bound on epsilon by attack\n(log scale)")
    return low, high


def _shade(ax: Axes, low: float, high: float) -> None:
    left, right = ax.get_xlim()
    ax.fill_between([left, right], [left, right], [high, high], color="#D55E00", alpha=0.1, lw=0)
    ax.plot([left, right], [left, right], color=INK, linewidth=1.0, linestyle=(0, (6, 2)))
    ax.text(
        0.015, 0.97, "violated: the attack shows more than is claimed",
        transform=ax.transAxes, va="top", fontsize=SMALL, color=INK,
    )  # fmt: skip


def _draw_marks(ax: Axes, rows: pd.DataFrame, style: dict[str, Any], low: float) -> None:
    look = {"color": style["color"], "marker": style["marker"], "linestyle": "none"}
    above = rows[~rows["below_axis"]]
    ax.plot(above["claimed"], above["bound"], markersize=6, **look)
    below = rows[rows["below_axis"]]
    ax.plot(below["claimed"], [low] * len(below), markersize=6, clip_on=False, **look,
            markerfacecolor="white")  # fmt: skip
    refuted = rows[rows["verdict"] == VIOLATED]
    ax.plot(refuted["claimed"], refuted["bound"], marker="o", markersize=13, linestyle="none",
            color="#D55E00", markerfacecolor="none")  # fmt: skip
    spread = rows.dropna(subset=["expected_if_half"])
    shown = spread[spread["expected_if_half"] >= low]
    ax.plot(shown["claimed"], shown["expected_if_half"], color=style["color"], **BAR)


def _handle(label: str, unit: str, style: dict[str, Any]) -> Line2D:
    name = f"{label} ({UNITS.get(unit, unit)})"
    return Line2D(
        [], [], color=style["color"], marker=style["marker"], linestyle="none", label=name
    )


def _caption(findings: Sequence[Finding], numbers: pd.DataFrame) -> list[str]:
    told = [
        "A mark is one claim and the largest epsilon that an attack on the mechanism refutes "
        "with 95% confidence. On the dashed line they are equal. A claim is violated, and its mark "
        "circled, where it is refuted with 99.9% confidence, all claims together; a mark above the "
        "line without a circle is undecided. A mark below the line is evidence for the claim "
        "and no proof: another attack may find more.",
        "Short bars: the bound to expect if the noise were half (of labels: if epsilon were "
        "twice). Where a bar is not above the line, even that would go unnoticed.",
        "Equal epsilon is not equal privacy: whole rows and labels only are different units.",
    ]
    if numbers["below_axis"].any():
        told.append("Hollow marks at the lower edge: the bound lies below the axis or is 0.")
    left_out = [finding for finding in findings if finding.verdict not in DECIDED]
    if left_out:
        names: dict[str, list[str]] = {}
        for finding in left_out:
            reason = finding.notes[0] if finding.verdict == "not attacked" else finding.verdict
            names.setdefault(reason, []).append(f"{finding.label} at epsilon {finding.asked:g}")
        told += [f"Not drawn, {reason}: {', '.join(of)}." for reason, of in names.items()]
    return told
