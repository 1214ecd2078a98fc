"""Names of what is bundled and installed."""

from importlib.metadata import EntryPoint

import pytest

from dpcompare import catalog
from dpcompare.data import load_schema
from dpcompare.errors import UsageError

GROUP = catalog.MECHANISMS
MINE = EntryPoint("mine", "my_package:Mine", GROUP)


def test_what_is_bundled_is_listed_in_order():
    assert "quickstart" in catalog.studies()
    assert {"criteo-kaggle"} <= set(catalog.schemas())
    assert {"non-private", "dp-sgd", "randomized-response"} <= set(catalog.mechanisms())
    for names in (catalog.studies(), catalog.schemas(), catalog.mechanisms()):
        assert list(names) == sorted(names)
        assert not any(name.endswith(".toml") for name in names)


def test_listed_files_can_be_read():
    for name, file in catalog.studies().items():
        assert "task" in file.read_text(), name
    for name in catalog.schemas():
        assert load_schema(name).name == name


def test_other_packages_add_mechanisms(monkeypatch):
    twice = [MINE, EntryPoint("a", "a:A", GROUP), MINE]  # an editable install is found twice
    monkeypatch.setattr(catalog, "entry_points", lambda group: twice)
    assert list(catalog.mechanisms()) == ["a", "mine"]


def test_two_mechanisms_of_one_name_are_refused(monkeypatch):
    both = [MINE, EntryPoint("mine", "theirs:Mine", GROUP)]
    monkeypatch.setattr(catalog, "entry_points", lambda group: both)
    with pytest.raises(UsageError, match=r"'mine': my_package:Mine and theirs:Mine"):
        catalog.mechanisms()


@pytest.mark.parametrize(
    ("name", "hint"),
    [("dp-sdg", " (did you mean 'dp-sgd'?)"), ("dpsgd", " (did you mean 'dp-sgd'?)"), ("x", "")],
)
def test_near_misses_get_a_hint(name, hint):
    assert catalog.near_miss(name, ["non-private", "dp-sgd"]) == hint
