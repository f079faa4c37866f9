"""A run in a worker's hands: its model, its tools, and what goes wrong with them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from milepost.core.agents import Limits
from milepost.core.errors import ProviderError
from milepost.core.events import (
    MessageAborted,
    MessageCompleted,
    ModelFellBack,
    ModelRetried,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    RunWaiting,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.core.messages import Message
from milepost.core.model import (
    CacheHit,
    CallDelta,
    Delta,
    FellBack,
    Finished,
    ModelRequest,
    ReasoningDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.fallback import Fallback
from milepost.providers.scripted import Script, Scripted, calling, saying
from milepost.runtime.calls import CALLS_PER_STEP_MAX
from milepost.tools import ToolContext, tool
from tests.runtime.tools import add, fail, look_up, pay
from tests.runtime.workshop import (
    AT_ONCE,
    TIMEOUT_S,
    Held,
    Turns,
    Workshop,
    in_background,
    of,
)

BUSY = ProviderError("the vendor is busy", code="provider_overloaded", retryable=True)
GONE = ProviderError("no such model", code="provider_refused")


# --- Model and tools ---


async def test_a_run_without_calls_is_answered(shop: Workshop) -> None:
    run_id = await shop.driven([saying("Good day.")])

    assert await shop.types(run_id) == [
        "run.queued", "run.started", "step.started", "message.started", "message.completed",
        "step.completed", "run.completed",
    ]  # fmt: skip
    row = await shop.row(run_id)
    assert row.status == "completed"
    assert '"text":"Good day."' in (row.outcome or "")


async def test_a_result_goes_back_to_the_model(shop: Workshop) -> None:
    model = Scripted([calling(("add", {"a": 2, "b": 3})), saying("It is 5.")])

    run_id = await shop.driven(model, add)

    assert model.requests[1].messages[-1] == Message("tool", "5", call_id="call_1_0")
    [ended] = of(await shop.log(run_id), RunCompleted)
    assert ended.output.text == "It is 5."
    assert ended.usage.model_calls == 2


async def test_a_call_says_as_it_begins_what_its_tool_gets_where_nobody_asked_for_just_that(
    shop: Workshop,
) -> None:
    asked = calling(("add", {"a": "2", "b": 3}), ("add", {"a": 2, "b": 3}))

    run_id = await shop.driven([asked, saying("It is 5.")], add)

    coerced, plain = of(await shop.log(run_id), ToolCallStarted)
    assert (coerced.arguments, len(coerced.coerced)) == ({"a": 2, "b": 3}, 1)
    assert (plain.arguments, plain.coerced) == (None, ())


async def test_of_a_tool_that_returns_nothing_the_model_is_not_told_that_it_was_not_run(
    shop: Workshop,
) -> None:
    @tool
    def send(to: str) -> None:
        """Send it."""

    model = Scripted([calling(("send", {"to": "ann"})), saying("Sent.")])

    await shop.driven(model, send)

    assert model.requests[1].messages[-1] == Message("tool", "", call_id="call_1_0")


async def test_the_model_is_offered_the_agents_tools_and_told_its_instructions(
    shop: Workshop,
) -> None:
    model = Scripted([saying("Hi.")])
    agent = shop.agent(add, instructions="Be kind.")

    await shop.queue("Hello")
    await shop.go_on(model, add, look_up, agent=agent)

    [request] = model.requests
    assert [schema.name for schema in request.tools] == ["add"]
    assert request.messages == (Message("system", "Be kind."), Message("user", "Hello"))
    assert (request.tenant, request.model) == ("acme", "model")


async def test_calls_of_a_step_run_at_once_and_report_in_the_order_of_their_requests(
    shop: Workshop,
) -> None:
    @tool(effect="read")
    async def first(context: ToolContext) -> str:
        """Wait until the second has reported."""
        await shop.seen(context.run_id, "tool_call.completed")
        return "one"

    @tool(effect="read")
    async def second() -> str:
        """Come back at once."""
        return "two"

    model = Scripted([calling(("first", {}), ("second", {})), saying("Done.")])
    run_id = await shop.driven(model, first, second)

    completed = of(await shop.log(run_id), ToolCallCompleted)
    assert [event.call_id for event in completed] == ["call_1_1", "call_1_0"]
    assert [message.content for message in model.requests[1].messages[-2:]] == ["one", "two"]


async def test_a_tool_that_fails_stops_none_of_its_siblings(shop: Workshop) -> None:
    model = Scripted([calling(("fail", {"why": "rain"}), ("look_up", {})), saying("Oh.")])

    run_id = await shop.driven(model, fail, look_up)

    told = [message.content for message in model.requests[1].messages[-2:]]
    assert told == ["Error (tool_failed): fail failed: RuntimeError: rain", "seen"]
    assert (await shop.row(run_id)).status == "completed"


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("sing", "{}", "Error (unknown_tool): there is no tool 'sing'; the tools are: add"),
        ("add", '{"a": 1', "Error (invalid_arguments): the arguments of add are no JSON object"),
        ("add", '["a"]', "Error (invalid_arguments): the arguments of add are no JSON object"),
        ("add", '{"a": 1, "b": "x"}', "Error (invalid_arguments): "),
    ],
)
async def test_a_call_that_cannot_be_made_is_explained_to_the_model(
    shop: Workshop, name: str, arguments: str, told: str
) -> None:
    asked: Script = [CallDelta(0, "id", name, arguments), Finished("tool_calls")]
    model = Scripted([asked, saying("Sorry.")])

    run_id = await shop.driven(model, add)

    assert model.requests[1].messages[-1].content.startswith(told)
    assert "tool_call.started" not in await shop.types(run_id)


async def test_every_call_of_a_step_has_its_own_beginning_and_end(shop: Workshop) -> None:
    calls = calling(("fail", {"why": "rain"}), ("look_up", {}), ("add", {"a": 1, "b": 2}))

    run_id = await shop.driven([calls, saying("Done.")], fail, look_up, add)

    log = await shop.log(run_id)
    told = {
        call_id: [event.type for event in log if getattr(event, "call_id", None) == call_id]
        for call_id in ("call_1_0", "call_1_1", "call_1_2")
    }
    begun = ["tool_call.requested", "tool_call.started"]
    assert told == {
        "call_1_0": [*begun, "tool_call.failed"],
        "call_1_1": [*begun, "tool_call.completed"],
        "call_1_2": [*begun, "tool_call.completed"],
    }


async def test_the_same_call_several_times_in_a_step_is_made_as_often(shop: Workshop) -> None:
    keys: list[str] = []

    @tool(effect="read")
    async def poll(context: ToolContext) -> str:
        """Look whether it is done."""
        keys.append(context.idempotency_key)
        return f"look {len(keys)}"

    model = Scripted([calling(*[("poll", {})] * 3), saying("Done.")])
    await shop.driven(model, poll)

    assert len(keys) == len(set(keys)) == 3
    assert [message.content for message in model.requests[1].messages[-3:]] == [
        "look 1", "look 2", "look 3",
    ]  # fmt: skip


async def test_a_call_that_is_no_json_is_not_made_beside_one_that_is(shop: Workshop) -> None:
    made: list[int] = []

    @tool(effect="read")
    def note(number: int = 0) -> str:
        """Note a number."""
        made.append(number)
        return "noted"

    asked: Script = [
        CallDelta(0, "a", "note", '{"number": 1'),
        CallDelta(1, "b", "note", '{"number": 2}'),
        Finished("tool_calls"),
    ]
    model = Scripted([asked, saying("Sorry.")])
    await shop.driven(model, note)

    assert made == [2]
    first, second = (message.content for message in model.requests[1].messages[-2:])
    assert first.startswith("Error (invalid_arguments): the arguments of note are no JSON object")
    assert second == "noted"


async def test_an_agent_that_only_chooses_asks_once_and_makes_no_call(shop: Workshop) -> None:
    model = Scripted([calling(("pay", {"cents": "5"}))])
    agent = shop.agent(pay, routing_only=True)

    run = await shop.queue()
    await shop.go_on(model, pay, agent=agent)

    [ended] = of(await shop.log(run.id), RunCompleted)
    assert ended.output.parsed == {"calls": [{"name": "pay", "arguments": {"cents": 5}}]}
    assert (ended.finish_reason, ended.usage.model_calls) == ("routed", 1)
    assert "tool_call.started" not in await shop.types(run.id)


async def test_a_tool_that_is_not_the_agents_is_unknown_to_it(shop: Workshop) -> None:
    model = Scripted([calling(("pay", {"cents": 1})), saying("Sorry.")])

    await shop.queue()
    await shop.go_on(model, add, pay, agent=shop.agent(add))

    assert "there is no tool 'pay'" in model.requests[1].messages[-1].content


async def test_integers_beyond_64_bits_reach_a_tool_exactly(shop: Workshop) -> None:
    seen: list[str] = []

    @tool(effect="read")
    def keep(number: str) -> str:
        """Keep a number."""
        seen.append(number)
        return number

    large = "123456789012345678901234567890"
    asked: Script = [CallDelta(0, "id", "keep", f'{{"number": {large}}}'), Finished("tool_calls")]

    run_id = await shop.driven([asked, saying("Kept.")], keep)

    [requested] = of(await shop.log(run_id), ToolCallRequested)
    assert requested.arguments == {"number": large}
    assert seen == [large]


async def test_what_no_reader_could_store_is_made_storable(shop: Workshop) -> None:
    @tool(effect="read")
    def spell() -> dict[str, object]:
        """Return what cannot be stored as it is."""
        return {"nul": "a\x00b", "lone": "\ud800", "large": 2**70}

    model = Scripted([calling(("spell", {})), [TextDelta("x\x00y\udfff"), Finished("stop")]])
    run_id = await shop.driven(model, spell)

    log = await shop.log(run_id)
    [result] = of(log, ToolCallCompleted)
    assert result.result == {"nul": "a\ufffdb", "lone": "\ufffd", "large": str(2**70)}
    assert of(log, MessageCompleted)[-1].content == "x\ufffdy\ufffd"


async def test_an_error_that_cannot_be_stored_does_not_poison_the_run(shop: Workshop) -> None:
    run_id = await shop.driven([ProviderError("b\x00d \ud800", code="provider_refused")])

    [aborted] = of(await shop.log(run_id), MessageAborted)
    assert aborted.reason == "b\ufffdd \ufffd"
    assert (await shop.row(run_id)).status == "failed"


async def test_calls_beyond_the_bound_of_a_step_are_refused_with_words(shop: Workshop) -> None:
    model = Scripted([calling(*[("look_up", {})] * (CALLS_PER_STEP_MAX + 2)), saying("Ok.")])

    run_id = await shop.driven(model, look_up)

    results = [message.content for message in model.requests[1].messages if message.call_id]
    assert results[:CALLS_PER_STEP_MAX] == ["seen"] * CALLS_PER_STEP_MAX
    assert all(told.startswith("Error (too_many_calls)") for told in results[CALLS_PER_STEP_MAX:])
    assert len(results) == CALLS_PER_STEP_MAX + 2
    assert len(of(await shop.log(run_id), ToolCallStarted)) == CALLS_PER_STEP_MAX


async def test_a_tool_has_its_time(shop: Workshop) -> None:
    stopped = asyncio.Event()

    @tool(timeout_s=0.01)
    async def dawdle() -> None:
        """Take too long."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    model = Scripted([calling(("dawdle", {})), saying("Too slow.")])
    await shop.driven(model, dawdle)

    assert model.requests[1].messages[-1].content.startswith("Error (tool_timeout): dawdle timed")
    assert stopped.is_set()


