"""Which tools of the toolbox an installation has: those that it names, and no others."""

from collections.abc import Callable, Iterable
from pathlib import Path

from milepost.core.errors import ConfigurationError
from milepost.tools.decorator import tool_of
from milepost.tools.definition import Tool
from milepost.tools.egress import Egress
from milepost.tools.toolbox.asking import ask_user
from milepost.tools.toolbox.calculator import calculator
from milepost.tools.toolbox.clock import clock
from milepost.tools.toolbox.files import file_tools
from milepost.tools.toolbox.reading import json_query, table_from_csv, text_search
from milepost.tools.toolbox.remembering import Notes, memory_tools
from milepost.tools.toolbox.web import http_get_over

FILES = ("read_file", "list_files", "write_file")
_PLAIN: tuple[Callable[..., object], ...] = (
    ask_user, calculator, json_query, table_from_csv, text_search,
)  # fmt: skip


def toolbox(
    names: Iterable[str], egress: Egress, root: Path | None = None, notes: Notes | None = None
) -> list[Tool]:
    """Return the tools called `names`; those of files need a folder, `root`, and those that keep
    things in mind `notes`, where they are kept.

    Raises `ConfigurationError` for a name that is not in the box, or a folder that is missing.
    """
    wanted = dict.fromkeys(names)
    if not wanted:
        return []
    tools = {tool.name: tool for tool in (*map(tool_of, _PLAIN), clock(), http_get_over(egress))}
    if notes is not None:
        tools |= {tool.name: tool for tool in memory_tools(notes)}
    chosen = []
    for name in wanted:
        if name in FILES:
            tools |= {tool.name: tool for tool in file_tools(_folder(name, root))}
        if name not in tools:
            known = ", ".join(sorted({*tools, *FILES}))
            raise ConfigurationError(f"the toolbox has no {name!r}; it has: {known}")
        chosen.append(tools[name])
    return chosen


def _folder(name: str, root: Path | None) -> Path:
    if root is None:
        raise ConfigurationError(f"{name} works in one folder; name it with --files-root")
    if not root.is_dir():
        raise ConfigurationError(f"there is no folder {root} for {name}; make it, or name another")
    return root.resolve()
