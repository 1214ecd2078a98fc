"""How far the AUC of a finite test sample may be from that of all rows."""

import math

from dpcompare.errors import UsageError


def auc_standard_error(auc: float, positives: int, negatives: int) -> float:
    """Standard error of an AUC that comes from the finite sample of scored rows.

    Hanley and McNeil (1982), "The meaning and use of the area under a receiver operating
    characteristic (ROC) curve", Radiology 143:29-36, equation 1, with Q1 and Q2 of equation 2: the
    rows are drawn independently, and scores within each class are exponential, which real scores
    are only roughly.

    Args:
        auc: the area under the ROC curve, in 0 to 1.
        positives: scored rows whose label is 1.
        negatives: scored rows whose label is 0.

    Raises:
        UsageError: the AUC is outside 0 to 1, or a class has no rows.
    """
    if not 0 <= auc <= 1:
        raise UsageError(f"auc must be between 0 and 1, got {auc}")
    if positives < 1 or negatives < 1:
        raise UsageError(
            "an AUC needs rows of both classes, got "
            f"{positives:,} positives and {negatives:,} negatives"
        )
    two_positives = auc / (2 - auc)  # chance that two positives both rank above one negative
    two_negatives = 2 * auc**2 / (1 + auc)  # chance that one positive ranks above two negatives
    variance = (
        auc * (1 - auc)
        + (positives - 1) * (two_positives - auc**2)
        + (negatives - 1) * (two_negatives - auc**2)
    ) / (positives * negatives)
    return math.sqrt(max(variance, 0.0))
