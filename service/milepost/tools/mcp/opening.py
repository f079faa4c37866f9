"""Opening a declared MCP server; the SDK is imported here, and only when it comes to that."""

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from milepost.core.errors import ConfigurationError
from milepost.tools.definition import Tool
from milepost.tools.egress import Guard
from milepost.tools.mcp.declared import McpServerSpec
from milepost.tools.mcp.listing import tools_of
from milepost.tools.references import Secrets, reveal

if TYPE_CHECKING:
    from milepost.tools.mcp.server import McpServer


async def open_server(
    spec: McpServerSpec, guard: Guard, secrets: Secrets, held: AsyncExitStack
) -> list[Tool]:
    """Return the server's tools, and have its connection closed with `held`.

    Raises `MilepostError` for a server that cannot be asked, or offers what cannot be a tool.
    """
    server = connect(spec, guard, secrets)
    held.push_async_callback(server.close)
    return tools_of(spec, await server.listing(), server)


def connect(spec: McpServerSpec, guard: Guard, secrets: Secrets) -> "McpServer":
    """Return the server, to be connected when it is first asked. Whoever has it closes it."""
    try:
        from milepost.tools.mcp.server import McpServer  # noqa: PLC0415 - optional
        from milepost.tools.mcp.transport import opener  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        if error.name not in {"mcp", "mcp_types"}:
            raise
        raise ConfigurationError(
            f"MCP server {spec.name!r} needs the SDK, which is not installed:"
            " pip install 'milepost[mcp]'"
        ) from error
    given = spec.headers if spec.url else spec.env
    return McpServer(spec.name, opener(spec, guard), partial(reveal, given, secrets))
