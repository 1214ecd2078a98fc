"""Small made-up logs for the tests of the data package."""

from pathlib import Path

import pytest

from dpcompare.data import (
    Column,
    Dataset,
    Manifest,
    Schema,
    Target,
    load_prepared,
    load_schema,
    prepare,
)
from dpcompare.errors import DpcompareError, UsageError

CRITEO = load_schema("criteo-kaggle")
ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
DOCUMENTATION = ROOT / "docs" / "data.md"
HILLSTROM = "Example: Hillstrom's e-mail log"
KAG = "Example: KAG's conversions with exposure"

needs_real_rows = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the real ads rows of ../shared/data are not on this machine"
)


def criteo_fields(row: int = 0, **changed: str) -> list[str]:
    """One row of the Criteo layout, made up; `changed` gives fields by column name."""
    names = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
    fields = {name: f"{(row * 131 + i) % 97}" for i, name in enumerate(names)}
    fields |= {
        f"C{i}": f"{row * 0x01234567 + i * 0x9876543 & 0xFFFFFFFF:08x}" for i in range(1, 27)
    }
    fields["label"] = str(row % 2)
    fields |= changed
    return [fields[name] for name in names]


def criteo_text(rows: int = 10, **changed: str) -> str:
    """Rows of the Criteo layout; `changed` applies to the last row."""
    lines = [criteo_fields(row) for row in range(rows - 1)] + [criteo_fields(rows - 1, **changed)]
    return "".join("\t".join(fields) + "\n" for fields in lines)


def own_schema(**changed: object) -> Schema:
    """A comma-separated log with a header: number, whole, color, click, id."""
    content = {
        "name": "own",
        "title": "own log",
        "rows_in_time_order": True,
        "columns": (
            Column("id", "ignore"),
            Column("number", "numeric"),
            Column("whole", "numeric", integer=True, scale=2.0),
            Column("color", "categorical"),
            Column("click", "label"),
        ),
        "tasks": {"pctr": Target("click")},
        "missing": ("", "-1"),
    }
    return Schema(**{**content, **changed})


def documented_schema(heading: str, folder: Path) -> Path:
    """The TOML block under a heading of docs/data.md, as a file in `folder`."""
    page = DOCUMENTATION.read_text(encoding="utf-8")
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    return write(folder / "documented.toml", section.split("```toml\n")[1].split("```")[0])


def write(path: Path, content: str | bytes) -> Path:
    """Write a file and return its path."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def prepare_text(
    folder: Path, content: str | bytes, schema: Schema = CRITEO, **options: object
) -> tuple[Dataset, Manifest]:
    """Prepare one text file and load it."""
    source = write(folder / "log.txt", content)
    manifest = prepare(schema, [source], folder / "prepared", **options)
    return load_prepared(folder / "prepared"), manifest


def refuse(
    folder: Path, content: str | bytes, message: str, schema: Schema = CRITEO, **options: object
) -> None:
    """Preparing must fail with one clear message that names the file, and leave nothing behind."""
    source = write(folder / "log.txt", content)
    with pytest.raises(DpcompareError, match=message) as caught:
        prepare(schema, [source], folder / "prepared", **options)
    assert [path.name for path in folder.iterdir()] == ["log.txt"]
    assert "log.txt" in str(caught.value) or isinstance(caught.value, UsageError)
