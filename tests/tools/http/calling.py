"""HTTP tools as a drive calls them: checked, then run within their time."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from milepost.core.json import Json
from milepost.tools import Invoker, Tool, ToolContext, ToolThreads
from milepost.tools.egress import Egress, open_egress
from milepost.tools.http.declared import HttpToolSpec
from milepost.tools.references import Reference

SECRETS = {"TOKEN": "s3cr3t-t0ken"}
CONTEXT = ToolContext("run_1", "ses_1", "acme", "ada", "call_1_0", 1, "key-1")


async def secrets(reference: Reference) -> str:
    """Return one of the tests' own secrets."""
    return SECRETS[reference.name]


def an_http_tool(egress: Egress, **changes: Any) -> Tool:
    """Return a tool of this declaration."""
    given = {"name": "fetch", "description": "Fetch it.", **changes}
    return HttpToolSpec.model_validate(given).tool(egress, secrets)


async def called(tool: Tool, arguments: Mapping[str, Json] | None = None) -> Json:
    """Return what the tool answers."""
    threads = ToolThreads(threads_max=1)
    try:
        fitting = tool.validate(arguments or {})
        return await Invoker(threads).invoke(tool, fitting, CONTEXT)
    finally:
        threads.close()


@asynccontextmanager
async def to_loopback() -> AsyncIterator[Egress]:
    """Yield a way out that may reach this machine."""
    async with open_egress(["127.0.0.1"]) as egress:
        yield egress