async def test_a_tool_that_cancels_itself_fails_and_the_run_goes_on(shop: Workshop) -> None:
    @tool
    async def give_up() -> None:
        """Cancel whatever runs this."""
        cancel_this_task()
        await asyncio.Event().wait()

    model = Scripted([calling(("give_up", {})), saying("Oh.")])
    run_id = await shop.driven(model, give_up)

    told = model.requests[1].messages[-1].content
    assert told == "Error (tool_failed): give_up failed: it cancelled itself"
    assert (await shop.row(run_id)).status == "completed"


async def test_a_model_call_that_is_cancelled_from_within_is_made_again(shop: Workshop) -> None:
    run_id = await shop.driven(Turns(Fickle(), Scripted([saying("Hello.")])))

    log = await shop.log(run_id)
    assert of(log, MessageAborted)[0].error.code == "provider_error"
    assert of(log, RunCompleted)[0].output.text == "Hello."


class Fickle:
    """A model that cancels whoever calls it."""

    async def stream(self, _: ModelRequest) -> AsyncIterator[Delta]:
        """Cancel the call."""
        cancel_this_task()
        await asyncio.Event().wait()
        yield TextDelta("never")


def cancel_this_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def test_the_agents_limit_holds_for_tools_that_have_none(shop: Workshop) -> None:
    @tool
    async def dawdle() -> None:
        """Take too long."""
        await asyncio.Event().wait()

    model = Scripted([calling(("dawdle", {})), saying("Too slow.")])
    agent = shop.agent(dawdle, limits=replace(AT_ONCE, tool_timeout_s=0.01))
    await shop.queue()
    await shop.go_on(model, dawdle, agent=agent)

    assert "timed out after 0.01 s" in model.requests[1].messages[-1].content


