"""What epsilon protects: whole rows, or labels only."""

import pandas as pd

UNITS = {"example": "whole-row", "label": "label"}


def unit_of(rows: pd.DataFrame) -> dict[str, str]:
    """The unit of each curve that got as far as a guarantee."""
    stated = rows[rows["unit"].notna()].drop_duplicates("label")
    return dict(zip(stated["label"], stated["unit"], strict=True))
