"""Views of rows read as copies of them would."""

from dataclasses import replace

import numpy as np
import pytest

from dpcompare.data import synthetic, views
from dpcompare.data.dataset import HashBuckets, encode
from dpcompare.data.views import RowView, in_memory_if_small, select

SOURCE = np.arange(60, dtype=np.uint32).reshape(20, 3)
POSITIONS = np.array([3, 1, 19, 3])
KEYS = {
    "slice": slice(1, 3),
    "all": slice(None),
    "array": np.array([2, 0]),
    "one row": 2,
    "last row": -1,
    "mask": np.array([True, False, True, True]),
    "column": (slice(None), 1),
    "rows and columns": (np.array([2, 0]), slice(1, 3)),
    "one number": (1, 2),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_view_reads_as_a_copy_does(key):
    copy = 2.0 * SOURCE[POSITIONS]
    view = RowView(SOURCE, POSITIONS, lambda rows: 2.0 * rows, np.float64)
    np.testing.assert_array_equal(view[key], copy[key])
    assert view[key].dtype == copy.dtype
    assert np.shape(view[key]) == np.shape(copy[key])


def test_a_view_has_the_shape_and_type_of_a_copy():
    view = RowView(SOURCE, POSITIONS)
    assert (view.shape, view.dtype, view.ndim, len(view)) == ((4, 3), np.uint32, 2, 4)
    np.testing.assert_array_equal(np.asarray(view), SOURCE[POSITIONS])
    np.testing.assert_array_equal(view.select(np.array([2, 2])), SOURCE[[19, 19]])
    np.testing.assert_array_equal(RowView(SOURCE).select(np.array([2])), SOURCE[[2]])
    np.testing.assert_array_equal(RowView(view, encode=lambda r: r + 1)[1:2], SOURCE[[1]] + 1)


def test_only_what_is_small_is_copied(monkeypatch):
    assert isinstance(select(SOURCE, POSITIONS), np.ndarray)
    assert isinstance(in_memory_if_small(RowView(SOURCE)), np.ndarray)
    monkeypatch.setattr(views, "LARGEST_COPY", 40)
    assert isinstance(select(SOURCE, POSITIONS), RowView)
    assert isinstance(select(SOURCE, POSITIONS[:3]), np.ndarray)


def test_ids_of_a_large_data_set_are_encoded_when_they_are_read(monkeypatch):
    dataset = synthetic(2000)
    encoder = HashBuckets.for_columns(50, dataset)
    small = encode(dataset, slice(100, 1900), encoder)
    monkeypatch.setattr(views, "LARGEST_COPY", 0)
    large = encode(dataset, slice(100, 1900), encoder)
    assert isinstance(large.ids, RowView)
    assert large.ids.dtype == small.ids.dtype == np.int32
    np.testing.assert_array_equal(large.ids[:], small.ids)
    rows = np.array([5, 1799, 0])
    np.testing.assert_array_equal(large.ids[rows], small.ids[rows])
    clicked = np.flatnonzero(dataset.labels["pctr"])
    of_clicks = {"pcvr": dataset.labels["pcvr"][clicked]}
    conversions = replace(dataset, labels=of_clicks, rows_of={"pcvr": clicked}).for_task("pcvr")
    assert isinstance(conversions.numeric, RowView)
    of_task = encode(conversions, slice(3, 9), encoder)
    rows = clicked[3:9]
    np.testing.assert_array_equal(np.asarray(of_task.numeric), dataset.numeric[rows])
    np.testing.assert_array_equal(
        of_task.ids[:], encode(dataset, slice(0, 2000), encoder).ids[rows]
    )
