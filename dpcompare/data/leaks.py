"""Columns of public logs that are known to give the label away, refused as features by name."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from dpcompare.errors import UsageError

_ATTRIBUTION = "the Criteo Attribution log"
_SEARCH = "the Criteo Sponsored Search log"
_PRIVATE_AD = "CriteoPrivateAd"

# name: the log, and how the column tells the label.
_KNOWN = {
    "conversion_timestamp": (_ATTRIBUTION, "it is filled on conversions only"),
    "conversion_id": (_ATTRIBUTION, "it is filled on conversions only"),
    "attribution": (_ATTRIBUTION, "it is 1 on conversions only"),
    "click_pos": (_ATTRIBUTION, "it is filled on conversions only"),
    "click_nb": (_ATTRIBUTION, "it is filled on conversions only"),
    "product_price": (_SEARCH, "it is almost only filled on sales; alone it reaches AUC .966"),
    "SalesAmountInEuro": (_SEARCH, "it is filled on sales only"),
    "Time_delay_for_conversion": (_SEARCH, "it is filled on sales only"),
    "nb_sales": (_PRIVATE_AD, "it is the number of sales itself"),
    "*_delay_after_display_array": (_PRIVATE_AD, "it is filled after the display"),
    "attributed_time": ("TalkingData", "it is empty unless the label is 1"),
}


def refuse_known_leaks(features: Iterable[str], source: str) -> None:
    """Refuse features that are called as a known leak is.

    Args:
        features: the names of the numeric and categorical columns.
        source: the schema, for messages.

    Raises:
        UsageError: one is called so.
    """
    for feature in features:
        for name, (log, reason) in _KNOWN.items():
            if fnmatchcase(feature, name):
                raise UsageError(
                    f"{source}: columns: {feature!r} must not be a feature: in {log} a column of "
                    f"this name tells the label ({reason}). Give it the role leak; if yours is "
                    "another column, known before the label, rename it in the file and here"
                )
