"""Available memory: the machine's, and what control groups leave of it."""

import psutil
import pytest

from dpcompare import memory

GIB = 2**30


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A function that writes a control group, in a machine that has none."""
    monkeypatch.setattr(memory, "GROUPS", tmp_path)
    monkeypatch.setattr(memory, "GROUPS_OF_PROCESS", tmp_path / "of-process")
    (tmp_path / "of-process").write_text("")

    def write(name, **files):
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (folder / file.replace("__", ".")).write_text(f"{content}\n")

    return write


def belongs_to(line):
    memory.GROUPS_OF_PROCESS.write_text(f"{line}\n")


def test_without_groups_it_is_the_machines(groups):
    machine = psutil.virtual_memory()
    assert 0 < memory.available() <= machine.total
    memory.GROUPS_OF_PROCESS.unlink()
    assert 0 < memory.available() <= machine.total


def test_version_2_every_group_up_to_the_root_counts(groups):
    belongs_to("0::/job/step")
    step = {"memory__max": "max", "memory__current": 5, "memory__stat": "anon 5"}
    groups("job/step", **step)
    free = memory.available()
    assert free > GIB // 2, "this test needs a machine with memory"
    groups("job", memory__max=1000, memory__current=700, memory__stat="anon 1\ninactive_file 50")
    assert memory.available() == 350
    groups("job/step", **step | {"memory__max": 200})
    assert memory.available() == 195
    groups("job/step", **step | {"memory__max": 4})
    assert memory.available() == 0


def test_version_1_and_groups_that_a_container_cannot_see(groups):
    belongs_to("7:cpu,cpuacct:/x\n4:memory:/outside/container\n0::/")
    groups(
        "memory",
        memory__limit_in_bytes=1000,
        memory__usage_in_bytes=900,
        memory__stat="cache 9\ninactive_file 1\ntotal_inactive_file 20",
    )
    assert memory.available() == 120
