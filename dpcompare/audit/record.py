"""The file of an audit, `audit.json` in a results folder."""

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpcompare.audit.finding import Finding
from dpcompare.errors import DpcompareError
from dpcompare.results import write_atomically

FORMAT = 1
NAME = "audit.json"
DIGEST = "sha256"
"""The key that tells whether the rest has changed since."""


def to_text(findings: Sequence[Finding], seed: int) -> str:
    """The findings as strict JSON."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "seed": seed,
        "confidence": 0.95,
        "findings": [finding.to_json() for finding in findings],
    }
    content[DIGEST] = _digest(content)
    return json.dumps(content, allow_nan=False, indent=1) + "\n"


def write(folder: Path, findings: Sequence[Finding], seed: int) -> Path:
    """Write `audit.json` of a results folder, whole or not at all.

    Raises:
        DpcompareError: the file cannot be written.
    """
    path = folder / NAME
    write_atomically(path, to_text(findings, seed).encode())
    return path


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written before an attack of minutes, not after it.

    Raises:
        DpcompareError: it cannot.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DpcompareError(f"cannot write {folder / NAME}: {error.strerror}") from error


def read(folder: Path) -> list[Finding]:
    """The findings of a results folder; none where it has not been audited.

    Raises:
        DpcompareError: the file cannot be read, or is not one of this version.
    """
    path = folder / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise DpcompareError(
                f"{path} has format {content['format']!r}, and this version of dpcompare reads "
                f"{FORMAT}; audit the folder again: dpcompare audit {folder}"
            )
        if content.pop(DIGEST) != _digest(content):
            raise ValueError("it is not what was written")
        return [Finding.from_json(values) for values in content["findings"]]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DpcompareError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DpcompareError(
            f"{path} is damaged; delete it, or audit the folder again: dpcompare audit {folder}"
        ) from error


def _digest(content: Mapping[str, Any]) -> str:
    """What identifies the content of the file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
