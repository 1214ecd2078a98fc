"""How far the AUC of a finite test sample may be from that of all rows."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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


def sample_error_sentences(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What the finite test sample adds, which the spread over seeds does not show."""
    tests = [record["test"] for record in records if record["test"]]
    errors: list[float] = []
    classes: dict[tuple[int, int], None] = {}
    for test in tests:
        rows, positives = test.get("rows"), test.get("positives")
        if test.get("auc") is not None and rows and positives and positives < rows:
            errors.append(auc_standard_error(test["auc"], positives, rows - positives))
            classes[positives, rows] = None
    if errors:
        low, high = f"{min(errors):.2g}", f"{max(errors):.2g}"
        sizes = " or ".join(
            f"{positives:,} positives among {rows:,}" for positives, rows in classes
        )
        yield (
            f"Test-sample error is not in these intervals. With {sizes} test rows, the AUC of one "
            f"curve has a standard error of {low if low == high else f'{low} to {high}'} from the "
            "test rows alone (Hanley and McNeil 1982). Both curves are scored on the same rows, so "
            "their difference has less."
        )
        yield "For losses, the error of the test sample is not known from the records either."
    else:
        yield (
            "Test-sample error is not in these intervals: how far losses would differ on other "
            "test rows is not known from the records. Both curves are scored on the same rows, so "
            "their difference has less of that error than each of them."
        )
