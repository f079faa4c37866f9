"""An MCP server written with the SDK, good and bad: `python mcp_server.py [PORT]`."""

import os
import sys
from pathlib import Path

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import ToolAnnotations

server = MCPServer("stub", log_level="ERROR")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def pid() -> int:
    """Say which process this is."""
    return os.getpid()


@server.tool(annotations=ToolAnnotations(read_only_hint=False, idempotent_hint=True))
def environment() -> dict[str, str]:
    """Say what the environment is."""
    return dict(os.environ)


@server.tool(
    description=f"Fail, and say why: {os.environ.get('TOKEN', 'nobody knows')}",
    structured_output=False,
)
def blab(context: Context, in_a: str = "text") -> str:
    """Repeat what was sent along, in a text, an error, or an error of the protocol."""
    sent = os.environ.get("TOKEN") or (context.headers or {})["authorization"]
    if in_a == "error":
        raise ToolError(f"{sent} is not welcome")
    if in_a == "protocol error":
        raise MCPError(-32000, f"{sent} is not welcome")
    return f"you sent {sent}"


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def die() -> str:
    """Take the whole server down."""
    os._exit(3)


@server.tool(name="wait.here")
async def wait(path: str) -> str:
    """Write that it began, and then that it was cancelled."""
    note(path, "began")
    try:
        await anyio.sleep(60)
    finally:
        note(path, "over")
    return "done"


def note(path: str, word: str) -> None:
    """Write a word behind the others."""
    with Path(path).open("a") as notes:
        notes.write(f"{word}\n")


@server.tool(structured_output=False)
def refuse(why: str) -> str:
    """Refuse."""
    raise ToolError(why)


@server.tool(structured_output=False)
def huge() -> str:
    """Say far too much."""
    return "x" * 3_000_000


@server.tool(structured_output=False)
def picture() -> list[str | Image]:
    """Show something."""
    return ["look:", Image(data=b"\x89PNG1234", format="png")]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
