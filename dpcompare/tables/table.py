"""What a table holds, before it is written in any format."""

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Table:
    """A table as plain text cells, and the numbers behind them.

    Attributes:
        study: whose trials it shows.
        title: what it shows, in a line.
        head: the titles of its columns.
        alignment: "l" for every column of text, "r" for every column of numbers.
        blocks: its rows in groups that belong together; a row has a cell for every title.
        caption: sentences on what the numbers are, what epsilon protects, and what is missing.
        numbers: all values in full precision, one row per curve and epsilon.
    """

    study: str
    title: str
    head: list[str]
    alignment: str
    blocks: list[list[list[str]]]
    caption: list[str]
    numbers: pd.DataFrame
