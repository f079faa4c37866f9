"""An MCP server over stdio that promises other answers than it gives."""

import json
import os
import sys

PROMISED = {
    "type": "object",
    "properties": {"said": {"type": "string", "pattern": "^(a+)+$"}},
    "required": ["said"],
}
ANSWERS: dict[str, dict[str, object]] = {
    "server/discover": {"error": {"code": -32601, "message": "not known"}},
    "tools/list": {
        "result": {
            "tools": [
                {"name": "say", "inputSchema": {"type": "object"}, "outputSchema": PROMISED},
                {"name": "sing", "inputSchema": {"type": "object"}, "outputSchema": PROMISED},
            ]
        }
    },
}
CALLED: dict[str, object] = {
    "say": {"structuredContent": {"said": os.environ.get("TOKEN")}, "content": []},
    "sing": {"content": [{"type": "text", "text": "la"}]},
}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer: dict[str, object]
    if asked["method"] == "initialize":
        server = {"name": "promising", "version": "1"}
        version = asked["params"]["protocolVersion"]
        said = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        answer = {"result": said}
    elif asked["method"] == "tools/call":
        answer = {"result": CALLED[asked["params"]["name"]]}
    else:
        answer = ANSWERS[asked["method"]]
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}) + "\n")
    sys.stdout.flush()
