"""Random streams by purpose: every stream's key is a hash of the words that name it.

Two streams are the same only if all their words are, so the split, the initial weights and the
batch order may be shared between trials (words: the seed and the purpose), while noise never is
(words: the whole configuration of the trial). Generators are counter-based: the stream of step t
is reached at once, without drawing those before it.
"""

import hashlib
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PRNG = "threefry2x32 (jax, Gaussian noise), Philox4x64 (numpy, batches and labels)"


def digest(*words: Any) -> bytes:
    """32 bytes that name a stream.

    Args:
        *words: anything that canonical JSON can write (strings, numbers, lists, dictionaries).
    """
    text = json.dumps(words, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


def numpy_generator(*words: Any, counter: int = 0) -> np.random.Generator:
    """The Philox generator named by `words`; `counter` (a step, an epoch) selects a substream."""
    key = np.frombuffer(digest(*words)[:16], dtype=np.uint64)
    # The step sits in the highest counter word: 2^192 blocks separate one step from the next.
    return np.random.Generator(np.random.Philox(key=key, counter=np.array([0, 0, 0, counter])))


def jax_key(*words: Any) -> jax.Array:
    """The 64-bit threefry key named by `words` (`jax.random.key` would keep 32 bits of a seed)."""
    data = np.frombuffer(digest(*words)[:8], dtype=np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(data), impl="threefry2x32")
