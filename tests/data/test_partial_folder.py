import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpcompare.data import partial_folder
from dpcompare.data.partial_folder import PartialFolder
from dpcompare.errors import DpcompareError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def states_at_once(monkeypatch):
    monkeypatch.setattr(partial_folder, "SECONDS_BETWEEN_STATES", 0.0)


@pytest.fixture
def partial(tmp_path):
    return PartialFolder(tmp_path / "out")


def work(partial, said, request="request", **changed):
    """Take up earlier work, leave a state and a column file, and stop with Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt), partial.locked():
        state = partial.take_up(request, said.append)
        (partial.read / "a.npy").write_bytes(b"12345")
        with partial.saver(request, lambda: None) as saver:
            assert saver.is_due
            saver.save({"writer": {"files": {"a.npy": {"rows": 1, "bytes": 5}}, **changed}})
        raise KeyboardInterrupt
    return state


def test_a_state_comes_back_as_it_was_with_its_arrays(partial):
    said = []
    arrays = {"bits": np.arange(5, dtype=np.uint64), "more": [np.zeros((0, 2)), "text"]}
    assert work(partial, said, low=float("-inf"), **arrays) is None
    writer = work(partial, said)["writer"]
    assert writer["low"] == float("-inf")
    assert np.array_equal(writer["bits"], arrays["bits"])
    assert writer["bits"].dtype == np.uint64
    assert writer["more"][0].shape == (0, 2)
    assert writer["more"][1] == "text"
    assert said == []


@pytest.mark.parametrize("damage", ["request", "missing", "short", "garbage", "empty"])
def test_a_state_that_does_not_fit_is_given_up_with_a_message(partial, damage):
    said = []
    work(partial, said)
    if damage == "missing":
        (partial.read / "a.npy").unlink()
    if damage == "short":
        (partial.read / "a.npy").write_bytes(b"1234")
    if damage in ("garbage", "empty"):
        (partial.path / "state.npz").write_bytes(b"" if damage == "empty" else b"PK" * 50)
    with partial.locked():
        assert partial.take_up("other" if damage == "request" else "request", said.append) is None
        assert list(partial.read.iterdir()) == []
    assert len(said) == 1
    assert "starting anew" in said[0]
    assert not partial.path.exists()


def test_work_is_kept_only_where_it_can_go_on(partial):
    with pytest.raises(KeyboardInterrupt), partial.locked():
        raise KeyboardInterrupt
    assert not partial.path.exists(), "there was no state"
    work(partial, [])
    assert partial.has_state
    with pytest.raises(DpcompareError), partial.locked():
        raise DpcompareError("the data is wrong")
    assert not partial.path.exists(), "the same request would fail again"


def test_an_error_while_saving_is_raised_by_the_next_question(partial):
    def sync():
        raise OSError("disk full")

    with partial.locked():
        partial.take_up("request", lambda message: None)
        with partial.saver("request", sync) as saver:
            saver.save({})
        with pytest.raises(OSError, match="disk full"):
            _ = saver.is_due
        assert not partial.has_state


HOLDER = """
import sys
from pathlib import Path
from dpcompare.data.partial_folder import PartialFolder
with PartialFolder(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_ends(partial, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path / "out"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "locked\n"
        with (
            pytest.raises(DpcompareError, match=r"another process is preparing .*out; wait"),
            partial.locked(),
        ):
            pytest.fail("locked twice")
        assert partial.path.exists(), "the refused one leaves the work of the other alone"
        holder.kill()
        holder.wait()
    with partial.locked():
        assert partial.path.exists()
    assert not partial.path.exists()
