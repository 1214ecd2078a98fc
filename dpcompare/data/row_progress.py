"""How far a preparation has come, on standard error."""

import shutil
from time import monotonic

from dpcompare import terminal
from dpcompare.progress import SECONDS_BETWEEN_DRAWINGS, SECONDS_BETWEEN_LINES, duration


class RowProgress:
    """Shows rows, rows a second and the time left; a context manager to call with rows and share.

    A terminal gets one line that is redrawn in place. Anything else gets a plain line every 30
    seconds. Speed and time left are those since the first call, so that rows which an earlier
    preparation has read do not count as fast.
    """

    def __init__(self) -> None:
        self._terminal = terminal.errors_are_on_a_terminal()
        self._drawn_at = monotonic()
        self._first: tuple[float, int, float] | None = None
        self._is_open = False

    def __enter__(self) -> "RowProgress":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._is_open and kind is not KeyboardInterrupt:  # click ends the line then
            terminal.progress("")

    def __call__(self, rows: int, share: float) -> None:
        """See :data:`dpcompare.data.prepare.Progress`."""
        now = monotonic()
        if self._first is None:
            self._first = now, rows, share
        pause = SECONDS_BETWEEN_DRAWINGS if self._terminal else SECONDS_BETWEEN_LINES
        if now - self._drawn_at >= pause or (self._is_open and share == 1):
            self._drawn_at = now
            self._draw(self._line(now, rows, share, *self._first))

    def _line(
        self, now: float, rows: int, share: float, start: float, rows_then: int, share_then: float
    ) -> str:
        line = f"{rows:,} rows, {int(100 * share)}%"
        seconds = now - start
        if rows > rows_then and seconds > 0:
            line += f", {(rows - rows_then) / seconds:,.0f} rows/s"
        if share == 1:
            return f"{line}, completing the files"
        if share > share_then and seconds > 0:
            line += f", {duration((1 - share) * seconds / (share - share_then))} left"
        return line

    def _draw(self, line: str) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            terminal.progress("\r" + line[:width].ljust(width), newline=False)
            self._is_open = True
        else:
            terminal.progress(line)
