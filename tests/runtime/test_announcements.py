"""Events of tools' own: in the log while the tool still runs, in order, and within bounds."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from milepost.core.events import Custom, GuardrailTriggered, ToolCallCompleted, ToolCallFailed
from milepost.core.guardrails import Guardrails, PiiRail, RegexRail
from milepost.core.json import Json
from milepost.providers.cache_memory import InProcessCache
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.result_cache import ResultCache
from milepost.tools import ToolContext, tool
from tests.runtime.workshop import TIMEOUT_S, Workshop, in_background, of

TELL = calling(("tell", {}))
DEADLINE_MS = 60_000


@tool
async def tell(context: ToolContext) -> str:
    """Tell of two things."""
    context.emit("began", {"at": 0})
    await asyncio.sleep(0)
    context.emit("ended")
    return "told"


@tool
def tell_from_a_thread(context: ToolContext) -> str:
    """Tell of some things in a thread."""
    for number in range(5):
        context.emit("counted", number)
    return "told"


@tool
def tell_and_fail(context: ToolContext) -> str:
    """Tell of something, and fail."""
    context.emit("began")
    raise RuntimeError("no")


@tool
def tell_nonsense(context: ToolContext) -> str:
    """Tell of what is no JSON."""
    context.emit("began", object())
    return "told"


@tool(effect="read", cacheable=True)
def tell_and_look(context: ToolContext) -> str:
    """Look something up, and tell of it."""
    context.emit("looked")
    return "looked"


@tool(effect="read")
def spell(word: str) -> Iterator[str]:
    """Spell a word."""
    yield from word


@dataclass
class Gate:
    """A tool that tells of something, and ends when it is let through."""

    opened: asyncio.Event = field(default_factory=asyncio.Event)

    @tool
    async def pass_through(self, context: ToolContext) -> str:
        """Pass."""
        context.emit("arrived", {"gate": 1})
        await self.opened.wait()
        return "passed"


async def customs(shop: Workshop, run_id: str) -> list[tuple[str, str, Json]]:
    """Return what the run's tools have told of."""
    return [(each.call_id, each.name, each.value) for each in of(await shop.log(run_id), Custom)]


async def test_an_event_stands_in_the_log_and_the_stream_while_the_tool_still_runs(
    shop: Workshop,
) -> None:
    gate = Gate()
    agent = shop.agent(gate.pass_through)
    run = await shop.queue()
    model = Scripted([calling(("pass_through", {})), saying("Done.")])
    driven = await shop.driving(await shop.claim(), agent, shop.means(model, gate.pass_through))

    async with in_background(driven):
        await shop.seen(run.id, "custom")
        meanwhile = await shop.types(run.id)
        gate.opened.set()

    assert meanwhile[-1] == "custom"
    assert "tool_call.completed" not in meanwhile
    assert await customs(shop, run.id) == [("call_1_0", "arrived", {"gate": 1})]


async def test_events_come_in_their_order_and_before_the_result(shop: Workshop) -> None:
    run_id = await shop.driven([TELL, saying("Done.")], tell)

    told = await shop.types(run_id)
    assert await customs(shop, run_id) == [
        ("call_1_0", "began", {"at": 0}),
        ("call_1_0", "ended", None),
    ]
    last = len(told) - told[::-1].index("custom")
    assert told[last] == "tool_call.completed"


async def test_a_tool_in_a_thread_tells_as_well(shop: Workshop) -> None:
    asked = calling(("tell_from_a_thread", {}))

    run_id = await shop.driven([asked, saying("Done.")], tell_from_a_thread)

    assert [value for _, _, value in await customs(shop, run_id)] == list(range(5))


async def test_calls_at_once_tell_each_for_itself(shop: Workshop) -> None:
    asked = calling(("tell", {}), ("tell_from_a_thread", {}))

    run_id = await shop.driven([asked, saying("Done.")], tell, tell_from_a_thread)

    told = await customs(shop, run_id)
    assert [name for call, name, _ in told if call == "call_1_0"] == ["began", "ended"]
    assert [value for call, _, value in told if call == "call_1_1"] == list(range(5))


async def test_what_a_call_told_of_stays_when_it_fails(shop: Workshop) -> None:
    asked = calling(("tell_and_fail", {}))

    run_id = await shop.driven([asked, saying("Oh.")], tell_and_fail)

    kinds = await shop.types(run_id)
    assert kinds.index("custom") + 1 == kinds.index("tool_call.failed")


async def test_a_call_that_tells_of_what_is_none_fails_with_a_reason(shop: Workshop) -> None:
    asked = calling(("tell_nonsense", {}))

    run_id = await shop.driven([asked, saying("Oh.")], tell_nonsense)

    [failed] = of(await shop.log(run_id), ToolCallFailed)
    assert failed.error.code == "tool_failed"
    assert "the value of the event began is not JSON" in failed.error.message


