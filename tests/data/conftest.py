import pytest


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few lines, so that small files have several."""
    monkeypatch.setattr("dpcompare.data.text_source.BLOCK_BYTES", 1000)


@pytest.fixture
def out(tmp_path):
    """Where to prepare to."""
    return tmp_path / "prepared"