async def test_a_tool_is_told_which_call_it_answers(shop: Workshop) -> None:
    seen: list[ToolContext] = []

    @tool
    def learn(context: ToolContext) -> None:
        """Learn."""
        seen.append(context)

    run_id = await shop.driven([calling(("learn", {})), saying("Done.")], learn)

    [requested] = of(await shop.log(run_id), ToolCallRequested)
    [context] = seen
    assert (context.run_id, context.call_id, context.attempt) == (run_id, "call_1_0", 1)
    assert context.idempotency_key == requested.idempotency_key
    assert context.tenant == "acme"


async def test_an_iteration_is_one_transaction(shop: Workshop) -> None:
    model = Scripted([calling(("add", {"a": 1, "b": 1}), ("look_up", {})), saying("Done.")])

    run_id = await shop.driven(model, add, look_up)

    groups = await appends(shop, run_id)
    assert groups[2] == ["step.started", "message.started"]
    assert groups[3] == ["message.completed", "tool_call.requested", "tool_call.requested",
                         "tool_call.started", "tool_call.started"]  # fmt: skip
    assert groups[-1] == ["message.completed", "step.completed", "run.completed"]


async def appends(shop: Workshop, run_id: str) -> list[list[str]]:
    """Return the names of the run's events, those of one transaction together."""
    groups: dict[str, list[str]] = {}
    for append_id, kind in await shop.written(run_id):
        groups.setdefault(append_id, []).append(kind)
    return list(groups.values())


