import numpy as np
import pyarrow as pa
import pytest

from dpcompare.data.hashing import (
    fnv1a_64,
    fnv1a_64_fixed,
    fold,
    hash_hex,
    hash_text,
    hex_digits,
    mix_64,
)

# Published FNV-1a 64-bit vectors: IETF draft-eastlake-fnv, appendix C, and the FNV authors' list.
VECTORS = {
    b"": 0xCBF29CE484222325,
    b"a": 0xAF63DC4C8601EC8C,
    b"b": 0xAF63DF4C8601F1A5,
    b"fo": 0x08985907B541D342,
    b"foo": 0xDCB27518FED9D577,
    b"foob": 0xDD120E790C2512AF,
    b"fooba": 0xCAC165AFA2FEF40A,
    b"foobar": 0x85944171F73967E8,
}


def plain_fnv1a_64(text: bytes) -> int:
    """The textbook loop, as an oracle."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def plain_category_hash(text: str) -> int:
    return 1 + plain_fnv1a_64(text.encode()) % (2**32 - 1)


def test_published_vectors():
    text = b"".join(VECTORS)
    ends = np.cumsum([len(word) for word in VECTORS])
    starts = ends - [len(word) for word in VECTORS]
    hashes = fnv1a_64(np.frombuffer(text, dtype=np.uint8), starts, ends)
    assert [int(value) for value in hashes] == list(VECTORS.values())


@pytest.mark.parametrize("word", [word for word in VECTORS if word])
def test_published_vectors_at_fixed_width(word):
    text = np.tile(np.frombuffer(word, dtype=np.uint8), (3, 1))
    assert set(fnv1a_64_fixed(text).tolist()) == {VECTORS[word]}


def test_fold_is_the_remainder_and_never_zero():
    edges = [0, 1, 2**32 - 2, 2**32 - 1, 2**32, 2**33 - 2, 2**64 - 2**32, 2**64 - 1]
    values = np.array(edges + list(VECTORS.values()), dtype=np.uint64)
    expected = [1 + int(value) % (2**32 - 1) for value in values]
    folded = fold(values)
    assert folded.dtype == np.uint32
    assert folded.tolist() == expected
    assert folded.min() >= 1


@pytest.mark.parametrize(
    "words",
    [
        ["68fd1e64", "623049e6", "05359163"],
        ["68fd1e64", None, "623049e6", None],
        ["a", "", None, "München", "a longer text", "a", "日本"],
        ["", ""],
        [None, None],
        [],
    ],
)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_text_of_all_kinds_hashes_as_the_plain_loop_does(words, kind):
    expected = [0 if word is None else plain_category_hash(word) for word in words]
    assert hash_text(pa.array(words, kind)).tolist() == expected


def test_a_slice_of_an_array_hashes_its_own_texts():
    words = ["aa", "bb", None, "cc", "dd", None, "ee"]
    expected = [0 if word is None else plain_category_hash(word) for word in words[1:6]]
    assert hash_text(pa.array(words)[1:6]).tolist() == expected
    uneven = ["a", "bbb", None, "cc"]
    assert hash_text(pa.array(uneven)[1:]).tolist()[0] == plain_category_hash("bbb")


def test_categories_that_look_like_numbers_stay_text():
    alike = ["05359163", "5359163", "5359163.0", "623049e6", "623049000000.0"]
    assert len(set(hash_text(pa.array(alike)).tolist())) == len(alike)


def test_hex_numbers_hash_as_their_text():
    values = np.array([0, 1, 0x05359163, 0x623049E6, 0xFFFFFFFF, 0x80000000], dtype=np.uint32)
    words = [f"{value:08x}" for value in values]
    assert [bytes(row).decode() for row in hex_digits(values)] == words
    assert hash_hex(values).tolist() == [plain_category_hash(word) for word in words]


def test_hashes_spread_evenly_over_buckets():
    """Chi-square of 100,000 consecutive numbers as text: not above chance by 5 s.e."""
    hashes = hash_text(pa.array([str(number) for number in range(100_000)]))
    counts = np.bincount(hashes % 299, minlength=299)
    chi_square = ((counts - 100_000 / 299) ** 2 / (100_000 / 299)).sum()
    assert chi_square - 298 < 5 * np.sqrt(2 * 298)


def test_mixing_is_one_to_one_on_a_sample():
    assert len(np.unique(mix_64(np.arange(100_000, dtype=np.uint64)))) == 100_000
