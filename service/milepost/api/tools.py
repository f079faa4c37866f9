"""`/v1/tools`: what agents may be given, and how it has fared."""

import math
from collections import Counter
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.paging import allow, flag, json_response, listed, page, stretch_of
from milepost.api.requests import caller
from milepost.api.tool_usage_shown import success_rate
from milepost.core.errors import NotFoundError
from milepost.core.json import Json
from milepost.providers.tokens import estimate
from milepost.runtime.journal import Ports
from milepost.runtime.toolsets import Toolsets
from milepost.store import tool_statistics
from milepost.store.tool_statistics import CallRow
from milepost.tools import Tool


class Tools:
    """The tools of this process: the installation's, and those that the tenant has declared."""

    def __init__(self, ports: Ports, toolsets: Toolsets) -> None:
        self._ports = ports
        self._toolsets = toolsets

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/tools", self.search, methods=["GET"]),
            Route("/v1/tools/{name}", self.get, methods=["GET"]),
        ]

    async def search(self, request: Request) -> Response:
        """List tools by name, with their schemas and how they may be run."""
        allow(request, "limit", "after", "order", "statistics")
        principal = caller(request, "runs:read")
        stretch = page(request, order="asc")
        tools = await self._toolsets.of(principal.tenant)
        found = stretch_of(tools, stretch, lambda tool: tool.name)
        shown = await self._shown(request, principal.tenant, found)
        return listed(found, stretch, lambda tool: shown[tool.name], lambda tool: tool.name)

    async def get(self, request: Request) -> Response:
        """Show one tool."""
        allow(request, "statistics")
        principal = caller(request, "runs:read")
        name = request.path_params["name"]
        tool = (await self._toolsets.of(principal.tenant)).get(name)
        if tool is None:
            raise NotFoundError(f"there is no tool {name!r}", code="tool_not_found")
        return json_response((await self._shown(request, principal.tenant, [tool]))[name])

    async def _shown(
        self, request: Request, tenant: str, tools: Sequence[Tool]
    ) -> dict[str, dict[str, Json]]:
        """Return the tools by name, with their statistics if the request asks for them."""
        shown = {tool.name: tool.describe() for tool in tools}
        if not flag(request, "statistics", default=False):
            return shown
        read = self._ports.store.read
        denials = await read(tool_statistics.denials(tenant))
        for name, told in shown.items():
            calls = await read(tool_statistics.calls(tenant, name))
            told["statistics"] = _statistics(calls, denials.get(name, 0))
        return shown


def _statistics(calls: Sequence[CallRow], denied: int) -> dict[str, Json]:
    """Return what the calls add up to; nothing is known of the time and the size of none."""
    took_ms = sorted(call.took_ms for call in calls)
    chars = [call.result_chars for call in calls if call.result_chars is not None]
    mean_chars = round(sum(chars) / len(chars)) if chars else None
    failures = [call for call in calls if call.status == "error"]
    return {
        "calls": len(calls),
        "failures": len(failures),
        "failures_by_code": dict(Counter(call.code or "unknown" for call in failures)),
        "success_rate": success_rate(sum(call.status == "ok" for call in calls), len(calls)),
        "denied": denied,
        "coerced": sum(call.coerced for call in calls),
        "cached": sum(call.cached for call in calls),
        "chunks": sum(call.chunks for call in calls),
        "parameters": dict(Counter(name for call in calls for name in call.parameters)),
        "p50_ms": _percentile(took_ms, 0.50),
        "p95_ms": _percentile(took_ms, 0.95),
        "result_chars_mean": mean_chars,
        "result_tokens_mean": None if mean_chars is None else estimate(mean_chars),
    }


def _percentile(ordered: Sequence[int], share: float) -> int | None:
    """Return the smallest value that so large a share does not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
