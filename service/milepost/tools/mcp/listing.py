"""What an MCP server says of its tools, and the tools that this makes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

from structlog.stdlib import BoundLogger, get_logger

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json, clean
from milepost.core.repetition import ToolEffect
from milepost.tools.definition import Tool
from milepost.tools.foreign import UNREADABLE, understood
from milepost.tools.mcp.declared import McpServerSpec
from milepost.tools.signature import INVALID_TOOL

_LOG: BoundLogger = get_logger("milepost.tools")

TOOLS_MAX = 500
DESCRIPTION_CHARS_MAX = 8_000

_STRICTNESS: tuple[ToolEffect, ...] = ("read", "idempotent", "once")


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One tool as its server describes it; a hint is None where the server says nothing."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    read_only: bool | None = None
    idempotent: bool | None = None
    destructive: bool | None = None


class Server(Protocol):
    """What calls are sent to."""

    async def call(self, tool: str, arguments: Mapping[str, Json]) -> Json:
        """Return what the server's tool answers."""


def tools_of(spec: McpServerSpec, listed: Iterable[ListedTool], server: Server) -> list[Tool]:
    """Return the server's tools that are wanted, under names that begin with the server's."""
    there = [*listed]
    for glob in spec.requires_approval:
        # It may be meant for a tool that is still to come; more often it is a slip.
        if not any(fnmatchcase(each.name, glob) for each in there):
            _LOG.warning("requires_approval fits no tool", server=spec.name, pattern=glob)
    chosen = [each for each in there if _is_among(each.name, spec.tools or ["*"])]
    if len(chosen) > TOOLS_MAX:
        raise _invalid(
            spec, f"it has {len(chosen)} tools, and {TOOLS_MAX} may be; choose with tools"
        )
    return [_tool(spec, each, server) for each in chosen]


def effect_of(spec: McpServerSpec, listed: ListedTool) -> ToolEffect:
    """Return what may be repeated: a hint makes that stricter, and milder only if it is trusted."""
    repeatable: ToolEffect = "idempotent" if listed.idempotent else "once"
    if spec.trust_hints and listed.read_only is not None:
        return "read" if listed.read_only else repeatable
    if spec.trust_hints and listed.idempotent is not None:
        return repeatable
    warns = listed.read_only is False or (listed.destructive and not listed.read_only)
    return max(spec.effect, repeatable, key=_STRICTNESS.index) if warns else spec.effect


def _tool(spec: McpServerSpec, listed: ListedTool, server: Server) -> Tool:
    async def call(**arguments: Json) -> Json:
        return await server.call(listed.name, arguments)

    try:
        return Tool(
            name=_name(spec, listed.name),
            description=_described(listed),
            function=call,
            kind="mcp",
            parameters=_parameters(listed),
            effect=effect_of(spec, listed),
            timeout_s=spec.timeout_s,
            requires_approval=_is_among(listed.name, spec.requires_approval),
        )
    except UNREADABLE as error:
        raise _invalid(spec, f"its tool {listed.name!r} cannot be offered: {error}") from error


def _name(spec: McpServerSpec, name: str) -> str:
    return f"{spec.name}__" + re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _described(listed: ListedTool) -> str:
    told = listed.description.strip()[:DESCRIPTION_CHARS_MAX]
    return told or f"The tool {listed.name}, of which its server says nothing more."


def _parameters(listed: ListedTool) -> dict[str, Json]:
    schema = understood(listed.parameters)
    cleaned = clean({**schema, "type": "object"})
    assert isinstance(cleaned, dict)
    return cleaned


def _is_among(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _invalid(spec: McpServerSpec, issue: str) -> ToolValidationError:
    return ToolValidationError(f"MCP server {spec.name!r}: {issue}", code=INVALID_TOOL)
