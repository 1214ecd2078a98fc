"""A study of two trials that train nothing, of which one fails: quick, in any executor."""

from pathlib import Path

from tests import tiny_studies as tiny

MECHANISM = '''
from dpcompare_mechanisms.dp_sgd import DPSGD


class Failing(DPSGD):
    """Fails in every trial."""

    def calibrate(self, budget, schedule, task):
        raise ValueError("there is no such noise")
'''


def failing_study(folder: Path) -> Path:
    """Write the study, whose curves are "dp-sgd" and "failing", and return its path."""
    (folder / "failing.py").write_text(MECHANISM)
    failing = {"name": f"{folder / 'failing.py'}:Failing", "label": "failing"}
    return tiny.write(folder, tiny.content(tiny.DP_SGD, failing, kind="account"))
