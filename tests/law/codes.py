"""Every error code that the source names, read from its syntax, with what becomes of it."""

import ast
import importlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import milepost
from milepost.api.problems import status_of
from milepost.core import errors
from milepost.core.errors import MilepostError

SOURCE = Path(milepost.__file__).parent
_TABLES = {"_CODES", "_HTTP_CODES"}
_IN_PROCESS = SOURCE / "agent"


@dataclass(frozen=True, slots=True)
class NamedCode:
    """A code, and the status of the problem that it would be, if it can be one."""

    code: str
    status: int | None = None


def named_codes() -> dict[str, set[int | None]]:
    """Return the codes, each with the statuses of the problems that it may be."""
    found: dict[str, set[int | None]] = defaultdict(set)
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    constants = {name: text for tree in trees.values() for name, text in _constants(tree)}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            for named in _named(node, path, constants):
                found[named.code].add(named.status)
    return found


def failure_codes() -> set[str]:
    """Return the codes that runs and calls are said to fail with, wherever a service says so."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    constants = {name: text for tree in trees.values() for name, text in _constants(tree)}
    return {
        text
        for path, tree in trees.items()
        if path.parent != _IN_PROCESS
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id == "Failure" and node.args
        for text in _texts(node.args[0], constants)
    }


def made_without_a_code(kind: str) -> list[str]:
    """Return where errors of this class itself are made that keep its own code."""
    return [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id == kind and all(keyword.arg != "code" for keyword in node.keywords)
    ]


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                yield name, text
            case _:
                pass


def _named(node: ast.AST, path: Path, constants: dict[str, str]) -> Iterator[NamedCode]:
    match node:
        case ast.Call(func=ast.Name(id="Failure"), args=[code, *_]):
            yield from (NamedCode(text) for text in _texts(code, constants))
        case ast.Call(func=ast.Name(id=callee), keywords=keywords):
            for text in _passed(keywords, constants):
                yield NamedCode(text, _status(callee, text))
        case ast.ClassDef(name=name, body=body):
            for text in _assigned(body, constants):
                yield NamedCode(text, _status_of_class(path, name))
        case ast.Assign(targets=[ast.Name(id=table)], value=ast.Dict(values=values)):
            listed = values if table in _TABLES else []
            yield from (NamedCode(text) for value in listed for text in _texts(value, constants))
        case ast.Assign(targets=[ast.Name(id="code")], value=value):
            yield from (NamedCode(text) for text in _texts(value, constants))
        case _:
            pass


def _passed(keywords: list[ast.keyword], constants: dict[str, str]) -> Iterator[str]:
    for keyword in keywords:
        if keyword.arg == "code":
            yield from _texts(keyword.value, constants)


def _assigned(body: list[ast.stmt], constants: dict[str, str]) -> Iterator[str]:
    for line in body:
        match line:
            case (
                ast.Assign(targets=[ast.Name(id="code")], value=value)
                | ast.AnnAssign(target=ast.Name(id="code"), value=ast.expr() as value)
            ):
                yield from _texts(value, constants)
            case _:
                pass


def _texts(value: ast.expr, constants: dict[str, str]) -> Iterator[str]:
    match value:
        case ast.Constant(value=str(code)):
            yield code
        case ast.Name(id=name) if name in constants:
            yield constants[name]
        case ast.IfExp(body=body, orelse=orelse):
            yield from _texts(body, constants)
            yield from _texts(orelse, constants)
        case _:
            pass  # Worked out somewhere else, from a code that is named there.


def _status(callee: str, code: str) -> int | None:
    kind = getattr(errors, callee, None)
    if not (isinstance(kind, type) and issubclass(kind, MilepostError)):
        return None
    error = kind.__new__(kind)
    error.code = code
    return _if_told(status_of(error))


def _status_of_class(path: Path, name: str) -> int | None:
    module = ".".join(("milepost", *path.relative_to(SOURCE).with_suffix("").parts))
    kind = getattr(importlib.import_module(module), name)
    return _if_told(status_of(kind.__new__(kind))) if issubclass(kind, MilepostError) else None


def _if_told(status: int) -> int | None:
    """A status of 500 hides the code: clients are told `internal`."""
    return None if status == 500 else status
