"""`/v1/usage`: tokens, money and tool calls, added up by whatever one likes."""

import re
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.paging import allow, json_response, metadata, moment_ms, words
from milepost.api.requests import caller
from milepost.api.tool_usage_shown import show_tool_group
from milepost.core.codec import usage_shown
from milepost.core.errors import InvalidError
from milepost.runtime.journal import Ports
from milepost.store import tool_usage, usage
from milepost.store.tool_usage import ToolGroup
from milepost.store.usage import UsageFilter, UsageGroup

GROUP_BY_MAX = 8
GROUPS = ("day", "hour", "agent", "model", "tool", "session", "user", "tenant")

_METADATA_GROUP = re.compile(r"metadata\.[^\]\"\x00,]{1,64}")


class UsageSums:
    """Usage, over a store."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [Route("/v1/usage", self.get, methods=["GET"])]

    async def get(self, request: Request) -> Response:
        """Show model calls in groups; or tool calls, where it is tools that are asked for."""
        allow(
            request, "group_by", "from", "to", "agent", "model", "tool", "session_id", "user",
            "metadata",
        )  # fmt: skip
        principal = caller(request, "runs:read")
        group_by = _group_by(request)
        wanted = UsageFilter(
            agent=words(request, "agent"),
            session_id=words(request, "session_id"),
            user=words(request, "user"),
            model=words(request, "model"),
            tool=words(request, "tool"),
            from_ms=moment_ms(request, "from"),
            until_ms=moment_ms(request, "to"),
            metadata=metadata(request),
        )
        data: list[dict[str, Any]]
        if _is_about_tools(group_by, wanted):
            tools = tool_usage.grouped(principal.tenant, group_by, wanted)
            data = [_show_tools(group_by, group) for group in await self._ports.store.read(tools)]
        else:
            found = await self._ports.store.read(usage.grouped(principal.tenant, group_by, wanted))
            data = [_show(group_by, group) for group in found]
        return json_response({"data": data, "has_more": False, "next_cursor": None})


def _group_by(request: Request) -> list[str]:
    text = words(request, "group_by") or ""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if len(names) > GROUP_BY_MAX or len(set(names)) < len(names):
        raise InvalidError(
            f"group_by takes up to {GROUP_BY_MAX} names, each once, not {text!r}", code="bad_query"
        )
    for name in names:
        if name not in GROUPS and not _METADATA_GROUP.fullmatch(name):
            raise InvalidError(
                f"there is no group {name!r}; group by any of {', '.join(GROUPS)} and"
                " metadata.<key>",
                code="bad_query",
            )
    return names


def _is_about_tools(group_by: Sequence[str], wanted: UsageFilter) -> bool:
    """Say whether tool calls are asked for. A model call has no tool, a tool call no model."""
    tools = "tool" in group_by or wanted.tool is not None
    if tools and ("model" in group_by or wanted.model is not None):
        raise InvalidError(
            "a model call belongs to no tool and a tool call to no model; ask for one of the two",
            code="bad_query",
        )
    return tools


def _show(group_by: Sequence[str], group: UsageGroup) -> dict[str, Any]:
    keys = dict(zip(group_by, group.key, strict=True))
    return {**keys, "runs": group.runs, **usage_shown(group.usage)}


def _show_tools(group_by: Sequence[str], group: ToolGroup) -> dict[str, Any]:
    return {**dict(zip(group_by, group.key, strict=True)), **show_tool_group(group)}
