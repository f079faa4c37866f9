"""`/v1/tools`: what agents may be given."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.paging import allow, json_response, listed, page, stretch_of
from milepost.api.requests import caller
from milepost.core.errors import NotFoundError
from milepost.runtime.toolsets import Toolsets
from milepost.tools import Tool


class Tools:
    """The tools of this process: the installation's, and those that the tenant has declared."""

    def __init__(self, toolsets: Toolsets) -> None:
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
        allow(request, "limit", "after", "order")
        principal = caller(request, "runs:read")
        stretch = page(request, order="asc")
        tools = await self._toolsets.of(principal.tenant)
        found = stretch_of(tools, stretch, lambda tool: tool.name)
        return listed(found, stretch, Tool.describe, lambda tool: tool.name)

    async def get(self, request: Request) -> Response:
        """Show one tool."""
        allow(request)
        principal = caller(request, "runs:read")
        name = request.path_params["name"]
        tool = (await self._toolsets.of(principal.tenant)).get(name)
        if tool is None:
            raise NotFoundError(f"there is no tool {name!r}", code="tool_not_found")
        return json_response(tool.describe())
