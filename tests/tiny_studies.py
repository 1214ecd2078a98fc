"""Studies whose trials take a fraction of a second, for the tests."""

import pkgutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tomli_w

from dpcompare.configuration import Configuration
from dpcompare.expansion import expand
from dpcompare.runner import WorkerFailure
from dpcompare.study import Study, load

ROWS = 2004
TRAIN_ROWS = 1603
NON_PRIVATE = {"name": "non-private"}
DP_SGD = {"name": "dp-sgd", "clip_norm": 1.0}
RANDOMIZED_RESPONSE = {"name": "randomized-response"}
ALL = (NON_PRIVATE, DP_SGD, RANDOMIZED_RESPONSE)


def content(*mechanisms: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A study file: one seed, epsilon 1, TRAIN_ROWS training rows; `changes` replace keys.

    Its batches of 100 do not divide the rows; an epoch is 16 steps.

    A change that is a table replaces only the keys it has.
    """
    made: dict[str, Any] = {
        "task": "pctr",
        "epsilons": [1.0],
        "seeds": 1,
        "data": {"rows": ROWS},
        "model": {"buckets": 20, "tower": [4]},
        "training": {"batch_size": 100, "epochs": 1},
        "mechanisms": list(mechanisms or [NON_PRIVATE]),
    }
    for key, value in changes.items():
        merge = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = made[key] | value if merge else value
    return made


def write(folder: Path, made: dict[str, Any], name: str = "tiny.toml") -> Path:
    """Write a study file and return its path."""
    path = folder / name
    path.write_text(tomli_w.dumps(made), encoding="utf-8")
    return path


def study(folder: Path, *mechanisms: dict[str, Any], **changes: Any) -> Study:
    """The study of :func:`content`, loaded from a file in `folder`."""
    return load(str(write(folder, content(*mechanisms, **changes))))


def trials(folder: Path, *mechanisms: dict[str, Any], **changes: Any) -> list[Configuration]:
    """The configurations of :func:`study`."""
    return expand(study(folder, *mechanisms, **changes))


class InProcess:
    """An executor without worker processes; takes the place of runner.LocalExecutor."""

    def __init__(self, workers: int | None = None) -> None:
        pass

    def map(
        self,
        function: str,
        configurations: Iterable[dict[str, Any]],
        progress: Callable[[int, float], None],
    ) -> Iterator[tuple[int, Any]]:
        run_trial = pkgutil.resolve_name(function)
        for index, configuration in enumerate(configurations):
            try:
                yield index, run_trial(configuration, lambda f, i=index: progress(i, f))
            except Exception as error:
                yield index, WorkerFailure.from_exception(error)
