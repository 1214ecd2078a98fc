"""A preparation that is killed or interrupted goes on, and gives what it would have given."""

import errno
import filecmp
import gzip
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcompare.data import Column, Target, partial_folder, prepare, text_source
from dpcompare.data.column_file import ColumnFile
from dpcompare.data.sources import SourceUnreadable
from dpcompare.errors import DpcompareError
from tests.data.logs import CRITEO, criteo_text, own_schema, write

pytestmark = pytest.mark.usefixtures("small_blocks")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def states_at_once(monkeypatch):
    monkeypatch.setattr(partial_folder, "SECONDS_BETWEEN_STATES", 0.0)
    monkeypatch.setattr("dpcompare.data.parquet_source.BATCH_ROWS", 4)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a kill loses nothing without it


def journey_rows(rows: int) -> dict[str, list]:
    rng = random.Random(3)
    return {
        "user": [f"u{rng.randrange(rows // 3)}" for _ in range(rows)],
        "color": [rng.choice(["red", "blue", None]) for _ in range(rows)],
        "number": [rng.choice([None, 1.5, -2.0]) for _ in range(rows)],
        "click": [rng.randrange(2) for _ in range(rows)],
        "bought": [rng.randrange(2) for _ in range(rows)],
        "sale": [rng.choice([None, "s1", "s2"]) for _ in range(rows)],
    }


JOURNEYS = own_schema(
    columns=(
        Column("user", "ignore"),
        Column("color", "categorical"),
        Column("number", "numeric"),
        Column("click", "label"),
        Column("bought", "label"),
        Column("sale", "leak"),
    ),
    tasks={
        "pctr": Target("click"),
        "pcvr": Target("bought", rows="click"),
        "pconvs": Target(distinct="sale"),
    },
    missing=("",),
    journey=("user",),
)


def texts(folder, compressed=False):
    """Two files of the Criteo layout; the second repeats rows of the first."""
    files = []
    for name, rows in (("a", 60), ("b", 90)):
        content = criteo_text(rows, I3="").encode()
        files.append(write(folder / name, gzip.compress(content) if compressed else content))
    return CRITEO, files, {}


def stripped_texts(folder):
    """Rows of which every second one lacks its trailing TABs."""
    lines = criteo_text(80).splitlines()
    lines[1::2] = [line.rsplit("\t", 2)[0] for line in lines[1::2]]
    return CRITEO, [write(folder / "a", "\n".join(lines))], {"repair": True}


def journeys_text(folder):
    """Quoted fields, a header, an additional column, and journeys over two files."""
    content = journey_rows(1000)
    names = list(content)
    lines = [
        ",".join("" if value is None else f'"{value}"' for value in row)
        for row in zip(*content.values(), strict=True)
    ]
    files = []
    for name, part in (("a", lines[:400]), ("b", lines[400:])):
        rows = "\n".join(f"{line},x" for line in part)
        files.append(write(folder / name, ",".join(names) + f",more\n{rows}\n"))
    return JOURNEYS, files, {}


def journeys_parquet(folder):
    """Row groups of another size than the batches, and a part without rows."""
    table = pa.table(journey_rows(120))
    for name, part in (("a", table.slice(0, 50)), ("b", table.slice(0, 0)), ("c", table.slice(50))):
        pq.write_table(part, folder / name, row_group_size=11)
    return JOURNEYS, [folder / "a", folder / "b", folder / "c"], {}


def gzip_texts(folder):
    """The two files, compressed."""
    return texts(folder, compressed=True)


LOGS = [texts, gzip_texts, stripped_texts, journeys_text, journeys_parquet]


def assert_same_folder(first, second):
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    assert filecmp.cmpfiles(first, second, names, shallow=False) == (names, [], [])


class Stop:
    """A progress display that gives up after some batches, once a state is there."""

    def __init__(self, folder: Path, batches: int, error: BaseException) -> None:
        self.folder, self.batches, self.error = folder, batches, error

    def __call__(self, rows: int, share: float) -> None:
        self.batches -= 1
        if self.batches <= 0 and (self.folder / "state.npz").exists():
            raise self.error


