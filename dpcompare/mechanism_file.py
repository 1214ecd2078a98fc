"""A mechanism that is named by its file, as ``path/to/file.py:ClassName``."""

import ast
import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from dpcompare.catalog import near_miss
from dpcompare.errors import UsageError


def from_file(name: str) -> tuple[Any, str]:
    """What `name` stands for in its file, and the version of its code, a hash of the file.

    The file is read once: what runs is what was hashed.

    Raises:
        UsageError: there is no such file or class, it fails to run, or it imports a module that
            lies beside it, whose changes the version would not tell.
    """
    path_text, _, attribute = name.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise UsageError(
            f"mechanism {name!r}: there is no file {_readable(path_text)} in {Path.cwd()}; paths "
            "start at the folder in which the command runs"
        )
    if path.suffix != ".py":
        raise UsageError(f"mechanism {name!r}: {path} is not a Python file (.py)")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"mechanism {name!r}: {path} cannot be read: {error.strerror}") from error
    version = f"sha256:{content_hash(source)}"
    defined = vars(_run(source, path.absolute(), name))
    if attribute not in defined:
        classes = [key for key, value in defined.items() if isinstance(value, type)]
        raise UsageError(
            f"mechanism {name!r}: {path_text} defines no {_readable(attribute)}"
            f"{near_miss(attribute, classes)}; name its class after the colon: "
            f"{path_text}:MyMechanism"
        )
    return defined[attribute], version


def _readable(text: str) -> str:
    """For a message of one line; in quotes where it is empty or would break the line."""
    return text if text and text.isprintable() else repr(text)


def name_that_counts(name: str) -> str:
    """What of a mechanism's name may change a result: of a file only the class.

    Where a file lies does not count; its content does, by the version.
    """
    return f"file:{name.rpartition(':')[2]}" if ":" in name else name


def content_hash(content: bytes) -> str:
    """What identifies the content of a source file."""
    return hashlib.sha256(content).hexdigest()[:16]


def _run(source: bytes, path: Path, name: str) -> ModuleType:
    module = ModuleType(f"dpcompare_file_{content_hash(source)}")
    module.__file__ = str(path)
    try:
        tree = ast.parse(source, str(path))
        _check_imports(tree, path, name)
        sys.modules[module.__name__] = module  # where dataclasses look for their annotations
        exec(compile(tree, str(path), "exec", dont_inherit=True), vars(module))
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        sys.modules.pop(module.__name__, None)
        raise UsageError(
            f"mechanism {name!r}: {path} fails to import: {type(error).__name__}: {error}"
            f"{_line(error, path)}"
        ) from error
    return module


def _line(error: BaseException, path: Path) -> str:
    """`` (line 3)``, where the file was when it failed; a syntax error says it by itself."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f" (line {lines[-1]})" if lines else ""


def _check_imports(tree: ast.Module, path: Path, name: str) -> None:
    """Refuse imports of modules beside the file, wherever in it they are.

    Some ways to start Python would find them and others would not, and a change of theirs would
    run no trial again.

    Raises:
        UsageError: there is one, with its name.
    """
    for module in _imported(tree):
        if module.startswith(".") or _lies_beside(module, path.parent):
            raise UsageError(
                f"mechanism {name!r}: {path} imports {module!r}, which lies beside it. A mechanism "
                "file must stand alone, for its own text alone tells whether trials must run "
                "again. Put both into one file, or into an installed package (to start one: "
                "dpcompare new-mechanism NAME)"
            )


def _imported(tree: ast.Module) -> Iterator[str]:
    """The top-level modules that are imported; relative ones with their dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or node.names[0].name
            yield "." * node.level + module.partition(".")[0]
        elif isinstance(node, ast.Call) and (called := _imported_by_call(node)):
            yield called


def _imported_by_call(call: ast.Call) -> str | None:
    """The module of ``importlib.import_module("x")`` and ``__import__("x")``."""
    function = call.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    if name not in ("import_module", "__import__") or not call.args:
        return None
    text = getattr(call.args[0], "value", None)
    return text.partition(".")[0] or "." if isinstance(text, str) else None


def _lies_beside(module: str, folder: Path) -> bool:
    """Whether a module is a file or package of a folder, and is not found elsewhere before."""
    beside = [folder / f"{module}.py", folder / module / "__init__.py"]
    if module == "dpcompare" or not any(file.is_file() for file in beside):
        return False
    spec = importlib.util.find_spec(module)
    return spec is None or spec.origin is None or Path(spec.origin).absolute() in beside
