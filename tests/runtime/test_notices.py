"""What the process' own log says of runs that go wrong, and that it says nothing of the others."""

import asyncio
import logging

import pytest

from milepost.core.errors import ProviderError
from milepost.providers.scripted import calling, saying
from milepost.runtime.notices import TRACEBACK_CHARS_MAX
from milepost.tools import tool
from tests.runtime.tools import add, fail
from tests.runtime.workshop import TIMEOUT_S, Held, Workshop, in_background
from tests.telemetry.spoken import spoken

BUSY = ProviderError("the vendor is busy", code="provider_overloaded", retryable=True)
GONE = ProviderError("no such model", code="provider_bad_request")


@pytest.fixture(autouse=True)
def from_info_up(caplog: pytest.LogCaptureFixture) -> None:
    """Hear what the default level hears."""
    caplog.set_level(logging.INFO)


async def test_a_run_that_goes_well_is_not_worth_a_line(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    await shop.driven([calling(("add", {"a": 2, "b": 3})), saying("5.")], add)

    assert spoken(caplog, "runs") == []


async def test_what_a_tool_raised_is_logged_with_its_traceback_and_none_of_its_arguments(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def divide(dividend: int) -> float:
        """Divide by nothing."""
        return dividend / 0

    run_id = await shop.driven(
        [calling(("divide", {"dividend": 47_110_815_004_711})), saying("Oh.")], divide
    )

    [line] = spoken(caplog, "runs")
    shown = str(line.pop("exception"))
    assert line == {
        "event": "a tool failed", "level": "warning",
        "run": run_id, "call": "call_1_0", "tool": "divide", "code": "tool_failed",
    }  # fmt: skip
    assert "return dividend / 0" in shown
    assert shown.endswith("ZeroDivisionError: division by zero")
    assert "47110815004711" not in caplog.text


async def test_a_tool_that_ran_out_of_time_is_logged(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(timeout_s=0.01)
    async def dawdle() -> None:
        """Take too long."""
        await asyncio.Event().wait()

    await shop.driven([calling(("dawdle", {})), saying("Too slow.")], dawdle)

    [line] = spoken(caplog, "runs")
    assert (line["tool"], line["code"], "exception" in line) == ("dawdle", "tool_timeout", False)


async def test_a_long_traceback_is_cut_at_its_beginning(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    why = "x" * 2 * TRACEBACK_CHARS_MAX

    await shop.driven([calling(("fail", {"why": why})), saying("Oh.")], fail)

    [line] = spoken(caplog, "runs")
    shown = str(line["exception"])
    assert shown.startswith("[")
    assert shown.endswith("x" * TRACEBACK_CHARS_MAX)
    assert len(shown) < TRACEBACK_CHARS_MAX + 50


async def test_arguments_that_do_not_fit_are_the_models_affair(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    await shop.driven([calling(("add", {"a": "x"})), saying("Sorry.")], add)

    assert spoken(caplog, "runs") == []


async def test_a_model_that_is_called_again_is_logged_with_the_reason(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = await shop.driven([BUSY, saying("At last.")])

    assert spoken(caplog, "runs") == [
        {
            "event": "a model call failed; trying again", "level": "warning", "run": run_id,
            "model": "test/model", "attempt": 2, "wait_ms": 0, "code": "provider_overloaded",
            "error": "the vendor is busy",
        }
    ]  # fmt: skip


async def test_a_run_that_fails_is_logged_with_its_code(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = await shop.driven([GONE])

    assert spoken(caplog, "runs") == [
        {
            "event": "a run failed", "level": "warning", "run": run_id, "agent": "clerk",
            "code": "provider_bad_request", "error": "no such model",
        }
    ]  # fmt: skip


async def test_a_run_is_seen_to_pass_from_one_worker_to_the_next(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    model = Held()
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(model))
    async with in_background(driven):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        driven.drain()
    await shop.go_on([saying("Anew.")])

    assert spoken(caplog, "runs") == [
        {"event": "handed a run back", "level": "info", "run": run.id},
        {"event": "took a run over", "level": "info", "run": run.id, "attempt": 2, "why": "drain"},
    ]


async def test_a_run_whose_worker_died_is_seen_to_be_taken_over(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    run = await shop.queue()
    await shop.claim()

    await shop.go_on([saying("Anew.")], claim=await shop.take_over())

    assert spoken(caplog, "runs") == [
        {"event": "took a run over", "level": "info", "run": run.id, "attempt": 2, "why": "crash"}
    ]
