"""The fixed public transform of numeric features."""

import numpy as np
import numpy.typing as npt

NUMERIC_RULE = "sign(x) * log1p(|x|) / scale, scale from the schema; missing = NaN"


def signed_log(values: npt.NDArray[np.float64], scale: float) -> npt.NDArray[np.float32]:
    """Transform raw numbers: ``sign(x) * log1p(|x|) / scale``; NaN (missing) stays NaN.

    Finite for every finite x, negative ones included, and the same for every data set: nothing is
    learnt from rows. Computed in float64 and rounded once, so that it depends little on the
    machine.

    Args:
        values: (n,) raw numbers.
        scale: the schema's public divisor, > 0.

    Returns:
        (n,) float32.
    """
    logs = np.log1p(np.abs(values))
    logs /= scale
    return np.copysign(logs, values, out=logs).astype(np.float32)
