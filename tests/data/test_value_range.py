import math

import numpy as np

from dpcompare.data.value_range import ValueRange


def test_the_range_of_values_that_stream_by():
    found = ValueRange()
    for part in ([3.0, math.nan], [], [math.nan], [-1.0, 7.5]):
        found.add(np.array(part))
    assert (found.rows, found.missing, found.low, found.high) == (5, 2, -1.0, 7.5)


def test_no_values_have_no_range():
    found = ValueRange()
    found.add(np.array([math.nan]))
    assert (found.low, found.high) == (math.inf, -math.inf)
