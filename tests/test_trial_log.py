"""What the log says of trials, and that an executor which logs is otherwise the one it wraps."""

import logging

import pytest

from dpcompare.runner import WorkerFailure
from dpcompare.trial_log import Logged, trial_name

TRIALS = [
    {"about": {"label": "dp-sgd", "candidate": {"clip_norm": 2.0}}, "budget": {"epsilon": 1.0},
     "seed": 3},
    {"about": {"label": "plain", "candidate": {}}, "budget": {"epsilon": "inf"}, "seed": 0},
]  # fmt: skip
DONE = {
    "status": "done",
    "timings": {"data": 0.26, "train": 1.5, "train_before_resuming": None},
    "metric": "auc",
    "test": {"auc": 0.70125},
    "validation": None,
}


class Fake:
    def __init__(self):
        self.closed = False

    def map(self, function, configurations, progress):
        try:
            progress(0, 0.0)
            progress(0, 0.5)
            progress(1, 0.0)
            yield 1, WorkerFailure("ValueError: no", "Traceback\n  here\n")
            yield 0, DONE
        finally:
            self.closed = True


@pytest.fixture
def executor(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("dpcompare"), "propagate", True)
    caplog.set_level(logging.DEBUG, "dpcompare.trial_log")
    return Fake()


def test_starts_and_endings_are_logged_once(executor, caplog):
    told = []
    results = list(Logged(executor).map("f", iter(TRIALS), lambda *what: told.append(what)))
    assert told == [(0, 0.0), (0, 0.5), (1, 0.0)]
    assert [index for index, _ in results] == [1, 0]
    assert results[1][1] is DONE
    assert caplog.messages == [
        "dp-sgd epsilon 1.0 seed 3 clip_norm=2.0: starts",
        "plain epsilon inf seed 0: starts",
        "plain epsilon inf seed 0: failed: ValueError: no\nTraceback\n  here",
        "dp-sgd epsilon 1.0 seed 3 clip_norm=2.0: done in 1.8 s (data 0.3, train 1.5), auc 0.7013",
    ]


def test_whoever_leaves_early_closes_the_executor_too(executor):
    results = Logged(executor).map("f", TRIALS)
    next(results)
    assert not executor.closed
    results.close()
    assert executor.closed


def test_a_trial_without_scores_has_none_in_the_log(executor, caplog):
    alone = DONE | {"timings": {}, "test": None}
    executor.map = lambda *arguments: (pair for pair in [(0, alone)])
    list(Logged(executor).map("f", TRIALS[:1]))
    assert caplog.messages == [f"{trial_name(TRIALS[0])}: done"]
