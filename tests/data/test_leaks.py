from importlib import resources

import pytest

from dpcompare.data import Column, load_schema, prepare
from dpcompare.data.leaks import refuse_known_leaks
from dpcompare.errors import UsageError
from tests.data.logs import own_schema, write


@pytest.mark.parametrize(
    "name",
    [
        "product_price",
        "SalesAmountInEuro",
        "Time_delay_for_conversion",
        "conversion_id",
        "conversion_timestamp",
        "attribution",
        "click_pos",
        "click_nb",
        "attributed_time",
        "nb_sales",
        "visit_delay_after_display_array",
    ],
)
def test_a_known_leak_is_refused_as_a_feature_and_named(name):
    with pytest.raises(UsageError, match=f"'{name}' must not be a feature.*rename it in the file"):
        refuse_known_leaks(["color", name], "mine.toml")


def test_other_names_are_features():
    refuse_known_leaks(["color", "product_price_band", "clicks"], "mine.toml")


def test_a_copied_schema_that_makes_the_leak_a_feature_is_refused(tmp_path):
    schemas = resources.files("dpcompare.data").joinpath("schemas")
    copy = schemas.joinpath("criteo-sponsored-search.toml").read_text(encoding="utf-8")
    old = '{ name = "product_price", role = "leak" }'
    assert copy.count(old) == 1
    path = write(tmp_path / "mine.toml", copy.replace(old, old.replace("leak", "numeric")))
    with pytest.raises(UsageError, match=r"mine.toml: columns: 'product_price'.*AUC \.966"):
        load_schema(path)


def test_a_schema_made_in_python_is_refused_when_it_is_used(tmp_path, out):
    columns = (Column("attributed_time", "categorical"), Column("click", "label"))
    source = write(tmp_path / "log.csv", "attributed_time,click\n,0\n")
    with pytest.raises(UsageError, match="'attributed_time' must not be a feature: in TalkingData"):
        prepare(own_schema(columns=columns), [source], out)
    assert not out.exists()
