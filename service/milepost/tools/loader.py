"""Loading tools from where people keep them: a module, a file, or a folder of files."""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from milepost.core.errors import ConfigurationError
from milepost.tools.decorator import is_tool, tool_of
from milepost.tools.definition import Tool
from milepost.tools.source import specification_of


def load(spec: str) -> list[Tool]:
    """Return the tools of `spec`: a module (`shop.tools`), a file (`tools.py`) or a folder.

    A folder's files are read in the order of their names, but for those that begin with `_`.
    Raises ConfigurationError for what cannot be found, does not load, or holds no tool.
    """
    tools = _distinct(tool for module in modules_of(spec) for tool in _tools_in(module))
    if not tools:
        raise ConfigurationError(f"{spec} holds no tools; decorate its functions with @tool")
    return tools


def modules_of(spec: str) -> list[ModuleType]:
    """Return the modules that `spec` stands for, loaded, in the same order."""
    if _is_module(spec):
        return [_imported(spec)]
    return [_from_file(file) for file in files_of(spec)]


def files_of(spec: str) -> list[Path]:
    """Return the files that `spec` stands for, none for a module.

    Raises ConfigurationError for a folder that is not there.
    """
    if _is_module(spec):
        return []
    path = Path(spec)
    return [path] if path.suffix == ".py" else _files(path)


def load_file(path: Path, *, fresh: bool = False) -> list[Tool]:
    """Return the tools of one file; `fresh` says that it has changed since it was loaded.

    Raises ConfigurationError for one that is not there or does not load. A module that was loaded
    before stays in its place then.
    """
    if fresh:
        # What is compiled is trusted by the second and the size, and both may be as they were.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
    return _distinct(_tools_in(_from_file(path)))


def _is_module(spec: str) -> bool:
    path = Path(spec)
    if path.suffix == ".py" or "/" in spec or "\\" in spec:
        return False
    return not _there(path, Path.is_dir) or _there(path / "__init__.py", Path.exists)


def _there(path: Path, is_kind: Callable[[Path], bool]) -> bool:
    """Say whether there is such a path; a name may be too long, or a folder of it not ours."""
    try:
        return is_kind(path)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be loaded: {error.strerror};"
            " name a module, a file that ends in .py, or a folder"
        ) from error


def _files(folder: Path) -> list[Path]:
    if _there(folder, Path.is_file):
        raise ConfigurationError(
            f"{folder} is neither a folder nor a file that ends in .py; name one of these"
        )
    if not _there(folder, Path.is_dir):
        raise ConfigurationError(f"there is no folder {folder} to load")
    return sorted(file for file in folder.glob("*.py") if not file.name.startswith("_"))


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(name, error) from error
        raise ConfigurationError(
            f"there is no module {name!r} to load; "
            "name one that Python finds, a file that ends in .py, or a folder"
        ) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # A panic below Python is no `Exception`.
        raise _broken(name, error) from error


def _from_file(path: Path) -> ModuleType:
    if not _there(path, Path.is_file):
        raise ConfigurationError(f"there is no file {path} to load")
    name = _module_name(path)
    specification, loader = specification_of(name, path)
    module = importlib.util.module_from_spec(specification)
    before = sys.modules.get(name)
    # Dataclasses and pydantic look their module up by name while it is being executed.
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _broken(str(path), error) from error
    return module


def _module_name(path: Path) -> str:
    """Return a name that no other file shares: two folders may both have a `mail.py`."""
    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    return f"milepost_tools_{place}_{path.stem}"


def _tools_in(module: ModuleType) -> list[Tool]:
    found = (_tool_in(member) for member in vars(module).values())
    return [tool for tool in found if tool is not None]


def _tool_in(member: Any) -> Tool | None:
    """Return the tool that a name stands for, None if it is none.

    What will not even be looked at, such as a web framework's proxy of its request, is none.
    """
    try:
        if isinstance(member, Tool):
            return member
        is_decorated = is_tool(member)
    except Exception:
        return None
    return tool_of(member) if is_decorated else None


def _distinct(tools: Iterable[Tool]) -> list[Tool]:
    """Drop repetitions: a function imported by its neighbour is still one tool."""
    return [*dict.fromkeys(tools)]


def _broken(spec: str, error: BaseException) -> ConfigurationError:
    words = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    frames = traceback.extract_tb(error.__traceback__)
    line = getattr(error, "lineno", None) or next(
        (frame.lineno for frame in reversed(frames) if spec.endswith(Path(frame.filename).name)),
        None,
    )
    where = f" at line {line}" if line else ""
    return ConfigurationError(f"{spec} cannot be loaded{where}: {words}")