def partial_of(out):
    return partial_folder.PartialFolder(out).path


# --- going on ---


@pytest.mark.parametrize("log", LOGS)
def test_interrupted_again_and_again_it_gives_the_same_folder(tmp_path, log):
    schema, sources, options = log(tmp_path)
    straight, out = tmp_path / "straight", tmp_path / "prepared"
    prepare(schema, sources, straight, **options)
    said, interruptions = [], 0
    while not out.exists():
        stop = Stop(partial_of(out), 9, KeyboardInterrupt())
        try:
            prepare(schema, sources, out, **options, progress=stop, say=said.append)
        except KeyboardInterrupt:
            interruptions += 1
            assert not out.exists()
    assert interruptions >= 2
    going_on = [message for message in said if message.startswith("going on after row ")]
    assert len(going_on) == len(said) == interruptions
    assert_same_folder(straight, out)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] == ".") == []


KILLED = """
import os, random, sys, threading, time
from pathlib import Path
import dpcompare.data.partial_folder as partial_folder
import dpcompare.data.text_source as text_source
from dpcompare.data import prepare

def kill_later():
    while not (partial_folder.PartialFolder(out).path / "state.npz").exists():
        time.sleep(0.001)
    time.sleep(random.Random(int(sys.argv[1])).uniform(0, 0.2))
    os.kill(os.getpid(), 9)

text_source.BLOCK_BYTES = 20_000
partial_folder.SECONDS_BETWEEN_STATES = 0.0
schema, out, *sources = sys.argv[2:]
out = Path(out)
threading.Thread(target=kill_later, daemon=True).start()
prepare(schema, [Path(source) for source in sources], out, say=lambda text: print(text, flush=True))
"""


@pytest.mark.parametrize("compressed", [False, True])
def test_killed_at_any_moment_it_goes_on_and_gives_the_same_folder(
    tmp_path, compressed, monkeypatch
):
    monkeypatch.setattr("dpcompare.data.text_source.BLOCK_BYTES", 20_000)
    content = criteo_text(8_000).encode()
    log = write(tmp_path / "log", gzip.compress(content, 1) if compressed else content)
    straight, out = tmp_path / "straight", tmp_path / "prepared"
    with monkeypatch.context() as patch:
        patch.setattr(partial_folder, "SECONDS_BETWEEN_STATES", 1e9)
        prepare(CRITEO, [log], straight)
    deaths = 0
    for seed in (1, 0):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(seed), "criteo-kaggle", out, log],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode == 0:
            break
        assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
        assert not out.exists() or (out / "manifest.json").exists()
        deaths += 1
    assert deaths >= 1
    prepare(CRITEO, [log], out)
    assert_same_folder(straight, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "prepared", "straight"]


