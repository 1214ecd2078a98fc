"""Random streams: named by words, independent of everything else."""

import hashlib
import random

import jax
import numpy as np
import pytest

from dpcompare.randomness import digest, jax_key, numpy_generator

NAMES = [("a",), ("b",), ("a", "b"), ("ab",), ("a", 1), ("a", "1"), ("a", 1.0), ("a", [1]), ("",)]


def test_streams_differ_if_any_of_their_words_do():
    assert len({digest(*words) for words in NAMES}) == len(NAMES)
    drawn = {numpy_generator(*words).bytes(16) for words in NAMES}
    assert len(drawn) == len(NAMES)
    keys = {jax.random.key_data(jax_key(*words)).tobytes() for words in NAMES}
    assert len(keys) == len(NAMES)


def test_the_order_of_keys_in_a_word_does_not_count():
    assert digest({"x": 1, "y": 2}) == digest({"y": 2, "x": 1})


def test_a_published_name_gives_the_same_numbers_forever():
    assert digest("a", 1) == hashlib.sha256(b'["a",1]').digest()
    raw = numpy_generator("a", 1, counter=3).bit_generator.random_raw(2)
    assert raw.tolist() == [17176935467234838519, 17415656901303356657]
    assert jax.random.key_data(jax_key("a", 1)).tolist() == [2752995091, 4246382197]


def test_global_generators_have_no_say_and_are_left_alone():
    np.random.seed(0)
    random.seed(0)
    before = numpy_generator("a").random(4), jax.random.normal(jax_key("a"), (4,))
    state = np.random.get_state()[1].tolist()
    np.random.seed(1)
    random.seed(1)
    after = numpy_generator("a").random(4), jax.random.normal(jax_key("a"), (4,))
    np.random.seed(0)
    np.testing.assert_array_equal(before[0], after[0])
    np.testing.assert_array_equal(before[1], after[1])
    assert np.random.get_state()[1].tolist() == state


def test_substreams_are_reached_at_once_and_do_not_overlap():
    streams = [numpy_generator("a", counter=step).random(10_000) for step in range(3)]
    streams.append(numpy_generator("b", counter=0).random(10_000))
    assert len(np.unique(np.concatenate(streams))) == 40_000
    correlations = np.corrcoef(streams)[np.triu_indices(4, 1)]
    assert np.max(np.abs(correlations)) < 4.5 / np.sqrt(10_000), "4.5 standard errors"
    again = numpy_generator("a", counter=2).random(10_000)
    np.testing.assert_array_equal(again, streams[2])


def test_keys_use_64_bits_where_a_seed_would_keep_32():
    keys = np.stack([jax.random.key_data(jax_key("noise", i)) for i in range(1000)])
    assert keys.shape == (1000, 2)
    for half in keys.T:
        bits = np.unpackbits(half.astype(np.uint32).view(np.uint8))
        assert abs(bits.mean() - 0.5) < 4.5 * 0.5 / np.sqrt(32_000), "4.5 standard errors"


def test_words_that_are_not_plain_values_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        digest(float("nan"))
    with pytest.raises(TypeError):
        digest(object())
