"""The fixed public hash of category text.

A category is always text, never a number: "05359163" and "623049e6" keep every character. The hash
has no seed and learns nothing from rows, so two logs, two splits or two machines give the same
value to the same text, and nothing about a row can leak through a vocabulary.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcompare.data.arrow import fixed_width, nulls, text_and_offsets

UInt8Array = npt.NDArray[np.uint8]
UInt32Array = npt.NDArray[np.uint32]
UInt64Array = npt.NDArray[np.uint64]

MISSING = 0  # the value of a missing category; no text hashes to it
HASH_RULE = "1 + FNV-1a-64(UTF-8 bytes of the text) mod (2**32 - 1); 0 = missing"

_OFFSET_BASIS = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_LARGEST = np.uint32(0xFFFFFFFF)
_LOW_BYTE = np.uint64(0xFF)
_HALF = np.uint64(32)

_HEX_PAIRS = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), dtype=np.uint16)


def fnv1a_64(text: UInt8Array, starts: npt.NDArray[Any], ends: npt.NDArray[Any]) -> UInt64Array:
    """FNV-1a, 64 bit, of many byte strings that lie in one buffer.

    Source: Fowler, Noll, Vo; parameters as in IETF draft-eastlake-fnv, section 5.

    Args:
        text: (bytes,) the buffer.
        starts: (n,) where each string begins.
        ends: (n,) where each string ends, exclusive.

    Returns:
        (n,) uint64 hashes; the empty string hashes to the offset basis.
    """
    hashes = np.full(len(starts), _OFFSET_BASIS, dtype=np.uint64)
    lengths = ends - starts
    alive = np.flatnonzero(lengths > 0)
    position = 0
    while len(alive):
        byte = text[starts[alive] + position]
        hashes[alive] = (hashes[alive] ^ byte) * _PRIME
        position += 1
        alive = alive[lengths[alive] > position]
    return hashes


def fnv1a_64_fixed(text: UInt8Array) -> UInt64Array:
    """:func:`fnv1a_64` of strings of one length: (n, width) uint8, contiguous, to (n,) uint64."""
    if text.shape[1] == 8:
        return _fnv1a_64_words(text.reshape(-1).view("<u8"))
    hashes = np.full(len(text), _OFFSET_BASIS, dtype=np.uint64)
    for position in range(text.shape[1]):
        hashes ^= text[:, position]
        hashes *= _PRIME
    return hashes


def _fnv1a_64_words(words: UInt64Array) -> UInt64Array:
    """The same of strings of eight bytes, each read as a number whose lowest byte comes first."""
    hashes = np.full(len(words), _OFFSET_BASIS, dtype=np.uint64)
    byte = np.empty_like(words)
    for position in range(8):
        np.right_shift(words, np.uint64(8 * position), out=byte)
        byte &= _LOW_BYTE
        hashes ^= byte
        hashes *= _PRIME
    return hashes


def fold(hashes: UInt64Array) -> UInt32Array:
    """Fold 64-bit hashes to 1..2**32 - 1: ``1 + hash mod (2**32 - 1)``, so that 0 stays free."""
    # 2**32 is 1 modulo 2**32 - 1, so the halves may be added instead of divided, and so may 1 for
    # a sum that went beyond 2**32 - 1 and started again at 0.
    low = hashes.astype(np.uint32)
    folded = low + (hashes >> _HALF).astype(np.uint32)
    folded += folded < low
    folded[folded == _LARGEST] = 0
    folded += np.uint32(1)
    return folded


def hash_hex(values: UInt32Array) -> UInt32Array:
    """The hashes of numbers written as eight lowercase hex digits: (n,) to (n,)."""
    return fold(fnv1a_64_fixed(hex_digits(values)))


def hex_digits(values: UInt32Array) -> UInt8Array:
    """Numbers as ASCII text of eight lowercase hex digits: (n,) uint32 to (n, 8) uint8."""
    pairs = _HEX_PAIRS[values.astype(">u4").view(np.uint8)]
    return pairs.view(np.uint8).reshape(len(values), 8)


def mix_64(bits: UInt64Array) -> UInt64Array:
    """Scramble 64-bit numbers one to one: the finalizer of SplitMix64 (Steele, Lea, Flood 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def hash_text(values: pa.Array) -> UInt32Array:
    """The hashes of an Arrow array of text (string or large_string): (n,) uint32, 0 for nulls."""
    hashes = np.full(len(values), MISSING, dtype=np.uint32)
    present = slice(None) if values.null_count == 0 else ~nulls(values)
    count = len(values) - values.null_count
    if count:
        text, offsets = text_and_offsets(values)
        width = int(np.diff(offsets).max())
        used = text[offsets[0] : offsets[-1]]
        if len(used) == width * count > 0:  # all texts have the same length, and nulls have none
            hashes[present] = fold(fnv1a_64_fixed(used.reshape(count, width)))
        else:
            hashes[present] = _hash_uneven(values.drop_null())
    return hashes


def _hash_uneven(values: pa.Array) -> UInt32Array:
    """Texts of several lengths hash several times slower, so each distinct one is hashed once."""
    distinct = values.dictionary_encode()
    text, offsets = text_and_offsets(distinct.dictionary)
    hashes = fold(fnv1a_64(text, offsets[:-1], offsets[1:]))
    return hashes[fixed_width(distinct.indices, np.int32)]