def test_killed_while_rows_are_put_in_order_it_goes_on(tmp_path, out, monkeypatch):
    """Reordering replaces files; those that the state speaks of must survive it."""
    schema, sources, _ = journeys_text(tmp_path)
    prepare(schema, sources, tmp_path / "straight")
    for moment in ("replace", "reorder", "finish"):
        method = getattr(ColumnFile, moment)

        def fail(self, *arguments, method=method):
            method(self, *arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(ColumnFile, moment, fail)
            with pytest.raises(KeyboardInterrupt):
                prepare(schema, sources, out)
        assert partial_folder.PartialFolder(out).has_state
    said = []
    prepare(schema, sources, out, say=said.append)
    assert said[0].startswith("going on after row ")
    assert_same_folder(tmp_path / "straight", out)


@pytest.mark.parametrize("change", ["content", "time", "schema", "repair", "order"])
def test_another_request_starts_anew_and_says_so(tmp_path, out, change):
    schema, sources, options = texts(tmp_path)
    stop = Stop(partial_of(out), 8, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        prepare(schema, sources, out, progress=stop)
    if change == "content":
        write(sources[0], criteo_text(61))
    if change == "time":
        os.utime(sources[0], ns=(1, 1))
    if change == "schema":
        schema = own_schema(
            columns=(*CRITEO.columns[:-1], Column("C26", "ignore")),
            separator="\t",
            header=False,
            quoting=False,
            missing=("",),
            tasks=CRITEO.tasks,
        )
    if change == "repair":
        options = {"repair": True}
    if change == "order":
        sources = sources[::-1]
    said = []
    prepare(schema, sources, out, **options, say=said.append)
    assert len(said) == 1
    assert said[0].endswith("files that have changed since; starting anew")
    prepare(schema, sources, tmp_path / "straight", **options)
    assert_same_folder(tmp_path / "straight", out)


def test_progress_goes_on_where_it_was(tmp_path, out):
    schema, sources, _ = texts(tmp_path)
    stop = Stop(partial_of(out), 12, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        prepare(schema, sources, out, progress=stop)
    seen, said = [], []
    prepare(schema, sources, out, progress=lambda *far: seen.append(far), say=said.append)
    assert said == [f"going on after row {seen[0][0]} of an interrupted preparation"]
    assert seen == sorted(seen)
    assert 0 < seen[0][1] < 1
    assert seen[-1] == (150, 1.0)


# --- any number of threads ---


@pytest.mark.parametrize("log", LOGS)
def test_the_result_does_not_depend_on_the_number_of_threads(tmp_path, log, monkeypatch):
    schema, sources, options = log(tmp_path)
    module = sys.modules[prepare.__module__]
    for threads in (1, 2, 5):
        monkeypatch.setattr(module, "usable_cores", lambda threads=threads: range(threads))
        prepare(schema, sources, tmp_path / f"out{threads}", **options)
    assert_same_folder(tmp_path / "out1", tmp_path / "out2")
    assert_same_folder(tmp_path / "out1", tmp_path / "out5")


# --- files that change, disks that are full, others at work ---


def test_a_file_that_grows_while_it_is_read_is_an_error_that_names_it(tmp_path, out):
    source = write(tmp_path / "log.txt", criteo_text(50))

    def grow(rows: int, share: float) -> None:
        with source.open("a") as file:
            file.write(criteo_text(1))

    size = source.stat().st_size
    message = f"log.txt changed while it was read: it had {size:,} bytes and has .* now. Prepare it"
    with pytest.raises(DpcompareError, match=message):
        prepare(CRITEO, [source], out, progress=grow)
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]


def test_a_line_that_is_half_written_is_put_down_to_the_change(tmp_path, out):
    source = write(tmp_path / "log.txt", criteo_text(50))
    written = []

    def grow(rows: int, share: float) -> None:
        if not written:
            with source.open("a") as file:
                written.append(file.write(criteo_text(200)[:-50]))

    with pytest.raises(DpcompareError, match=r"log.txt changed while it was read"):
        prepare(CRITEO, [source], out, progress=grow)


def test_a_file_that_is_rewritten_or_removed_while_it_is_read(tmp_path, out):
    first, second = (write(tmp_path / name, criteo_text(50)) for name in ("a", "b"))
    with pytest.raises(DpcompareError, match="a changed while it was read"):
        prepare(CRITEO, [first, second], out, progress=lambda *far: os.utime(first, ns=(1, 1)))
    with pytest.raises(DpcompareError, match="a was removed while it was read"):
        prepare(CRITEO, [first, second], out, progress=lambda *far: first.unlink(missing_ok=True))
    assert not partial_of(out).exists()


def fill_disk(patch, rows):
    """Pretend that the disk holds only so many rows of a file."""
    append = ColumnFile.append

    def full(self, part):
        if self.rows + len(part) > rows:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(self, part)

    patch.setattr(ColumnFile, "append", full)


def test_a_full_disk_is_one_error_that_says_what_was_kept(tmp_path, out, monkeypatch):
    schema, sources, _ = texts(tmp_path)
    prepare(schema, sources, tmp_path / "straight")
    with monkeypatch.context() as patch:
        fill_disk(patch, 100)
        with pytest.raises(DpcompareError) as caught:
            prepare(schema, sources, out)
    assert "\n" not in str(caught.value)
    assert f"cannot write {out}: [Errno 28] No space left on device" in str(caught.value)
    assert f"kept in {partial_of(out)}, and the same command goes on" in str(caught.value)
    assert not out.exists()
    said = []
    prepare(schema, sources, out, say=said.append)
    assert said[0].startswith("going on after row ")
    assert_same_folder(tmp_path / "straight", out)


def test_a_full_disk_before_the_first_state_leaves_nothing(tmp_path, out, monkeypatch):
    schema, sources, _ = texts(tmp_path)
    monkeypatch.setattr(partial_folder, "SECONDS_BETWEEN_STATES", 1e9)
    fill_disk(monkeypatch, 100)
    with pytest.raises(DpcompareError, match=r"cannot write .*No space left on device$"):
        prepare(schema, sources, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a file system cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_truly_full(tmp_path, small_disk, monkeypatch):
    monkeypatch.setattr("dpcompare.data.text_source.BLOCK_BYTES", 1 << 20)
    source = write(tmp_path / "log.txt", criteo_text(30_000))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "dpcompare", "prepare", "criteo-kaggle"),
            *(source, small_disk / "out"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: cannot write {small_disk / 'out'}: ")
    assert "No space left on device" in line
    assert list(small_disk.iterdir()) == []


def test_two_preparations_of_one_destination_do_not_meet(tmp_path, out):
    schema, sources, _ = texts(tmp_path)
    refused = []

    def meanwhile(rows: int, share: float) -> None:
        if not refused:
            with pytest.raises(DpcompareError, match=r"another process is preparing .*; wait") as e:
                prepare(schema, sources, out)
            refused.append(e)

    prepare(schema, sources, out, progress=meanwhile)
    assert refused
    prepare(schema, sources, tmp_path / "straight")
    assert_same_folder(tmp_path / "straight", out)


def test_what_a_kill_left_beside_a_complete_destination_is_removed(tmp_path):
    schema, sources, _ = texts(tmp_path)
    out = tmp_path / "out"
    prepare(schema, sources, out)
    (partial_of(out) / "read").mkdir(parents=True)
    prepare(schema, sources, out)
    assert not partial_of(out).exists()


def test_a_disk_that_fails_to_read_costs_nothing_that_was_saved(tmp_path, monkeypatch):
    schema, sources, _ = texts(tmp_path)
    out = tmp_path / "out"
    blocks = text_source._blocks
    reads = []

    def failing(*arguments):
        for number, block in enumerate(blocks(*arguments)):
            reads.append(number)
            if len(reads) == 9:
                raise SourceUnreadable("cannot be read: Input/output error")
            yield block

    monkeypatch.setattr(text_source, "_blocks", failing)
    with pytest.raises(SourceUnreadable):
        prepare(schema, sources, out)
    assert (partial_of(out) / "state.npz").exists()
    prepare(schema, sources, out)
    prepare(schema, sources, tmp_path / "straight")
    assert_same_folder(tmp_path / "straight", out)


# --- the command ---


def test_ctrl_c_and_sigterm_of_the_command_end_it_and_the_next_one_goes_on(tmp_path):
    log = write(tmp_path / "log", criteo_text(10_000))
    out = tmp_path / "out"
    start = (
        "import dpcompare.data.partial_folder as p, dpcompare.data.text_source as t; "
        "p.SECONDS_BETWEEN_STATES = 0.0; t.BLOCK_BYTES = 20_000; "
        "from dpcompare.cli import main; main()"
    )
    command = [sys.executable, "-c", start, "prepare", "criteo-kaggle", str(log), str(out)]
    errors = []
    state = partial_of(out) / "state.npz"
    for number in (signal.SIGINT, signal.SIGTERM):
        before = state.stat().st_mtime_ns if state.exists() else 0
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            while not (state.exists() and state.stat().st_mtime_ns > before):
                assert process.poll() is None
            process.send_signal(number)
            errors.append(process.communicate(timeout=30)[1])
            assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert errors[0].strip().startswith("Interrupted.")
    assert errors[0].endswith("the same command goes on.\n")
    assert "Traceback" not in "".join(errors)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("going on after row ")
    assert "10,000 rows" in done.stdout