# --- Text ---


async def test_nothing_durable_stands_between_a_messages_text_and_its_completion(
    shop: Workshop,
) -> None:
    """Else a client cut off there would not know how much of the text it has."""
    thinking: Script = [ReasoningDelta("Hm."), TextDelta("Yes."), Finished("stop")]

    run_id = await shop.driven([thinking])

    types = await shop.types(run_id)
    assert types[types.index("message.started") + 1] == "message.completed"
    assert "reasoning.completed" in types


async def test_text_from_the_cache_is_not_typed_so_that_nothing_stands_behind_it(
    shop: Workshop,
) -> None:
    cached = Held(CacheHit(3.0), ReasoningDelta("Hm."), TextDelta("Yes."),
                  rest=[Finished("stop")])  # fmt: skip
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(cached))

    with shop.hub.hold(run.id) as tail:
        async with in_background(driven):
            await asyncio.wait_for(cached.reached.wait(), TIMEOUT_S)
            assert tail.texts == {}
            cached.go.set()

    types = await shop.types(run.id)
    assert types[types.index("message.started") + 1] == "cache.hit"
    assert of(await shop.log(run.id), MessageCompleted)[0].content == "Yes."


async def test_text_is_shown_while_it_is_written(shop: Workshop) -> None:
    model = Held(TextDelta("Once upon "), rest=saying("a time."))
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))

    with shop.hub.hold(run.id) as tail:
        async with in_background(driven):
            await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
            [text] = tail.texts.values()
            assert (text.kind, text.id, text.after_seq) == ("message.delta", "msg_1", 4)
            assert text.text == "Once upon "
            model.go.set()

    assert of(await shop.log(run.id), MessageCompleted)[0].content == "Once upon a time."


# --- Limits and failures ---


async def test_the_step_limit_allows_exactly_that_many_model_calls(shop: Workshop) -> None:
    model = Scripted([calling(("look_up", {}))] * 9)
    agent = shop.agent(look_up, limits=replace(AT_ONCE, max_steps=3))

    run = await shop.queue()
    await shop.go_on(model, look_up, agent=agent)

    assert len(model.requests) == 3
    [ended] = of(await shop.log(run.id), RunIncomplete)
    assert ended.reason == "max_steps"
    assert len(of(await shop.log(run.id), ToolCallCompleted)) == 3


async def test_a_model_that_fails_is_called_again(shop: Workshop) -> None:
    run_id = await shop.driven([BUSY, [TextDelta("Half"), BUSY], saying("At last.")])

    log = await shop.log(run_id)
    assert [event.message_id for event in of(log, MessageAborted)] == ["msg_1", "msg_2"]
    assert [event.attempt for event in of(log, ModelRetried)] == [2, 3]
    assert of(log, RunCompleted)[0].output.text == "At last."


