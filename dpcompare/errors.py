"""The two ways a command may end badly, each with one clear message and no traceback."""


class DpcompareError(Exception):
    """Something failed: a broken file, a diverged run, a full disk. Exit code 1."""

    exit_code = 1


class UsageError(DpcompareError):
    """The request was wrong: an unknown name, a value out of range. Exit code 2."""

    exit_code = 2
