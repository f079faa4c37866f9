"""Tools that the client runs: the service checks the call, the client brings what came of it."""

from collections.abc import Mapping

from milepost.core.errors import ToolError
from milepost.core.json import Json
from milepost.tools.definition import Tool


def client_tool(
    name: str,
    description: str,
    parameters: Mapping[str, Json],
    *,
    terminal: bool = False,
    requires_approval: bool = False,
) -> Tool:
    """Return a tool whose calls wait for the client. Its effect is the client's own affair."""
    return Tool(
        name=name,
        description=description,
        function=_not_here,
        kind="client",
        parameters=parameters,
        terminal=terminal,
        requires_approval=requires_approval,
    )


async def _not_here(**_: Json) -> Json:
    raise ToolError("this tool is run by the client, not by the service")
