"""Long results: who makes them shorter, which stay as they are, and what a failure leaves."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

import pytest

from milepost.core.agents import Agent, Compression, StopRule
from milepost.core.errors import ProviderError
from milepost.core.events import (
    RunCompleted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolResultCompressed,
)
from milepost.core.messages import Message
from milepost.core.model import Delta, Finished, ModelRequest, Provider, Spent, TextDelta
from milepost.core.policy import Policy
from milepost.core.usage import Usage
from milepost.providers.catalog import Catalog
from milepost.providers.scripted import Script, Scripted, calling, saying
from milepost.runtime.agent_spec import AgentSpec, agent_of
from milepost.store import traces, usage
from milepost.store.usage import UsageFilter
from milepost.tools import tool
from tests.runtime.workshop import AT_ONCE, TENANT, TIMEOUT_S, Workshop, of
from tests.telemetry.spoken import spoken

LONG = "The parcel 4711 lies in /var/depot. " * 100
SMALL = "small/summary-1"
SPENT = Usage(input_tokens=900, output_tokens=20)
BUSY = ProviderError("the vendor is busy", code="provider_overloaded", retryable=True)


@tool(effect="read")
def report(chars: int = len(LONG)) -> str:
    """Report."""
    return LONG[:chars]


@tool(terminal=True)
def answer() -> str:
    """Answer."""
    return LONG


@tool
def break_down() -> str:
    """Break down."""
    raise RuntimeError(LONG[:100])


async def compressed(
    shop: Workshop, small: Provider, *calls: Script, agent: Agent | None = None
) -> tuple[str, Scripted]:
    """Drive a run that makes the calls and then answers; return its id and its own model."""
    tools = (report, answer, break_down)
    own = Scripted([*calls, saying("Done.")])
    named = agent or shop.agent(*tools, compression=Compression(SMALL, 2_000))
    means = replace(shop.means(own, *tools), providers=Catalog({"test": own, "small": small}))
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), named, means)
    await asyncio.wait_for(driven.run(), TIMEOUT_S)
    return run.id, own


async def told(shop: Workshop, small: Provider, *calls: Script) -> ToolResultCompressed:
    """Return the event of the only result that was made shorter."""
    run_id, _ = await compressed(shop, small, *calls)
    [event] = of(await shop.log(run_id), ToolResultCompressed)
    assert isinstance(event, ToolResultCompressed)
    return event


REPORT = calling(("report", {}))


async def test_without_compression_a_long_result_stays_whole_and_nobody_else_is_asked(
    shop: Workshop,
) -> None:
    model = Scripted([REPORT, saying("Done.")])

    run_id = await shop.driven(model, report)

    assert len(model.requests) == 2
    assert model.requests[1].messages[-1].content == LONG
    assert "tool_result.compressed" not in await shop.types(run_id)


async def test_a_result_as_long_as_the_threshold_stays_and_one_character_more_does_not(
    shop: Workshop,
) -> None:
    assert Compression(SMALL).threshold_chars == 2_000
    small = Scripted([saying("Short.")])
    calls = calling(("report", {"chars": 2_000}), ("report", {"chars": 2_001}))

    event = await told(shop, small, calls)

    assert (event.call_id, event.chars) == ("call_1_1", 2_001)


async def test_the_model_reads_the_summary_marked_with_the_original_length(
    shop: Workshop,
) -> None:
    _, own = await compressed(shop, Scripted([saying("Parcel 4711 is in /var/depot.")]), REPORT)

    expected = f"[compressed from {len(LONG)} chars] Parcel 4711 is in /var/depot."
    assert own.requests[1].messages[-1] == Message("tool", expected, call_id="call_1_0")


async def test_the_summary_model_is_told_to_keep_numbers_ids_urls_paths_and_errors(
    shop: Workshop,
) -> None:
    small = Scripted([saying("Short.")])

    await told(shop, small, REPORT)

    [request] = small.requests
    system, user = request.messages
    for kept in ("number", "id", "URL", "path", "error text exactly as it stands"):
        assert kept in system.content
    assert user.content == f"Result of the tool report:\n\n{LONG}"


@pytest.mark.parametrize(("most", "shortened"), [(1, 0), (2, 1), (3, 2), (4, 3), (5, 3)])
async def test_no_result_is_made_shorter_by_a_call_that_the_run_may_not_make(
    shop: Workshop, most: int, shortened: int
) -> None:
    small = Scripted([saying("Short.")] * 3)
    calls = calling(*[("report", {})] * 3)
    limits = replace(AT_ONCE, max_model_calls=most)
    agent = shop.agent(report, limits=limits, compression=Compression(SMALL, 2_000))

    run_id, own = await compressed(shop, small, calls, agent=agent)

    assert (len(small.requests), len(own.requests)) == (shortened, most - shortened)
    assert (await shop.used(run_id)).model_calls == most


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (BUSY, "ProviderError"),
        (ZeroDivisionError("a bug in a provider"), "ZeroDivisionError"),
        (saying("  \n "), "the summary was empty"),
        (
            [TextDelta("Half of i"), Spent(SPENT), Finished("length")],
            "the summary reached its bound",
        ),
    ],
)
async def test_what_cannot_be_compressed_is_cut_at_the_threshold_and_the_run_goes_on(
    shop: Workshop, script: Script, why: str
) -> None:
    run_id, own = await compressed(shop, Scripted([script]), REPORT)

    marked = f"[truncated from {len(LONG)} chars; compression failed] {LONG[:2_000]}"
    assert own.requests[1].messages[-1].content == marked
    [event] = of(await shop.log(run_id), ToolResultCompressed)
    assert event.fallback == why
    assert (await shop.row(run_id)).status == "completed"


async def test_a_run_warns_once_of_summaries_that_fail_and_names_the_error(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    calls = calling(("report", {}), ("report", {}))

    run_id, _ = await compressed(shop, Scripted([BUSY] * 3), calls, REPORT)

    assert len(of(await shop.log(run_id), ToolResultCompressed)) == 3
    assert spoken(caplog, "runs") == [
        {
            "event": "a result was cut, not compressed", "level": "warning", "run": run_id,
            "tool": "report", "model": SMALL, "why": "ProviderError",
        }
    ]  # fmt: skip


@pytest.mark.parametrize("script", [saying("x" * 2_000), BUSY])
async def test_what_came_out_no_shorter_is_thrown_away(shop: Workshop, script: Script) -> None:
    """A cut result counts too: its mark may be longer than what was cut off."""
    _, own = await compressed(shop, Scripted([script]), calling(("report", {"chars": 2_001})))

    assert own.requests[1].messages[-1].content == LONG[:2_001]


async def test_a_terminal_result_is_the_answer_as_it_is(shop: Workshop) -> None:
    small = Scripted([saying("Short.")])

    run_id, _ = await compressed(shop, small, calling(("answer", {})))

    [ended] = of(await shop.log(run_id), RunCompleted)
    assert ended.output.text == LONG
    assert small.requests == []


async def test_a_result_that_stops_the_run_is_judged_and_answered_with_as_it_is(
    shop: Workshop,
) -> None:
    small = Scripted([saying("Short.")])
    agent = shop.agent(
        report,
        compression=Compression(SMALL, 2_000),
        stop_when=(StopRule("report", LONG[-2_500:]),),
    )

    run_id, own = await compressed(shop, small, REPORT, agent=agent)

    [ended] = of(await shop.log(run_id), RunCompleted)
    assert ended.output.text == LONG
    assert (len(own.requests), small.requests) == (1, [])


async def test_errors_and_denials_are_never_compressed(shop: Workshop) -> None:
    small = Scripted([saying("Short.")])
    agent = shop.agent(
        break_down, report,
        compression=Compression(SMALL, threshold_chars=1),
        policy=Policy(deny=("report",), allow=("*",)),
    )  # fmt: skip

    run_id, own = await compressed(
        shop, small, calling(("break_down", {}), ("report", {})), agent=agent
    )

    assert of(await shop.log(run_id), ToolCallFailed)
    failed, denied = own.requests[1].messages[-2:]
    assert failed.content.endswith(f"RuntimeError: {LONG[:100]}")
    assert "denied by policy" in denied.content
    assert small.requests == []


async def test_the_log_keeps_the_raw_result_beside_the_summary(shop: Workshop) -> None:
    run_id, _ = await compressed(shop, Scripted([saying("Short.")]), REPORT)

    log = await shop.log(run_id)
    [raw], [short] = of(log, ToolCallCompleted), of(log, ToolResultCompressed)
    assert raw.result == LONG
    assert short.content.endswith("Short.")


def test_without_a_model_of_its_own_compression_asks_the_agents() -> None:
    spec = AgentSpec.model_validate({"name": "clerk", "model": "openai/m", "compression": {}})

    assert agent_of(spec).compression == Compression("openai/m", 2_000)


async def test_what_a_summary_took_is_in_the_runs_usage_and_billed_to_its_own_model(
    shop: Workshop,
) -> None:
    run_id, _ = await compressed(shop, Scripted([saying("Short.", usage=SPENT)]), REPORT)

    summary = replace(SPENT, model_calls=1, unpriced_calls=1)
    [ended] = of(await shop.log(run_id), RunCompleted)
    assert ended.usage.input_tokens == 10 + 10 + 900
    assert ended.usage.model_calls == 3
    billed = await shop.store.read(usage.grouped(TENANT, ["model"], UsageFilter()))
    assert {group.key: group.usage for group in billed}[SMALL,] == summary


class Gathering:
    """A model that answers nobody before `count` have asked."""

    def __init__(self, count: int) -> None:
        self._barrier = asyncio.Barrier(count)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer once all are there."""
        return self._stream(request)

    async def _stream(self, _: ModelRequest) -> AsyncGenerator[Delta, None]:
        await asyncio.wait_for(self._barrier.wait(), TIMEOUT_S)
        for delta in saying("Short."):
            yield delta


