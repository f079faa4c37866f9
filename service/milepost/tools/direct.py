"""Calling a tool without a service: for its author's tests, and for a look at what it does."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from milepost.core.json import Json
from milepost.tools.context import Progress, ToolContext, unheard
from milepost.tools.decorator import tool_of
from milepost.tools.definition import Tool
from milepost.tools.invoke import Invoker
from milepost.tools.isolation import ToolProcesses
from milepost.tools.outcome import Outcome
from milepost.tools.secret import given
from milepost.tools.threads import ToolThreads

NOBODYS = ToolContext(
    run_id="run_0",
    session_id="ses_0",
    tenant="default",
    user=None,
    call_id="call_0_0",
    attempt=1,
    idempotency_key="key-0",
)

NONE_STORED: Mapping[str, str] = MappingProxyType({})


def execute(
    function: Tool | Callable[..., Any],
    arguments: Mapping[str, Json],
    on_chunk: Progress = unheard,
    *,
    context: ToolContext = NOBODYS,
    timeout_s: float | None = None,
    secrets: Mapping[str, str] = NONE_STORED,
) -> Outcome:
    """Call a tool as a run would: validated, injected into, timed; return what came of it.

    `on_chunk` is called with what it says meanwhile, in the thread that it says it in. `secrets`
    holds what a tenant would have stored, by name. An asynchronous tool is run to its end, also
    where a loop is running already.
    """
    call = aexecute(
        function, arguments, on_chunk, context=context, timeout_s=timeout_s, secrets=secrets
    )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(call)
    # A loop cannot be run inside of another, so it gets a thread of its own.
    outcomes: list[Outcome] = []
    other = threading.Thread(target=lambda: outcomes.append(asyncio.run(call)))
    other.start()
    other.join()
    return outcomes[0]


async def aexecute(
    function: Tool | Callable[..., Any],
    arguments: Mapping[str, Json],
    on_chunk: Progress = unheard,
    *,
    context: ToolContext = NOBODYS,
    timeout_s: float | None = None,
    secrets: Mapping[str, str] = NONE_STORED,
) -> Outcome:
    """Call a tool as `execute` does, on the loop that is running."""
    tool = function if isinstance(function, Tool) else tool_of(function)
    heard = context if on_chunk is unheard else replace(context, progress=on_chunk)
    threads, processes = ToolThreads(1), ToolProcesses(1)
    try:
        invoker = Invoker(threads, processes=processes, find_secret=given(secrets))
        return await invoker.call(tool, arguments, heard, timeout_s=timeout_s)
    finally:
        threads.close()
        await processes.close()
