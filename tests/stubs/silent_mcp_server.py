"""An MCP server over stdio that says who it is, and nothing more."""

import json
import sys

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked or asked["method"] == "tools/list":
        continue
    answer = {"error": {"code": -32601, "message": "not known"}}
    if asked["method"] == "initialize":
        server = {"name": "silent", "version": "1"}
        version = asked["params"]["protocolVersion"]
        said = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        answer = {"result": said}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}) + "\n")
    sys.stdout.flush()