async def test_several_results_are_compressed_at_once(shop: Workshop) -> None:
    calls = calling(*(("report", {}) for _ in range(3)))

    run_id, _ = await compressed(shop, Gathering(3), calls)

    events = of(await shop.log(run_id), ToolResultCompressed)
    assert [event.fallback for event in events] == [None] * 3


@pytest.mark.parametrize(
    ("threshold_chars", "tokens_max"), [(1, 128), (512, 128), (2_000, 500), (3_500, 875)]
)
async def test_a_summary_may_take_a_quarter_of_the_threshold_in_tokens(
    shop: Workshop, threshold_chars: int, tokens_max: int
) -> None:
    small = Scripted([saying("Short.")])
    agent = shop.agent(report, compression=Compression(SMALL, threshold_chars))

    await compressed(shop, small, REPORT, agent=agent)

    assert small.requests[0].tokens_max == tokens_max


async def test_a_summary_takes_no_more_than_a_thousand_tokens(shop: Workshop) -> None:
    small = Scripted([saying("Short.")])

    @tool
    def write_at_length() -> str:
        """Write at length."""
        return "word " * 2_000

    agent = shop.agent(write_at_length, compression=Compression(SMALL, 9_000))
    own = Scripted([calling(("write_at_length", {})), saying("Done.")])
    means = shop.means(own, write_at_length, providers=Catalog({"test": own, "small": small}))
    await shop.queue()
    driven = await shop.driving(await shop.claim(), agent, means)

    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    assert small.requests[0].tokens_max == 1_000


async def test_a_summary_is_a_span_of_its_own_model(shop: Workshop) -> None:
    run_id, _ = await compressed(shop, Scripted([saying("Short.", usage=SPENT)]), REPORT)

    spans = await shop.store.read(traces.spans(TENANT, run_id))
    [summary] = (span for span in spans if span.model == SMALL)
    assert (summary.kind, summary.name, summary.status) == ("chat", "chat summary-1", "ok")
    assert summary.attributes["gen_ai.usage.input_tokens"] == 900
    assert summary.attributes["gen_ai.tool.call.id"] == "call_1_0"
