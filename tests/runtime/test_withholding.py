"""What a run is ended with that no guardrail has looked at."""

from functools import reduce
from typing import Any

import pytest

from milepost.core.agents import Agent
from milepost.core.events import RunCancelled, ToolCallCompleted, ToolCallFailed
from milepost.core.evolve import evolve
from milepost.core.guardrails import Guardrails, PiiRail
from milepost.core.state import State, transcript
from milepost.providers.scripted import calling
from milepost.runtime.client_calls import LETTER
from milepost.runtime.definitions import encode_definition
from milepost.runtime.ending import end_run
from milepost.store import agents
from milepost.tools import Registry
from milepost.tools.client import client_tool
from tests.runtime.workshop import TENANT, Workshop, of

CANCEL = {"by": "bob", "reason": None}


@pytest.mark.parametrize(
    ("rails", "guarded"),
    [
        (None, False),
        (Guardrails(tool_results=(PiiRail(),)), True),
        (Guardrails(tool_results=(PiiRail(tools=("pay*",)),)), False),
        (Guardrails(tool_results=(PiiRail(tools=("l*",)),)), True),
    ],
)
@pytest.mark.parametrize("came", [{"result": "by ann@example.com"}, {"error": "ann@example.com"}])
@pytest.mark.parametrize("alone", [True, False])
async def test_a_result_that_no_guardrail_has_looked_at_is_withheld_from_the_log_and_later_runs(
    shop: Workshop, rails: Guardrails | None, came: dict[str, Any], *, guarded: bool, alone: bool
) -> None:
    tools = Registry([client_tool("look", "Look.", {"type": "object"})])
    agent = Agent("agt_1", 1, "clerk", "test/model", tools=("look",), guardrails=rails)
    work = agents.create(
        TENANT, agent.name, encode_definition(agent), agent_id=agent.id, now_ms=shop.clock()
    )
    await shop.store.write(work)
    run = await shop.queue()
    means = shop.means([calling(("look", {}))], tools=tools)
    await (await shop.driving(await shop.claim(), agent, means)).run()
    answer = {"call_id": "call_1_0", "duration_ms": 5, "terminal": False, **came}
    await shop.put(run.id, LETTER, answer, "client_tool")
    if not alone:
        await shop.put(run.id, "cancel", CANCEL, "cancel")

    row = await shop.row(run.id)
    await end_run(shop.ports, row, lambda used: RunCancelled("ann", None, (), used))

    log = await shop.log(run.id)
    [brought] = of(log, ToolCallCompleted, ToolCallFailed)
    shown = transcript(reduce(evolve, log, State()))[-1].content
    assert ("ann@example.com" in f"{brought} {shown}") is not guarded
    assert ("withheld" in f"{brought}") is ("withheld" in shown) is guarded
