"""Writing a mechanism to start from: the template of a kind, under a name of its own.

The templates in `mechanism_template/` are whole packages that pass their own tests; only their
three names (of the package, the module and the class) are replaced.
"""

import builtins
import importlib.util
import io
import keyword
import os
import re
import shutil
import tokenize
import uuid
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from dpcompare import catalog
from dpcompare.errors import DpcompareError, UsageError

Kind = Literal["label", "gradient"]

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


class Names(NamedTuple):
    """How a mechanism is called in the three places where it has a name.

    Attributes:
        package: of the folder, the distribution and in studies: ``my-mechanism``.
        module: ``my_mechanism``.
        class_name: ``MyMechanism``.
    """

    package: str
    module: str
    class_name: str

    @classmethod
    def of(cls, name: str) -> "Names":
        """The three names that follow from one, written in lower case with hyphens.

        Raises:
            UsageError: it is not written so.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"the name {name!r} must be lower-case words of ASCII letters and digits, the "
                "first of them beginning with a letter, joined by hyphens: e.g. my-mechanism"
            )
        words = re.split("[-_]", name)
        return cls("-".join(words), "_".join(words), "".join(map(str.capitalize, words)))

    def put_into(self, text: str, kind: Kind) -> str:
        """A text of the template of `kind` with these names in place of its own."""
        for old, new in zip(Names.of(f"{kind}-template"), self, strict=True):
            text = text.replace(old, new)
        return text


def write_package(name: str, kind: Kind, folder: Path) -> Path:
    """Write an installable package with a mechanism, its tests, a study and a README.

    Args:
        name: e.g. ``my-mechanism``, which is also what the package's folder is called.
        kind: what it randomizes: each label once, or the gradients of every step.
        folder: the folder to write it into, which exists.

    Returns:
        The new folder.

    Raises:
        UsageError: the name cannot be used, the folder is not there, or something else already
            has the place of the new one.
        DpcompareError: it cannot be written; then nothing is left.
    """
    names = Names.of(name)
    target = folder / names.package
    _check(names, kind, target)
    _write(_texts(names, kind), target)
    return target


def write_file(name: str, kind: Kind, folder: Path) -> Path:
    """Write the mechanism alone, a file that a study can name.

    Args:
        name: e.g. ``my-mechanism`` for the file ``my_mechanism.py``.
        kind: what it randomizes: each label once, or the gradients of every step.
        folder: the folder to write it into, which exists.

    Returns:
        The new file.

    Raises:
        UsageError: the name cannot be used, the folder is not there, or something else already
            has the place of the new file.
        DpcompareError: it cannot be written; then nothing is left.
    """
    names = Names.of(name)
    target = folder / f"{names.module}.py"
    _check(names, kind, target)
    _write({target.name: _texts(names, kind)[target.name]}, target)
    return target


def _texts(names: Names, kind: Kind) -> dict[str, str]:
    """The files of the package by name, in the order of the alphabet."""
    template = files("dpcompare").joinpath("mechanism_template", kind)
    found = {
        names.put_into(file.name, kind): names.put_into(file.read_text(encoding="utf-8"), kind)
        for file in template.iterdir()
        if file.is_file()
    }
    return dict(sorted(found.items()))


def _check(names: Names, kind: Kind, target: Path) -> None:
    """Refuse a place that is taken or not there, and a name that something else has.

    Raises:
        UsageError: it is so, with the reason.
    """
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent} to write into; make it first")
    if os.path.lexists(target):
        raise UsageError(
            f"{target} is already there and stays as it is; choose another name, or another "
            "folder with --out"
        )
    reason = _why_not(names, kind)
    if reason:
        raise UsageError(f"the name {names.package!r} cannot be used: {reason}; choose another one")


def _why_not(names: Names, kind: Kind) -> str | None:
    if names.package in catalog.mechanisms():
        return f"a mechanism called {names.package!r} is installed"
    for word in (names.module, names.class_name):
        if keyword.iskeyword(word):
            return f"{word!r} is a keyword of Python"
    if hasattr(builtins, names.class_name) or names.class_name in _words_of_template(kind):
        return f"the class {names.class_name} would hide another one that its code uses"
    if names.class_name.startswith("Test") or names.module.endswith("_test"):
        return "pytest would take the mechanism for a test"
    spec = importlib.util.find_spec(names.module)
    if spec is not None:
        where = "" if spec.origin in (None, "built-in", "frozen") else f" ({spec.origin})"
        return f"there is a Python module called {names.module!r}{where}"
    try:
        distribution(names.package)
    except PackageNotFoundError:
        return None
    return f"a package called {names.package!r} is installed"


def _words_of_template(kind: Kind) -> set[str]:
    """What the Python files of a template call by a name, but for the mechanism itself."""
    own = Names.of(f"{kind}-template")
    words: set[str] = set()
    for file, text in _texts(own, kind).items():
        if file.endswith(".py"):
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            words |= {token.string for token in tokens if token.type == tokenize.NAME}
    return words - {own.class_name}


def _write(texts: dict[str, str], target: Path) -> None:
    """Write files so that the target is there as a whole or not at all.

    The target is the only one of the files, or a folder of all of them.
    """
    started = target.parent / f".{target.name}.{uuid.uuid4().hex[:12]}"
    try:
        started.mkdir()
        for name, text in texts.items():
            (started / name).write_text(text, encoding="utf-8")
        (started / target.name if target.suffix == ".py" else started).rename(target)
    except OSError as error:
        raise DpcompareError(f"cannot write {target}: {error.strerror}") from error
    finally:  # also when interrupted
        shutil.rmtree(started, ignore_errors=True)
