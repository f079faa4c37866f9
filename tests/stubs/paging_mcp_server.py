"""An MCP server over stdio whose list has `PAGES` pages, 0 is no end, each of `SIZE` tools."""

import json
import os
import sys
from typing import Any

PAGES, SIZE = int(os.environ["PAGES"]), int(os.environ["SIZE"])


def page(number: int) -> dict[str, object]:
    """Return a page, the first of which is 0."""
    names = (f"tool_{each}" for each in range(number * SIZE, (number + 1) * SIZE))
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return {"tools": tools, **({} if number + 1 == PAGES else {"nextCursor": str(number + 1)})}


def answer(asked: dict[str, Any]) -> dict[str, object]:
    """Return what is said to a request."""
    params = asked.get("params") or {}
    match asked["method"]:
        case "initialize":
            server = {"name": "paging", "version": "1"}
            version = params["protocolVersion"]
            capabilities: dict[str, object] = {"tools": {}}
            said = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": server}
            return {"result": said}
        case "tools/list":
            return {"result": page(int(params.get("cursor") or 0))}
        case "tools/call":
            told = {"type": "text", "text": params["name"]}
            return {"result": {"content": [told]}}
        case _:
            return {"error": {"code": -32601, "message": "not known"}}


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer(asked)}) + "\n")
        sys.stdout.flush()
