"""What every table says of its numbers: what epsilon protects, what was tuned, what is missing."""

import pandas as pd

from dpcompare.wording import (
    UNIT_NOTE,
    constant_legend,
    failure_counts,
    privacy_sentences,
    remark_sentences,
    tuning_sentence,
)


def privacy_caption(summary: pd.DataFrame) -> list[str]:
    """Unit, relation and delta of epsilon, once per curve, and that tuning is not in it."""
    curves = summary.assign(label=summary["curve"])
    return [
        "Equal epsilon is not equal privacy.",
        *privacy_sentences(curves, with_relations=False),
        UNIT_NOTE,
        *filter(None, [tuning_sentence(curves, with_choices=False)]),
    ]


def gaps_caption(summary: pd.DataFrame) -> list[str]:
    """Failed and missing trials, and what the others have to say."""
    failures = failure_counts(summary)
    failed = [f"Failed: {'; '.join(failures)}; reasons in the CSV."] if failures else []
    return failed + remark_sentences(summary)


def constant_caption(summary: pd.DataFrame) -> list[str]:
    """What the mark ! means, if there is one."""
    return [f"{line}." for line in constant_legend(summary)]
