import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dpcompare.data.in_order import in_order


@pytest.fixture
def pool():
    with ThreadPoolExecutor(3) as pool:
        yield pool


def test_results_come_in_the_order_of_the_items_however_long_each_takes(pool):
    pauses = [random.Random(0).uniform(0, 0.01) for _ in range(40)]

    def work(item):
        time.sleep(pauses[item])
        return item * item

    assert list(in_order(pool, 6, iter(range(40)), work)) == [(i, i * i) for i in range(40)]


def test_work_goes_on_at_the_same_time(pool):
    meeting = threading.Barrier(3, timeout=10)
    assert len(list(in_order(pool, 3, iter(range(3)), lambda item: meeting.wait()))) == 3


def test_no_more_items_are_taken_than_may_wait(pool):
    taken = []

    def items():
        for item in range(50):
            taken.append(item)
            yield item

    for item, _ in in_order(pool, 4, items(), lambda item: item):
        assert len(taken) <= item + 4


def test_what_fails_is_raised_after_the_results_before_it(pool):
    def items():
        yield from range(5)
        raise OSError("cut off")

    def work(item):
        if item == 3:
            time.sleep(0.01)
            raise ValueError("bad row")
        return item

    for work_of_items, kind, expected in ((work, ValueError, 3), (str, OSError, 5)):
        results = in_order(pool, 6, items(), work_of_items)
        assert [next(results)[0] for _ in range(expected)] == list(range(expected))
        with pytest.raises(kind):
            next(results)


def test_nothing_gives_nothing(pool):
    assert list(in_order(pool, 2, iter([]), str)) == []
