import pytest

from dpcompare.data import load_prepared, prepare
from dpcompare.data.sources import expand
from dpcompare.errors import UsageError
from tests.data.logs import CRITEO, criteo_text, write


@pytest.fixture
def days(tmp_path):
    for name in ("day_10.gz", "day_9.gz", "day_1.gz", "notes.txt"):
        write(tmp_path / name, name)
    return tmp_path


def names(files):
    return [file.name for file in files]


def test_a_pattern_stands_for_the_files_it_matches_in_natural_order(days):
    assert names(expand([days / "day_*.gz"])) == ["day_1.gz", "day_9.gz", "day_10.gz"]
    assert names(expand([days / "day_?.gz"])) == ["day_1.gz", "day_9.gz"]
    assert names(expand([days / "day_[19].gz", days / "day_10.gz"])) == [
        "day_1.gz",
        "day_9.gz",
        "day_10.gz",
    ]
    for day in ("10", "9"):
        (days / day).mkdir()
        write(days / day / "part.gz", "")
    assert [file.parent.name for file in expand([days / "*" / "part.gz"])] == ["9", "10"]


def test_a_file_that_is_called_like_a_pattern_is_that_file(days):
    write(days / "day_*.gz", "literal")
    assert names(expand([days / "day_*.gz"])) == ["day_*.gz"]


def test_a_pattern_that_matches_nothing_or_a_file_twice_is_refused(days):
    with pytest.raises(UsageError, match=r"there is no file called like '.*week_\*.gz'"):
        expand([days / "week_*.gz"])
    with pytest.raises(UsageError, match=r"day_9.gz is named twice"):
        expand([days / "day_9.gz", days / "day_*.gz"])
    with pytest.raises(UsageError, match=r"week.gz does not exist"):
        expand([days / "week.gz"])


def test_files_of_a_pattern_are_prepared_in_natural_order(tmp_path, out):
    for day, label in ((2, "0"), (10, "1"), (1, "1")):
        write(tmp_path / f"day_{day}", criteo_text(1, label=label))
    manifest = prepare(CRITEO, [tmp_path / "day_*"], out)
    assert [source["name"] for source in manifest.sources] == ["day_1", "day_2", "day_10"]
    assert load_prepared(out).labels["pctr"].tolist() == [1, 0, 1]
