"""A table as Markdown, as LaTeX with booktabs, and as CSV."""

import re
from collections.abc import Callable
from itertools import accumulate

from dpcompare.tables.table import Table

_MARKDOWN_SPECIAL = re.compile(r"[\\`*|<\[]|(?<!\w)_|_(?!\w)")
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "%&_#${}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: f"{{{character}}}" for character in "[]*"},  # not an argument of a line's end
    "±": r"$\pm$",
    "²": "$^2$",
    "ε": r"$\varepsilon$",
    "→": r"$\to$",
    "\N{MINUS SIGN}": "$-$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "…": r"\ldots{}",
}
_LATEX_SPECIAL = re.compile("[" + re.escape("".join(_LATEX)) + "]")
_LONGEST_CAPTION = 1500
"""Characters of a LaTeX caption: LaTeX sets it on one line first, which may not pass 5.7 m."""
_NEGATIVE = re.compile(r"(?<![\w.)\]])-(?=\d)")


def markdown(name: str, table: Table) -> str:
    """The table in GitHub's Markdown: title, grid, and a sentence of the caption a line."""
    rows = [row for block in table.blocks for row in block]
    dashes = ["---" if side == "l" else "---:" for side in table.alignment]
    lines = [_markdown_row(table.head), f"|{'|'.join(dashes)}|", *map(_markdown_row, rows)]
    caption = [_markdown_text(sentence) for sentence in table.caption]
    return "\n".join([f"**{_markdown_text(table.title)}**", "", *lines, "", *caption]) + "\n"


def latex(name: str, table: Table) -> str:
    """The table as a float for a document that uses the package booktabs.

    Sentences that would make the caption too long for LaTeX stand below the table.
    """
    blocks = ["".join(map(_latex_row, block)) for block in table.blocks]
    between = "    \\addlinespace\n"
    title = latex_text(table.title)
    lead, rest = _split([latex_text(text) for text in (f"{table.title}.", *table.caption)])
    below = f"  \\par\\smallskip\n  \\parbox{{\\linewidth}}{{\\footnotesize {' '.join(rest)}}}\n"
    key = re.sub(r"[^A-Za-z0-9]+", "-", f"{table.study}-{name}")
    return (
        "% needs \\usepackage{booktabs}\n"
        "\\begin{table}\n"
        "  \\centering\n"
        "  \\small\n"
        f"  \\caption[{{{title}}}]{{{' '.join(lead)}}}\n"
        f"  \\label{{tab:{key}}}\n"
        f"  \\begin{{tabular}}{{{table.alignment}}}\n"
        "    \\toprule\n"
        f"{_latex_row(table.head)}"
        "    \\midrule\n"
        f"{between.join(blocks)}"
        "    \\bottomrule\n"
        "  \\end{tabular}\n"
        f"{below if rest else ''}"
        "\\end{table}\n"
    )


def csv(name: str, table: Table) -> str:
    """The numbers behind the table in full precision."""
    return table.numbers.to_csv(index=False)


FORMATS: dict[str, Callable[[str, Table], str]] = {"md": markdown, "tex": latex, "csv": csv}
"""From the ending of a file to the text of a table with a name."""


def latex_text(text: str) -> str:
    """Plain text, with everything that LaTeX would not print as it stands replaced."""
    signed = _NEGATIVE.sub("\N{MINUS SIGN}", " ".join(text.split()))
    return _LATEX_SPECIAL.sub(lambda found: _LATEX[found[0]], signed)


def _split(sentences: list[str]) -> tuple[list[str], list[str]]:
    """The sentences that a caption can hold, and those that it cannot."""
    lengths = list(accumulate(len(sentence) + 1 for sentence in sentences))
    fitting = sum(length <= _LONGEST_CAPTION for length in lengths)
    return sentences[:fitting], sentences[fitting:]


def _latex_row(cells: list[str]) -> str:
    return f"    {' & '.join(map(latex_text, cells))} \\\\\n"


def _markdown_text(text: str) -> str:
    return _MARKDOWN_SPECIAL.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(map(_markdown_text, cells))} |"
