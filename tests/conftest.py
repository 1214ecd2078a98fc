"""What all tests share: a calibration cache of their own, so that no test reads the user's."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def calibration_cache(tmp_path_factory):
    # One folder for all worker processes of a run.
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = shared / "calibration-cache"
    before = os.environ.get("DPCOMPARE_CACHE")
    os.environ["DPCOMPARE_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["DPCOMPARE_CACHE"]
    else:
        os.environ["DPCOMPARE_CACHE"] = before
