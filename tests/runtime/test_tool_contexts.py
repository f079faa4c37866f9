"""What a tool is given in a run: what is injected stays with it, and what it knows of its call."""

import logging
from typing import Any, get_args

import pytest

from milepost.core.canonical import call_digest
from milepost.core.codec import encode
from milepost.core.events import ToolCallFailed
from milepost.providers.scripted import Scripted, calling, saying
from milepost.store import traces
from milepost.tools import Approved, Injected, ToolContext, Vendor, tool, tool_of
from tests.runtime.workshop import ASK, TENANT, Workshop, of
from tests.telemetry.spoken import spoken

SECRET = "s3cret-7d1f"


def key_of(context: ToolContext) -> str:
    """Make a key for this very call."""
    return f"{SECRET} {context.tenant}"


@tool(effect="read", inject={"key": key_of, "url": f"https://{SECRET}@db"})
def look_up(query: str, key: Injected[str], url: Injected[str]) -> str:
    """Look it up."""
    if query == "fail":
        raise ValueError("no such thing")
    return f"{query}: {len(key) + len(url)} characters"


@pytest.mark.parametrize("query", ["x", "fail"])
async def test_nothing_injected_is_in_schema_prompt_events_spans_digest_or_log_lines(
    shop: Workshop, caplog: pytest.LogCaptureFixture, query: str
) -> None:
    caplog.set_level(logging.DEBUG)
    model = Scripted([calling(("look_up", {"query": query})), saying("Done.")])

    run_id = await shop.driven(model, look_up)

    log = await shop.log(run_id)
    definition = tool_of(look_up)
    shown: list[Any] = [
        definition.describe(),
        definition,
        *(definition.projected(vendor) for vendor in get_args(Vendor)),
        *model.requests,
        *(encode(event) for event in log),
        await shop.store.read(traces.spans(TENANT, run_id)),
        call_digest("look_up", {"query": query}),
        *(record.getMessage() for record in caplog.records),
    ]
    assert bool(of(log, ToolCallFailed)) is (query == "fail")
    assert SECRET not in repr(shown)


async def test_a_tool_knows_what_came_with_its_run_and_can_change_it_for_nobody_else(
    shop: Workshop,
) -> None:
    seen: list[Any] = []

    @tool(effect="read")
    def look(context: ToolContext) -> str:
        """Look."""
        seen.append(dict(context.metadata))
        context.metadata.clear()  # type: ignore[attr-defined]  # a tool may well try
        return "seen"

    await shop.queue(metadata='{"order": "7"}')
    model = Scripted([calling(("look", {}), ("look", {})), saying("Done.")])
    await shop.go_on(model, look, agent=shop.agent(look))

    assert seen == [{"order": "7"}, {"order": "7"}]


async def test_a_tool_knows_who_said_yes_and_with_which_words(shop: Workshop) -> None:
    seen: list[Any] = []

    @tool
    def pay(cents: int, context: ToolContext) -> str:
        """Pay."""
        seen.append(context.approval)
        seen.append((context.tool, context.attempt))
        context.logger.info("paid", cents=cents)
        return "paid"

    agent = shop.agent(pay, policy=ASK)
    script = [calling(("pay", {"cents": 7})), saying("Done.")]
    model = Scripted(script)
    await shop.queue()
    await shop.go_on(model, pay, agent=agent)
    (asked,) = await shop.pending()
    await shop.decide(asked)
    await shop.go_on(model, pay, agent=agent)

    assert seen == [Approved("ann", "so be it"), ("pay", 1)]


async def test_a_tools_log_lines_name_its_run_its_call_and_itself(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    @tool
    async def look(context: ToolContext) -> str | None:
        """Look."""
        context.logger.info("looked", colour="blue", api_key="sk-1234567890abcdef99")
        assert context.deadline is None
        return context.user

    run_id = await shop.driven([calling(("look", {})), saying("Done.")], look)

    assert spoken(caplog, "tool") == [
        {"event": "looked", "level": "info", "run": run_id, "call": "call_1_0", "tool": "look",
         "colour": "blue", "api_key": "***"}
    ]  # fmt: skip
