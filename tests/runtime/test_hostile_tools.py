"""Tools that do their worst: their run gets a clear result, and its neighbour does not notice."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from milepost.core.agents import Limits
from milepost.core.events import RunCompleted, ToolCallCompleted, ToolCallFailed, ToolCallRequested
from milepost.providers.scripted import calling, saying
from milepost.tools import tool
from milepost.tools.results import RESULT_CHARS_MAX
from tests.runtime.tools import add
from tests.runtime.workshop import TIMEOUT_S, Workshop, of
from tests.tools import isolated_tools

HASTY = Limits(tool_timeout_s=0.3, retry_backoff_s=0, rate_limit_cooldown_s=0)
PATIENT = Limits(tool_timeout_s=TIMEOUT_S, retry_backoff_s=0, rate_limit_cooldown_s=0)
RELEASE = threading.Event()


class WorstError(BaseException):
    """No Exception at all."""


class AnswerError(Exception):
    """What a client raises that reads every attribute from the answer, and knows none else."""

    def __getattr__(self, name: str) -> str:
        return {"status": "402"}[name]


@tool
async def interrupt() -> None:
    """Raise what ends a process."""
    raise KeyboardInterrupt


@tool
def leave() -> None:
    """Raise what ends a thread."""
    sys.exit(3)


@tool
async def raise_worst() -> None:
    """Raise what nobody expects."""
    raise WorstError("worst")


@tool
async def raise_unprintable() -> None:
    """Raise what Python itself can't print."""
    raise AnswerError("refused")


@tool
def recurse() -> None:
    """Go down without end."""
    recurse()


@tool
def raise_half_way() -> Iterator[str]:
    """Break off."""
    yield "half"
    raise WorstError("half way")


@tool
def swell() -> str:
    """Return 50 million characters."""
    return "x" * 50_000_000


@tool
async def flood() -> AsyncIterator[str]:
    """Say 50 million characters."""
    for _ in range(50):
        yield "x" * 1_000_000


@tool
def garble() -> bytes:
    """Return what is no UTF-8."""
    return b"\xff\xfe\x00"


@tool
def surrogate() -> str:
    """Return text that is no text."""
    return "a\ud800\x00b"


@tool
def turn_in_circles() -> list[Any]:
    """Return what contains itself."""
    circle: list[Any] = []
    circle.append(circle)
    return circle


@tool
def shout() -> str:
    """Write where the service writes."""
    os.write(2, b"\x1b[2Jshout\n")
    return "heard"


@tool
def never() -> None:
    """Never return, as far as a run can wait."""
    RELEASE.wait(60)


@tool
async def never_heed() -> None:
    """Go on whoever says stop."""
    while not RELEASE.is_set():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue


@tool
def overwrite(items: list[Any]) -> str:
    """Change what it was given."""
    items.clear()
    return "changed"


Check = Callable[[ToolCallCompleted | ToolCallFailed], bool]


def fails(words: str) -> Check:
    return lambda event: isinstance(event, ToolCallFailed) and words in event.error.message


def returns(result: Any) -> Check:
    return lambda event: isinstance(event, ToolCallCompleted) and event.result == result


def is_cut(event: ToolCallCompleted | ToolCallFailed) -> bool:
    """Say whether a result was cut, and says so."""
    assert isinstance(event, ToolCallCompleted)
    text = str(event.result)
    return "[cut: the result has 50000000" in text and len(text) < RESULT_CHARS_MAX + 200


@pytest.mark.parametrize(
    ("hostile", "check"),
    [
        (interrupt, fails("interrupt failed: KeyboardInterrupt")),
        (leave, fails("leave failed: SystemExit: 3")),
        (raise_worst, fails("raise_worst failed: WorstError: worst")),
        (raise_unprintable, fails("raise_unprintable failed: AnswerError: refused")),
        (recurse, fails("recurse failed: RecursionError")),
        (raise_half_way, fails("raise_half_way failed: WorstError: half way")),
        (swell, is_cut),
        (flood, is_cut),
        (garble, returns({"base64": "//4A", "bytes": 3})),
        (surrogate, returns("a\ufffd\ufffdb")),
        (turn_in_circles, fails("it returned what cannot be sent as JSON")),
        (shout, returns("heard")),
        (never, fails("never timed out after 0.3 s. It is a synchronous function")),
        (never_heed, fails("never_heed timed out after 0.3 s and would not be cancelled")),
        (isolated_tools.crash, fails("crash failed: its process crashed")),
        (isolated_tools.fork, lambda event: isinstance(event, ToolCallCompleted)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_its_run_gets_a_clear_result_and_another_runs_beside_it(
    shop: Workshop, hostile: Callable[..., Any], check: Check
) -> None:
    name = hostile.__name__
    isolated = hostile.__module__ == isolated_tools.__name__
    RELEASE.clear()
    means = shop.means([calling((name, {})), saying("Done.")], hostile)
    others = shop.means([calling(("add", {"a": 2, "b": 3})), saying("It is 5.")], add)
    run = await shop.queue()
    agent = shop.agent(hostile, limits=PATIENT if isolated else HASTY)
    first = await shop.driving(await shop.claim(), agent, means)
    neighbour = await shop.queue()
    second = await shop.driving(await shop.claim(), shop.agent(add), others)

    await asyncio.wait_for(asyncio.gather(first.run(), second.run()), 2 * TIMEOUT_S)
    RELEASE.set()

    log = await shop.log(run.id)
    (came,) = of(log, ToolCallCompleted, ToolCallFailed)
    assert check(came), came
    assert of(log, RunCompleted)
    assert [event.result for event in of(await shop.log(neighbour.id), ToolCallCompleted)] == [5]
    await means.invoker.close()


async def test_one_that_changes_its_arguments_changes_neither_the_log_nor_the_prompt(
    shop: Workshop,
) -> None:
    run_id = await shop.driven(
        [calling(("overwrite", {"items": [1, 2]})), saying("Done.")], overwrite
    )

    (requested,) = of(await shop.log(run_id), ToolCallRequested)
    assert requested.arguments == {"items": [1, 2]}
