import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcompare.data import Column, Target, load_prepared, prepare
from dpcompare.data.column_file import ColumnFile
from dpcompare.data.hashing import hash_text
from dpcompare.data.journeys import Journeys, hash_64
from dpcompare.errors import DpcompareError, UsageError
from tests.data.logs import own_schema, prepare_text, refuse, write

pytestmark = pytest.mark.usefixtures("small_blocks")

SCHEMA = own_schema(
    columns=(
        Column("user", "ignore"),
        Column("shop", "categorical"),
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
    journey=("user", "shop"),
)
HEADER = "user,shop,number,click,bought,sale\n"


def random_rows(seed, rows=120):
    """A made-up log in which journeys are torn apart; sale ids are shared between journeys."""
    rng = random.Random(seed)
    users, shops = rng.choice([(3, 2), (15, 2), (60, 3)])
    return [
        {
            "user": f"u{rng.randrange(users)}",
            "shop": f"s{rng.randrange(shops)}",
            "number": number,
            "click": int(rng.random() < 0.5),
            "bought": int(rng.random() < 0.3),
            "sale": rng.choice(["", "-1", "", f"{rng.randrange(9)}", f"0{rng.randrange(3)}"]),
        }
        for number in range(rows)
    ]


def text_of(rows):
    return HEADER + "".join(",".join(str(value) for value in row.values()) + "\n" for row in rows)


def by_journey(rows):
    """The straightforward way: journeys in the order of their first rows."""
    found: dict[tuple[str, str], list[dict]] = {}
    for row in rows:
        found.setdefault((row["user"], row["shop"]), []).append(row)
    return list(found.values())


@pytest.mark.parametrize("seed", range(25))
def test_journeys_are_those_of_a_dictionary(tmp_path, seed):
    rows = random_rows(seed)
    cut = random.Random(seed).randrange(1, len(rows))
    files = [write(tmp_path / "a", text_of(rows[:cut])), write(tmp_path / "b", text_of(rows[cut:]))]
    manifest = prepare(SCHEMA, files, tmp_path / "out")
    dataset = load_prepared(tmp_path / "out")
    journeys = by_journey(rows)
    ordered = [row for journey in journeys for row in journey]

    numbers = np.float32(np.log1p([row["number"] for row in ordered]))
    assert np.array_equal(dataset.numeric[:, 0], numbers)
    shops = hash_text(pa.array([row["shop"] for row in ordered]))
    assert np.array_equal(dataset.categories[:, 0], shops)
    expected = [number for number, journey in enumerate(journeys) for _ in journey]
    assert dataset.journeys.tolist() == expected
    assert dataset.labels["pctr"].tolist() == [row["click"] for row in ordered]

    clicked = [position for position, row in enumerate(ordered) if row["click"]]
    assert dataset.rows_of["pcvr"].tolist() == clicked
    assert dataset.labels["pcvr"].tolist() == [ordered[position]["bought"] for position in clicked]

    starts = [expected.index(number) for number in range(len(journeys))]
    sales = [{row["sale"] for row in journey} - {"", "-1"} for journey in journeys]
    assert dataset.rows_of["pconvs"].tolist() == starts
    assert dataset.labels["pconvs"].tolist() == [len(found) for found in sales]

    assert manifest.journeys == manifest.labels["pconvs"]["rows"] == len(journeys)
    outside = sum(row["bought"] and not row["click"] for row in rows)
    assert manifest.labels["pcvr"]["outside"] == outside
    check_parts(dataset)


def check_parts(dataset):
    """No journey is in two parts, whatever the task."""
    cuts = 0
    for task in dataset.labels:
        chosen = dataset.for_task(task)
        for shares in ((0.8, 0.1, 0.1), (0.4, 0.3, 0.3)):
            try:
                parts = dataset.parts(task, shares)
            except UsageError:
                continue  # too few journeys
            cuts += 1
            found = [set(chosen.journeys[part].tolist()) for part in parts]
            assert sum(map(len, found)) == len(set(chosen.journeys.tolist()))
            assert parts[-1].stop == chosen.rows == len(chosen.labels[task])
    assert cuts


def test_rows_in_order_already_stay_as_they_are(tmp_path):
    rows = [row for journey in by_journey(random_rows(1)) for row in journey]
    with_journeys, _ = prepare_text(tmp_path, text_of(rows), SCHEMA)
    assert with_journeys.labels["pctr"].tolist() == [row["click"] for row in rows]
    plain = own_schema(
        columns=SCHEMA.columns, tasks={"pctr": Target("click")}, journey=()
    )  # nothing is reordered without journeys
    prepare(plain, [write(tmp_path / "b", text_of(random_rows(1)))], tmp_path / "plain")
    plain_set = load_prepared(tmp_path / "plain")
    assert plain_set.labels["pctr"].tolist() == [row["click"] for row in random_rows(1)]
    assert plain_set.journeys is None


def test_an_exposure_moves_with_its_row(tmp_path):
    columns = (
        Column("user", "ignore"),
        Column("site", "categorical"),
        Column("shown", "exposure"),
        Column("sales", "label"),
    )
    schema = own_schema(columns=columns, tasks={"pconvs": Target("sales")}, journey=("user",))
    text = "user,site,shown,sales\na,x,1,0\nb,x,2,5\na,x,3,1\nb,x,4,0\n"
    dataset, _ = prepare_text(tmp_path, text, schema)
    assert dataset.exposure.tolist() == [1, 3, 2, 4]
    assert dataset.labels["pconvs"].tolist() == [0, 1, 5, 0]


@pytest.mark.parametrize("value", ["", "-1"])
def test_a_row_without_a_journey_is_an_error(tmp_path, value):
    rows = random_rows(0)
    rows[70]["user"] = value
    message = "line 72, column user: the value is missing, so the row has no journey"
    refuse(tmp_path, text_of(rows), message, SCHEMA)


def test_parquet_gives_what_text_gives(tmp_path):
    rows = [{**row, "user": row["user"][1:]} for row in random_rows(4)]
    from_text, _ = prepare_text(tmp_path, text_of(rows), SCHEMA)
    table = pa.Table.from_pylist(rows)
    numbers = {"user": pa.array([int(row["user"]) for row in rows], pa.int64())}
    numbers["click"] = pa.array([float(row["click"]) for row in rows])
    for name, values in numbers.items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    pq.write_table(table, tmp_path / "log")
    prepare(SCHEMA, [tmp_path / "log"], tmp_path / "out")
    assert load_prepared(tmp_path / "out").checksum == from_text.checksum


def test_a_parquet_row_without_a_journey_is_an_error(tmp_path, out):
    table = pa.table(
        {
            "user": pa.array([1, None]),
            "shop": ["a", "b"],
            "number": [1, 2],
            "click": [0, 1],
            "bought": [0, 1],
            "sale": ["", "x"],
        }
    )
    pq.write_table(table, tmp_path / "log")
    with pytest.raises(DpcompareError, match="row 2, column user: the value is missing"):
        prepare(SCHEMA, [tmp_path / "log"], out)
    assert not out.exists()


def test_a_full_disk_while_rows_are_moved_leaves_nothing(tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr(ColumnFile, "reorder", fail)
    refuse_os = "cannot write .*prepared: No space left on device"
    source = write(tmp_path / "log.txt", text_of(random_rows(0)))
    with pytest.raises(DpcompareError, match=refuse_os):
        prepare(SCHEMA, [source], tmp_path / "prepared")
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]


def test_the_same_request_again_keeps_the_destination(tmp_path):
    _, first = prepare_text(tmp_path, text_of(random_rows(0)), SCHEMA)
    assert prepare(SCHEMA, [tmp_path / "log.txt"], tmp_path / "prepared") == first
    assert sorted(path.name for path in (tmp_path / "prepared").iterdir()) == sorted(
        ["manifest.json", *first.files]
    )


def test_rows_of_two_journeys_are_no_copies_of_one_event(tmp_path):
    row = {"shop": "s", "number": 1, "click": 1, "bought": 0, "sale": ""}
    _, manifest = prepare_text(
        tmp_path, text_of([{"user": f"u{i}", **row} for i in range(50)]), SCHEMA
    )
    assert manifest.repeated_share == 0
    source = write(tmp_path / "same", text_of([{"user": "u", **row}] * 50))
    assert prepare(SCHEMA, [source], tmp_path / "b").repeated_share == pytest.approx(49 / 50)


# --- the parts ---


@pytest.mark.parametrize("seed", range(5))
def test_order_and_numbers_of_keys(seed):
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 2**64 - 1, 30, dtype=np.uint64)[rng.integers(0, 30, 500)]
    journeys = Journeys.of(keys)
    seen: dict[int, list[int]] = {}
    for row, key in enumerate(keys.tolist()):
        seen.setdefault(key, []).append(row)
    assert journeys.order.tolist() == [row for rows in seen.values() for row in rows]
    assert journeys.numbers.tolist() == [n for n, rows in enumerate(seen.values()) for _ in rows]
    assert keys[journeys.order[journeys.starts]].tolist() == list(seen)
    values = rng.integers(0, 4, 500).astype(np.uint64)
    expected = [len({int(values[row]) for row in rows} - {0}) for rows in seen.values()]
    assert journeys.distinct(values).tolist() == expected


def test_one_row_is_one_journey():
    journeys = Journeys.of(np.array([7], dtype=np.uint64))
    assert (journeys.order.tolist(), journeys.numbers.tolist()) == ([0], [0])
    assert journeys.distinct(np.array([0], dtype=np.uint64)).tolist() == [0]
    assert journeys.distinct(np.array([9], dtype=np.uint64)).tolist() == [1]


def test_hashes_of_64_bits_tell_texts_apart_and_keep_0_for_missing():
    values = [None, "", "a", "1", "01", "1.0", "a", None]
    hashes = hash_64(pa.array(values)).tolist()
    assert [found == 0 for found in hashes] == [value is None for value in values]
    assert len(set(hashes)) == 6
    assert hashes[2] == hashes[6]
    assert hash_64(pa.array(values).slice(2, 2)).tolist() == hashes[2:4]
    assert hash_64(pa.array([None, None], pa.string())).tolist() == [0, 0]
