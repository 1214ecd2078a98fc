"""How far a run of trials has come, on standard error."""

import math
import shutil
from collections.abc import Sequence
from time import monotonic
from types import TracebackType

from dpcompare import terminal

BAR_CELLS = 20
SECONDS_BETWEEN_DRAWINGS = 0.1
SECONDS_BETWEEN_LINES = 30.0


class ProgressBar:
    """Counts trials and estimates the time left; a context manager.

    A terminal gets one line that is redrawn in place. Anything else (a log file, a batch system)
    gets a plain line for every tenth of the work or every 30 seconds, whichever comes first.

    The percentage weighs each trial by its cost and includes what running trials have reported.
    The time left is the cost not yet done over the speed so far. Trials done before this run
    count as done but not for the speed, nor does what a failed trial left undone.

    Args:
        costs: the expected effort of each trial, in any unit, above 0.
        label: what is running, at the start of the line.
    """

    def __init__(self, costs: Sequence[float], label: str) -> None:
        self._costs = list(costs)
        self._label = label
        self._worked = [0.0] * len(self._costs)  # fraction done in this run
        self._closed = [False] * len(self._costs)
        self._done = 0
        self._failed = 0
        self._terminal = terminal.errors_are_on_a_terminal()
        self._started = monotonic()
        self._drawn_at = -math.inf
        self._tenths_drawn = -1
        self._last_line = ""

    def __enter__(self) -> "ProgressBar":
        self._started = monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or self._last_line:  # what failed before it began has nothing to show
            self._draw(last=True)

    def skip(self, index: int) -> None:
        """Trial `index` was done before this run; drawn with the first trial that runs."""
        self._close(index)

    def update(self, index: int, fraction: float) -> None:
        """Trial `index` is running and `fraction` of it, from 0 to 1, is done."""
        self._worked[index] = max(self._worked[index], min(fraction, 1.0))
        self._draw_if_due()

    def finish(self, index: int, failed: bool = False) -> None:
        """Trial `index` has ended, with a record or `failed`."""
        if failed:
            self._failed += 1
        else:
            self._worked[index] = 1.0
        self._close(index)
        self._draw_if_due()

    def fraction(self) -> float:
        """The part of the total cost that is behind us, from 0 to 1."""
        total = sum(self._costs)
        return 1.0 - self._cost_left() / total if total > 0 else 1.0

    def seconds_left(self) -> float | None:
        """The estimated time left; None as long as there is nothing to base it on."""
        worked = sum(cost * part for cost, part in zip(self._costs, self._worked, strict=True))
        elapsed = monotonic() - self._started
        return self._cost_left() * elapsed / worked if worked > 0 and elapsed > 0 else None

    def _cost_left(self) -> float:
        trials = zip(self._costs, self._worked, self._closed, strict=True)
        return sum(cost * (1.0 - part) for cost, part, closed in trials if not closed)

    def _close(self, index: int) -> None:
        self._closed[index] = True
        self._done += 1

    def _draw_if_due(self) -> None:
        waited = monotonic() - self._drawn_at
        if self._terminal:
            due = waited >= SECONDS_BETWEEN_DRAWINGS
        else:
            tenths = int(10 * self.fraction() + 1e-9)
            due = tenths > self._tenths_drawn or waited >= SECONDS_BETWEEN_LINES
        if due:
            self._draw()

    def _draw(self, last: bool = False) -> None:
        self._drawn_at = monotonic()
        self._tenths_drawn = int(10 * self.fraction() + 1e-9)
        if terminal.is_quiet():
            return
        line = self._line(ended=last)
        if self._terminal:
            # Padded and back at the first column: whatever a worker prints in between starts at
            # the left edge and pushes the bar down instead of tearing it.
            width = shutil.get_terminal_size().columns - 1
            terminal.progress(line[:width].ljust(width) + ("\n" if last else "\r"), newline=False)
        elif line != self._last_line:
            terminal.progress(line)
        self._last_line = line

    def _line(self, ended: bool) -> str:
        fraction = self.fraction()
        full = int(BAR_CELLS * fraction + 1e-9)
        bar = f" [{'#' * full}{'-' * (BAR_CELLS - full)}]" if self._terminal else ":"
        failed = f", {self._failed} failed" if self._failed else ""
        line = f"{self._label}{bar} {self._done}/{len(self._costs)} trials{failed}"
        line += f", {int(100 * fraction + 1e-9)}%"
        left = self.seconds_left()
        if left is not None and not ended and self._done < len(self._costs):
            line += f", {duration(left)} left"
        return line


def duration(seconds: float) -> str:
    """Seconds as people say them: "40 s", "3 min 20 s", "2 h 5 min"."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
