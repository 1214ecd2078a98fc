"""What differs between the studies, the data, the code and the libraries of two folders."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcompare.comparison.sides import Side, read_side
from dpcompare.frame import versions
from dpcompare.summary import Records


@dataclass(frozen=True)
class Difference:
    """A setting that is not the same in two folders.

    Attributes:
        setting: its name, with section and label.
        a: its value in the first folder, as text; "-" where that has none.
        b: its value in the second.
    """

    setting: str
    a: str
    b: str


def differing_settings(a: Path, b: Path) -> list[Difference]:
    """What differs between the studies, the data, the code and the libraries of two folders.

    Settings of a mechanism are compared where both have a curve of the same label; those that
    differ in the same way in several curves are named once.

    Args:
        a: a results folder.
        b: another.

    Raises:
        DpcompareError: a folder has no records.
    """
    return differing(read_side(a), read_side(b))


def differing(first: Side, second: Side) -> list[Difference]:
    """What :func:`differing_settings` returns, of folders that are read already."""
    found = []
    if first.study is not None and second.study is not None:
        of_curves = [_curves(side.study or {}) for side in (first, second)]
        rest = [
            {key: value for key, value in (side.study or {}).items() if key != "mechanisms"}
            for side in (first, second)
        ]
        found += _pairs(dict(_flat(rest[0])), dict(_flat(rest[1])))
        found += _of_shared_curves(of_curves[0], of_curves[1])
    said = [_provenance(side.records) for side in (first, second)]
    shared = said[0].keys() & said[1].keys()
    return found + _pairs(*({k: v for k, v in of.items() if k in shared} for of in said))


def _pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    return [
        Difference(key, _text(a.get(key)), _text(b.get(key)))
        for key in {**a, **b}
        if a.get(key) != b.get(key)
    ]


def _of_shared_curves(
    a: Mapping[str, Mapping[str, Any]], b: Mapping[str, Mapping[str, Any]]
) -> list[Difference]:
    """The settings of curves that are in both, those with the same change together."""
    curves: dict[Difference, list[str]] = {}
    for label in a:
        if label in b:
            for difference in _pairs(dict(_flat(a[label])), dict(_flat(b[label]))):
                curves.setdefault(difference, []).append(label)
    return [
        Difference(f"{', '.join(labels)}: {change.setting}", change.a, change.b)
        for change, labels in curves.items()
    ]


def _curves(study: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The entries of a study by label."""
    entries = study.get("mechanisms", [])
    return {str(entry.get("label", entry.get("name"))): entry for entry in entries}


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _provenance(records: Records) -> dict[str, str]:
    """What the records say of data, code and libraries, which no study file holds."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        configuration = record["configuration"]
        data, mechanism = configuration.get("data") or {}, configuration.get("mechanism") or {}
        said = {
            "checksum of the data": data.get("checksum") and data["checksum"][:12],
            f"code of {record['mechanism']}": mechanism.get("version"),
            "random numbers": record["prng"],
        }
        for key, value in said.items():
            if value is not None:
                found.setdefault(key, {})[str(value)] = None
    libraries = {f"version of {name}": version for name, version in versions(records).items()}
    return {key: ", ".join(sorted(values)) for key, values in found.items()} | libraries


def _text(value: Any) -> str:
    """A setting in a few words; what changes with epsilon as epsilon ranges."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        if value.keys() == {"epsilon_up_to", "value"}:
            up_to = value["epsilon_up_to"]
            where = "above" if up_to == math.inf else f"up to epsilon {up_to:g}"
            return f"{_text(value['value'])} {where}"
        return ", ".join(f"{key}={_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return str(value)