async def test_a_model_that_keeps_failing_fails_the_run_with_its_error(shop: Workshop) -> None:
    model = Scripted([BUSY] * 9)

    run_id = await shop.driven(model)

    assert len(model.requests) == 3
    [ended] = of(await shop.log(run_id), RunFailed)
    assert (ended.error.code, ended.error.retryable) == ("provider_overloaded", True)
    row = await shop.row(run_id)
    assert row.status == "failed"
    assert '"code":"provider_overloaded"' in (row.outcome or "")


async def test_a_failure_for_good_is_not_retried(shop: Workshop) -> None:
    model = Scripted([GONE, saying("never")])

    run_id = await shop.driven(model)

    assert len(model.requests) == 1
    assert (await shop.row(run_id)).status == "failed"


async def test_a_stream_that_ends_in_the_middle_is_called_again(shop: Workshop) -> None:
    run_id = await shop.driven([[TextDelta("Half")], saying("Whole.")])

    assert of(await shop.log(run_id), RunCompleted)[0].output.text == "Whole."


async def test_a_model_that_nobody_provides_fails_the_run(shop: Workshop) -> None:
    agent = replace(shop.agent(), model="nowhere/model")

    run = await shop.queue()
    await shop.go_on([], agent=agent)

    [ended] = of(await shop.log(run.id), RunFailed)
    assert ended.error.code == "unknown_provider"


async def test_a_reply_that_is_too_long_closes_the_models_stream(shop: Workshop) -> None:
    model = Held(TextDelta("x" * 5_000_000))

    run_id = await shop.driven(model)

    assert (await shop.row(run_id)).status == "failed"
    assert model.closed.is_set()


async def test_a_retry_waits_as_the_agent_says(shop: Workshop) -> None:
    agent = shop.agent(limits=Limits(retry_backoff_s=0.01, rate_limit_cooldown_s=0.02))
    limited = ProviderError("slow down", code="provider_rate_limited", retryable=True)

    run = await shop.queue()
    await shop.go_on([limited, saying("Hi.")], agent=agent)

    [retried] = of(await shop.log(run.id), ModelRetried)
    assert retried.wait_ms == 30


# --- Usage ---


async def test_what_the_model_took_is_counted_in_the_transaction_that_says_so(
    shop: Workshop,
) -> None:
    took = Usage(input_tokens=7, output_tokens=3)
    run_id = await shop.driven([[TextDelta("Hi."), Spent(took), Finished("stop")]])

    [message] = of(await shop.log(run_id), MessageCompleted)
    assert (message.usage.input_tokens, message.usage.model_calls) == (7, 1)
    assert message.usage.unpriced_calls == 1
    total = await shop.used(run_id)
    assert (total.input_tokens, total.output_tokens, total.model_calls) == (7, 3, 1)


CUT = ProviderError("the stream broke off", code="provider_stream_cut", retryable=True)
SILENT = ProviderError("no first token", code="provider_timeout", retryable=True)
REFUSED = ProviderError("try later", code="provider_timeout", retryable=True, status=504)
AWAY = ProviderError("cannot be reached", code="provider_unreachable", retryable=True)


@pytest.mark.parametrize(
    ("failed", "unknown"),
    [
        (CUT, 1),
        (SILENT, 1),
        ([TextDelta("Half"), BUSY], 1),
        ([TextDelta("Half")], 1),
        ([TextDelta("x" * 5_000_000)], 1),
        (BUSY, 0),
        (REFUSED, 0),
        (AWAY, 0),
        (GONE, 0),
    ],
)
async def test_a_call_that_its_vendor_had_taken_up_is_counted_though_nobody_knows_what_it_took(
    shop: Workshop, failed: Script, unknown: int
) -> None:
    run_id = await shop.driven([failed, saying("At last.")])

    log = await shop.log(run_id)
    ended = of(log, RunCompleted, RunFailed)[0]
    assert of(log, MessageAborted)[0].usage.unknown_calls == unknown
    assert ended.usage.unknown_calls == unknown
    assert await shop.used(run_id) == ended.usage


async def test_failures_of_tools_do_not_end_a_run(shop: Workshop) -> None:
    run_id = await shop.driven([calling(("fail", {"why": "x"})), saying("Ok.")], fail)

    assert len(of(await shop.log(run_id), ToolCallFailed)) == 1
    assert of(await shop.log(run_id), RunWaiting) == []
    assert (await shop.row(run_id)).status == "completed"


