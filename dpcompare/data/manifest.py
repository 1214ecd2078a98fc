"""The manifest of a prepared data set: what the column files hold, and how they were made."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpcompare.data.schema import LABEL_KINDS, Schema
from dpcompare.errors import DpcompareError

FORMAT = 2
MANIFEST_FILE = "manifest.json"
NUMERIC_FILE = "numeric.npy"
CATEGORIES_FILE = "categories.npy"
EXPOSURE_FILE = "exposure.npy"
JOURNEYS_FILE = "journeys.npy"


class FormatError(DpcompareError):
    """A prepared folder of another version of dpcompare."""


def label_file(task: str) -> str:
    """The file of a task's label, for the rows of the task."""
    return f"label_{task}.npy"


def rows_file(task: str) -> str:
    """The file of the rows of a task that does not have all of them."""
    return f"rows_{task}.npy"


def own_files() -> set[str]:
    """The names of all files that a prepared folder may hold."""
    names = {MANIFEST_FILE, NUMERIC_FILE, CATEGORIES_FILE, EXPOSURE_FILE, JOURNEYS_FILE}
    return names | {name(task) for task in LABEL_KINDS for name in (label_file, rows_file)}


@dataclass(frozen=True)
class Manifest:
    """What a prepared folder says about itself. It describes rows, so it is as private as they are.

    Attributes:
        format: the version of this layout.
        checksum: sha256 over the names of the feature columns and the sha256 of every column file.
        schema: the content of the schema, its patterns replaced by the columns they matched.
        rows: n.
        journeys: how many journeys there are; None where the schema has none.
        labels: for each task column, rule, kind, rows, total, mean, min, max, outside and
            first_outside; rows is how many belong to the task, total the positives of a 0/1 label,
            and outside how many rows do not belong to it although their label is above 0.
        exposure: min and max of the exposure; None where the schema has none.
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
    journeys: int | None
    labels: dict[str, dict[str, Any]]
    exposure: dict[str, float] | None
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
        return Schema.restored(self.schema)

    def write(self, folder: Path) -> None:
        """Write it into a folder of column files."""
        text = json.dumps(asdict(self), indent=1, allow_nan=False, ensure_ascii=False)
        (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")

    def report(self) -> str:
        """A few lines for the user: rows, base rates, value ranges, warnings."""
        lines = [f"{self.name}: {self.rows:,} rows from {len(self.sources)} file(s)"]
        if self.journeys is not None:
            lines.append(
                f"journeys: {self.journeys:,}, equal in {', '.join(self.schema['journey'])}"
            )
        for task, label in self.labels.items():
            lines.append(
                f"{task} ({label['rule']}): {label['rows']:,} rows, mean {label['mean']:.4f}, "
                f"{label['min']:g} to {label['max']:g}"
            )
        if self.exposure is not None:
            lines.append(f"exposure: {self.exposure['min']:g} to {self.exposure['max']:g}")
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
        FormatError: it has another format.
        DpcompareError: there is none, or it is damaged.
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
    except PermissionError as error:
        raise DpcompareError(f"{path} cannot be read: {error.strerror}") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DpcompareError(f"{path} is damaged: {error}; prepare the data again") from error
    if version != FORMAT:
        raise FormatError(
            f"{path} has format {version}, this version of dpcompare reads format {FORMAT}; "
            "prepare the data again"
        )
    try:
        return Manifest(**content)
    except TypeError as error:
        raise DpcompareError(f"{path} is damaged: {error}; prepare the data again") from error
