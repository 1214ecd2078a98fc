"""Tiny trials that the tests of the Ray executor run in actors; this module loads nothing heavy."""

import os
import pkgutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

Report = Callable[[float], None]


def die_until(configuration: dict[str, Any], report: Report) -> dict[str, Any]:
    """End the process until it has been started `deaths` times before."""
    marks = Path(configuration["marks"])
    starts = len(list(marks.iterdir()))
    (marks / str(starts)).touch()
    if starts < configuration["deaths"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"starts": starts + 1}


def call(configuration: dict[str, Any], report: Report) -> dict[str, Any]:
    """What the function that is named returns."""
    function = pkgutil.resolve_name(configuration["function"])
    return {"result": function(configuration["configuration"], report)}


def train_and_look(configuration: dict[str, Any], report: Report) -> dict[str, Any]:
    """The record of a trial, where its data were, and the files there with their sizes."""
    folder = Path(configuration["data"]["path"])
    files = {file.name: file.stat().st_size for file in folder.iterdir()}
    record = pkgutil.resolve_name("dpcompare.trial:run_trial")(configuration, report)
    return {"record": record, "path": str(folder), "files": files}
