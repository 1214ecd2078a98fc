"""Arrow arrays as numpy arrays, straight from their buffers.

pyarrow's own conversion imports pandas first, which takes a second that preparation need not wait.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def fixed_width(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The values of an array of numbers, (n,), read-only; what stands at nulls is arbitrary.

    Args:
        array: of the Arrow type that `dtype` names.
        dtype: its numpy type; not bool, which Arrow packs in bits.
    """
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(data, dtype=dtype)[array.offset : array.offset + len(array)]


def nulls(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Where an array holds null, (n,)."""
    validity = array.buffers()[0]
    if array.null_count == 0:
        return np.zeros(len(array), dtype=np.bool_)
    if validity is None:  # an array of type null
        return np.ones(len(array), dtype=np.bool_)
    bits = np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)] == 0


def text_and_offsets(array: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """The bytes of an array of text, and (n + 1,) where each value begins; the last is the end."""
    _, offset_buffer, text_buffer = array.buffers()
    if len(array) == 0 or offset_buffer is None:
        return np.zeros(0, dtype=np.uint8), np.zeros(len(array) + 1, dtype=np.int32)
    kind = np.int64 if pa.types.is_large_string(array.type) else np.int32
    offsets = np.frombuffer(offset_buffer, dtype=kind)[array.offset :][: len(array) + 1]
    return np.frombuffer(text_buffer or b"", dtype=np.uint8), offsets