# --- Time ---


async def test_a_model_that_takes_longer_than_its_agent_allows_is_given_up(shop: Workshop) -> None:
    limits = Limits(model_retries=0, model_timeout_s=0.05)
    model = Held()

    run_id = await shop.driven(model, agent=shop.agent(limits=limits))

    [failed] = of(await shop.log(run_id), RunFailed)
    assert failed.error.code == "provider_timeout"
    assert "model_timeout_s" in failed.error.message
    assert model.closed.is_set()


async def test_a_run_ends_when_workers_have_been_at_it_for_as_long_as_they_may(
    shop: Workshop,
) -> None:
    limits = Limits(active_s=0.05)

    run_id = await shop.driven(Held(), agent=shop.agent(limits=limits))

    [expired] = of(await shop.log(run_id), RunExpired)
    assert expired.limit == "active_time"


async def test_a_run_that_changes_hands_has_what_its_last_worker_left_of_its_time(
    shop: Workshop,
) -> None:
    agent = shop.agent(limits=Limits(active_s=60))
    run = await shop.queue()
    first, second = Held(), Held()
    driven = await shop.driving(await shop.claim(), agent, shop.means(first))
    async with in_background(driven):
        await asyncio.wait_for(first.reached.wait(), TIMEOUT_S)
        shop.clock.ahead_ms = 50_000
        driven.drain()
    shop.clock.ahead_ms += 3_600_000  # Nobody is at it.

    driven = await shop.driving(await shop.claim(), agent, shop.means(second))
    async with in_background(driven):
        await asyncio.wait_for(second.reached.wait(), TIMEOUT_S)
        shop.clock.ahead_ms += 10_000
        shop.ring(run.id)

    [expired] = of(await shop.log(run.id), RunExpired)
    assert expired.limit == "active_time"


# --- Fallbacks ---


class FallingBack:
    """A model that fell back to another one."""

    async def stream(self, _: ModelRequest) -> AsyncIterator[Delta]:
        """Say so, and answer."""
        yield FellBack("test/model", "openai/gpt-5-mini", "provider_overloaded", "busy")
        yield TextDelta("Good day.")
        yield Finished("stop")
        yield Spent(Usage(input_tokens=1_000, output_tokens=1_000))


async def test_who_answered_instead_is_told_and_paid(shop: Workshop) -> None:
    run_id = await shop.driven(FallingBack())

    log = await shop.log(run_id)
    [fell] = of(log, ModelFellBack)
    [message] = of(log, MessageCompleted)
    assert (fell.failed, fell.chosen) == ("test/model", "openai/gpt-5-mini")
    assert fell.error.code == "provider_overloaded"
    assert message.answered_by == "openai/gpt-5-mini"
    assert message.usage.cost_nanos > 0, "the model that answered has a price"


async def test_models_that_fell_silent_before_another_one_answered_may_be_billed(
    shop: Workshop,
) -> None:
    asked: list[Script] = [SILENT, BUSY, CUT, saying("Good day.")]
    model = Fallback([(f"v/{n}", Scripted([each])) for n, each in enumerate(asked)])

    log = await shop.log(await shop.driven(model))

    [message] = of(log, MessageCompleted)
    assert (message.usage.model_calls, message.usage.unknown_calls) == (1, 2)


async def test_a_model_that_fell_silent_may_be_billed_although_the_next_ones_reply_was_kept(
    shop: Workshop,
) -> None:
    saved = Usage(saved_input_tokens=90, saved_output_tokens=10)
    cached: Script = [CacheHit(3.0), TextDelta("Good day."), Spent(saved), Finished("stop")]
    asked: list[Script] = [SILENT, cached]
    model = Fallback([(f"v/{n}", Scripted([each])) for n, each in enumerate(asked)])

    log = await shop.log(await shop.driven(model))

    [message] = of(log, MessageCompleted)
    assert message.usage == replace(saved, unknown_calls=1)


async def test_of_models_none_of_which_answered_each_that_fell_silent_may_be_billed(
    shop: Workshop,
) -> None:
    asked = (SILENT, CUT, BUSY)
    model = Fallback([(f"v/{n}", Scripted([each] * 9)) for n, each in enumerate(asked)])

    log = await shop.log(await shop.driven(model))

    assert {message.usage for message in of(log, MessageAborted)} == {Usage(unknown_calls=2)}
