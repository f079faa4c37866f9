"""An MCP server over stdio that never ends the line of its answer to a method, or prints banners.

`endless_mcp_server.py METHOD` or `endless_mcp_server.py --print BANNER [TIMES]`
"""

import json
import sys

TOOLS = {"tools": [{"name": "talk", "inputSchema": {"type": "object"}}]}

if sys.argv[1] == "--print":
    for _ in range(int(sys.argv[3]) if sys.argv[3:] else 1):
        print(sys.argv[2])  # noqa: T201 - what is not to be done

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == sys.argv[1]:
        while True:
            sys.stdout.write("and so on " * 6_000)
    answer: dict[str, object] = {"error": {"code": -32601, "message": "not known"}}
    if asked["method"] == "initialize":
        server = {"name": "endless", "version": "1"}
        version = asked["params"]["protocolVersion"]
        said = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        answer = {"result": said}
    elif asked["method"] == "tools/list":
        answer = {"result": TOOLS}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}) + "\n")
    sys.stdout.flush()