async def test_a_thread_that_nobody_waits_for_any_more_is_not_heard(shop: Workshop) -> None:
    late, over = threading.Event(), threading.Event()

    @tool(timeout_s=0.05)
    def linger(context: ToolContext) -> str:
        """Outlive the call."""
        context.emit("began")
        late.wait(TIMEOUT_S)
        context.emit("late")
        over.set()
        return "told"

    run_id = await shop.driven([calling(("linger", {})), saying("Oh.")], linger)
    late.set()

    assert await asyncio.to_thread(over.wait, TIMEOUT_S)
    assert [name for _, name, _ in await customs(shop, run_id)] == ["began"]


async def test_a_result_that_came_with_events_is_not_told_again_without_them(
    shop: Workshop,
) -> None:
    results = ResultCache(InProcessCache())
    for _ in range(2):
        run = await shop.queue()
        script = [calling(("tell_and_look", {})), saying("Done.")]
        means = shop.means(script, tell_and_look, results=results)
        driven = await shop.driving(await shop.claim(), shop.agent(tell_and_look), means)
        await asyncio.wait_for(driven.run(), TIMEOUT_S)

        [completed] = of(await shop.log(run.id), ToolCallCompleted)
        assert not completed.cached
        assert len(await customs(shop, run.id)) == 1


async def test_a_worker_that_hands_the_run_back_leaves_what_was_told(shop: Workshop) -> None:
    gate = Gate()
    agent = shop.agent(gate.pass_through)
    run = await shop.queue()
    model = Scripted([calling(("pass_through", {})), saying("Done.")])
    driven = await shop.driving(await shop.claim(), agent, shop.means(model, gate.pass_through))

    async with in_background(driven):
        await shop.seen(run.id, "custom")
        gate.opened.set()
        driven.drain()

    assert (await shop.types(run.id))[-1] == "run.retrying"
    assert len(await customs(shop, run.id)) == 1


@tool(effect="read")
async def part(context: ToolContext) -> None:
    """Tell of being stopped."""
    context.emit("arrived")
    try:
        await asyncio.Event().wait()
    finally:
        context.emit("left")


@pytest.mark.parametrize("end", ["cancelled", "expired", "retrying"])
async def test_what_a_tool_tells_of_as_it_is_stopped_stands_before_what_stopped_it(
    shop: Workshop, end: str
) -> None:
    run = await shop.queue(deadline_ms=shop.clock() + DEADLINE_MS)
    means = shop.means([calling(("part", {}))], part)
    driven = await shop.driving(await shop.claim(), shop.agent(part), means)

    async with in_background(driven):
        await shop.seen(run.id, "custom")
        match end:
            case "cancelled":
                await shop.cancel(run.id)
            case "expired":
                shop.clock.ahead_ms = DEADLINE_MS
                shop.ring(run.id)
            case _:
                driven.drain()

    assert [name for _, name, _ in await customs(shop, run.id)] == ["arrived", "left"]
    assert (await shop.types(run.id))[-1] == f"run.{end}"


@tool
def confide(secret: str, context: ToolContext) -> str:
    """Tell of a secret."""
    context.emit("confided", {"to": secret, "n": 1})
    return "told"


@pytest.mark.parametrize(
    ("rail", "values"),
    [
        (PiiRail(), [{"to": "[email]", "n": 1}]),
        (RegexRail(pattern="ann@", action="block"), []),
        (RegexRail(pattern="bob@", action="block"), [{"to": "ann@example.com", "n": 1}]),
    ],
)
async def test_what_is_told_of_passes_the_guardrails_of_what_tools_bring(
    shop: Workshop, rail: PiiRail | RegexRail, values: list[Json]
) -> None:
    guarded = replace(shop.agent(confide), guardrails=Guardrails(tool_results=(rail,)))
    asked = calling(("confide", {"secret": "ann@example.com"}))

    run_id = await shop.driven([asked, saying("Done.")], confide, agent=guarded)

    log = await shop.log(run_id)
    assert [value for _, _, value in await customs(shop, run_id)] == values
    triggered = [each.call_id for each in of(log, GuardrailTriggered)]
    assert triggered == ([] if values == [{"to": "ann@example.com", "n": 1}] else ["call_1_0"])


async def test_the_pieces_that_a_tool_shows_are_counted(shop: Workshop) -> None:
    script = [calling(("spell", {"word": "abc"}), ("tell", {})), saying("Done.")]

    run_id = await shop.driven(script, spell, tell)

    completed = of(await shop.log(run_id), ToolCallCompleted)
    assert {each.call_id: each.chunks for each in completed} == {"call_1_0": 3, "call_1_1": 0}
