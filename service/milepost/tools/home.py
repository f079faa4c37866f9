"""Where a function is at home, so that another process can find it."""

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from milepost.tools.source import specification_of

# The module that a process was started with has this name in each of them.
_MAIN = "__main__"
_THEIR_MAIN = "__milepost_main__"


@dataclass(frozen=True, slots=True)
class Home:
    """A module, the file that it was loaded from, when that was changed, and a name in it."""

    module: str
    file: str | None
    changed_ns: int
    name: str


def has_home(function: Callable[..., Any]) -> bool:
    """Say whether `function` can be found by a name at the top of its module."""
    return isinstance(function, types.FunctionType) and function.__qualname__.isidentifier()


def home_of(function: Callable[..., Any]) -> Home:
    """Return where `function`, which has a home, can be found."""
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None)
    changed_ns = Path(file).stat().st_mtime_ns if file and Path(file).exists() else 0
    return Home(function.__module__, file, changed_ns, function.__qualname__)


def found(home: Home) -> Callable[..., Any]:
    """Return the function that is at home there, having loaded its module."""
    function: Callable[..., Any] = reduce(getattr, home.name.split("."), _module(home))
    return function


def _module(home: Home) -> Any:
    name = _THEIR_MAIN if home.module == _MAIN else home.module
    if name in sys.modules:
        return sys.modules[name]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if home.file is None or error.name != name.partition(".")[0]:
            raise
    return _from_file(name, home.file)


def _from_file(name: str, file: str) -> Any:
    specification, loader = specification_of(name, Path(file))
    module = importlib.util.module_from_spec(specification)
    # Dataclasses and pydantic look their module up by name while it is being executed.
    sys.modules[name] = module
    loader.exec_module(module)
    return module
