"""The manifest of a prepared data set: what the column files hold, and how they were made."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpcompare.data.schema import Column, Schema
from dpcompare.errors import DpcompareError

FORMAT = 1
MANIFEST_FILE = "manifest.json"
NUMERIC_FILE = "numeric.npy"
CATEGORIES_FILE = "categories.npy"


def label_file(task: str) -> str:
    """The file of a task's label."""
    return f"label_{task}.npy"


@dataclass(frozen=True)
class Manifest:
    """What a prepared folder says about itself. It describes rows, so it is as private as they are.

    Attributes:
        format: the version of this layout.
        checksum: sha256 over the names of the feature columns and the sha256 of every column file.
        schema: the content of the schema.
        rows: n.
        labels: for each task column, kind, total, mean, min and max; total is the positives of a
            0/1 label.
        numeric: for each column the missing share, and min and max before the transform (or None).
        categorical: for each column the missing share and the distinct values present, estimated.
        repeated_share: the share of rows that repeat an earlier one exactly, estimated.
        padded_rows: rows that a repair filled up with missing fields.
        repair: whether repairs were allowed.
        warnings: sentences for the user.
        rules: how numbers, categories and estimates were computed.
        sources: name (without folder), bytes, time of last change and rows of each file read.
        files: bytes and sha256 of each column file.
    """

    format: int
    checksum: str
    schema: dict[str, Any]
    rows: int
    labels: dict[str, dict[str, Any]]
    numeric: dict[str, dict[str, Any]]
    categorical: dict[str, dict[str, Any]]
    repeated_share: float
    padded_rows: int
    repair: bool
    warnings: list[str]
    rules: dict[str, str]
    sources: list[dict[str, Any]]
    files: dict[str, dict[str, Any]]

    @property
    def name(self) -> str:
        """The name of the schema."""
        return str(self.schema["name"])

    def restored_schema(self) -> Schema:
        """The schema that the rows were prepared with."""
        content = dict(self.schema)
        content["columns"] = tuple(Column(**column) for column in content["columns"])
        content["missing"] = tuple(content["missing"])
        return Schema(**content)

    def write(self, folder: Path) -> None:
        """Write it into a folder of column files."""
        text = json.dumps(asdict(self), indent=1, allow_nan=False, ensure_ascii=False)
        (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")

    def report(self) -> str:
        """A few lines for the user: rows, base rates, value ranges, warnings."""
        lines = [f"{self.name}: {self.rows:,} rows from {len(self.sources)} file(s)"]
        for task, label in self.labels.items():
            lines.append(
                f"{task}: {label['column']} has mean {label['mean']:.4f}, "
                f"{label['min']:g} to {label['max']:g}"
            )
        for name, column in self.numeric.items():
            values = (
                "no values" if column["min"] is None else f"{column['min']:g} to {column['max']:g}"
            )
            lines.append(f"{name}: {values}, {column['missing']:.1%} missing")
        for name, column in self.categorical.items():
            lines.append(
                f"{name}: about {column['distinct']:,} values, {column['missing']:.1%} missing"
            )
        lines.extend(f"warning: {warning}" for warning in self.warnings)
        return "\n".join(lines)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a prepared folder.

    Raises:
        DpcompareError: there is none, it is damaged, or it has another format.
    """
    path = folder / MANIFEST_FILE
    advice = "make one from raw files with: dpcompare prepare"
    if not folder.is_dir():
        problem = "is a file, not a prepared folder" if folder.exists() else "does not exist"
        raise DpcompareError(f"the data set {folder} {problem}; {advice}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["format"]
    except FileNotFoundError:
        raise DpcompareError(
            f"{folder} is not a prepared data set (it has no {MANIFEST_FILE}); {advice}"
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DpcompareError(f"{path} is damaged: {error}; prepare the data again") from error
    if version != FORMAT:
        raise DpcompareError(
            f"{path} has format {version}, this version of dpcompare reads format {FORMAT}; "
            "prepare the data again"
        )
    try:
        return Manifest(**content)
    except TypeError as error:
        raise DpcompareError(f"{path} is damaged: {error}; prepare the data again") from error
