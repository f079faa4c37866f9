"""A tool that has other defaults by the time that a call of it is made."""

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest
from pydantic import BaseModel

from milepost.core.arguments import ArgumentMatch
from milepost.core.canonical import call_digest
from milepost.core.decide import decide
from milepost.core.effects import AskApproval
from milepost.core.events import (
    ApprovalRequested,
    RunQueued,
    RunStarted,
    ToolCallDenied,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.core.evolve import fold
from milepost.core.json import Json
from milepost.core.policy import Policy, Rule
from milepost.providers.scripted import Script, calling, saying
from milepost.runtime.forking import forking
from milepost.runtime.logged import logged
from milepost.runtime.rules import rules_for
from milepost.store import log
from milepost.store.approvals import Edit
from milepost.tools import Registry, ToolContext, tool, tool_of
from tests.runtime.workshop import ASK, TENANT, TIMEOUT_S, Workshop, of

REFUND_7 = calling(("refund", {"order": 7}))
SHOWN: dict[str, Json] = {"order": 7, "cents": 500}


class Deploys:
    """A tool as it is deployed again and again, and what all of them have been called with."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []

    def refunding(self, default: int) -> Callable[..., str]:
        """Return the tool with this default."""

        @tool
        def refund(order: int, cents: int = default) -> str:
            """Refund an order."""
            self.made.append((order, cents))
            return f"refunded {cents}"

        return refund

    def before_defaults(self) -> Callable[..., str]:
        """Return the tool as it was before it knew of amounts."""

        @tool
        def refund(order: int) -> str:
            """Refund an order."""
            return f"refunded {order}"

        return refund


@pytest.fixture
def deploys() -> Deploys:
    return Deploys()


async def asked_about(shop: Workshop, refund: Callable[..., str]) -> str:
    """Queue a run whose model wants a refund, and have people asked about it."""
    run = await shop.queue()
    await shop.go_on([REFUND_7], refund, agent=shop.agent(refund, policy=ASK))
    return run.id


async def go_on_approved(shop: Workshop, refund: Callable[..., str]) -> None:
    [asked] = await shop.pending()
    await shop.decide(asked)
    await shop.go_on([saying("Done.")], refund, agent=shop.agent(refund, policy=ASK))


async def test_people_are_shown_the_defaults_and_their_yes_binds_them(
    shop: Workshop, deploys: Deploys
) -> None:
    run_id = await asked_about(shop, deploys.refunding(500))

    [asked] = of(await shop.log(run_id), ApprovalRequested)
    assert asked.arguments == SHOWN
    assert asked.digest == call_digest("refund", SHOWN)
    assert asked.preview == "refund(order=7, cents=500)"


async def test_what_was_approved_is_made_whatever_the_default_is_by_then(
    shop: Workshop, deploys: Deploys
) -> None:
    run_id = await asked_about(shop, deploys.refunding(500))
    await go_on_approved(shop, deploys.refunding(90_000))

    assert deploys.made == [(7, 500)]
    [started] = of(await shop.log(run_id), ToolCallStarted)
    assert started.arguments == SHOWN


@pytest.mark.parametrize(("most", "made"), [(499, []), (1_000, [(7, 500)])])
async def test_rules_judge_what_was_approved_and_not_what_is_a_default_by_then(
    shop: Workshop, deploys: Deploys, most: int, made: list[tuple[int, int]]
) -> None:
    run_id = await asked_about(shop, deploys.refunding(500))
    [asked] = await shop.pending()
    await shop.decide(asked)
    refund = deploys.refunding(90_000)
    too_much = Rule("refund", (ArgumentMatch("cents", minimum=most),))
    agent = shop.agent(refund, policy=Policy(deny_when=(too_much,)))
    await shop.go_on([saying("Done.")], refund, agent=agent)

    assert deploys.made == made
    assert len(of(await shop.log(run_id), ToolCallDenied)) == (not made)


@pytest.mark.parametrize("default", [500, 90_000])
async def test_a_default_that_an_edit_leaves_as_it_was_shown_was_not_written_by_anybody(
    shop: Workshop, deploys: Deploys, default: int
) -> None:
    refund = deploys.refunding(500)
    named = Rule("refund", (ArgumentMatch("cents"),))
    policy = Policy(ask=("refund",), deny_when=(named,))
    run = await shop.queue()
    await shop.go_on([REFUND_7], refund, agent=shop.agent(refund, policy=policy))
    [asked] = await shop.pending()
    edited: dict[str, Json] = {**SHOWN, "order": 8}
    edit = Edit(orjson.dumps(edited).decode(), call_digest("refund", edited), "refund(8)")
    await shop.decide(asked, edit=edit)
    refund = deploys.refunding(default)
    agent = shop.agent(refund, policy=policy if default == 500 else ASK)
    await shop.go_on([saying("Done.")], refund, agent=agent)

    assert deploys.made == [(8, 500)]
    [started] = of(await shop.log(run.id), ToolCallStarted)
    assert started.arguments == edited


async def test_a_yes_from_before_a_tool_had_the_default_holds(
    shop: Workshop, deploys: Deploys
) -> None:
    run_id = await asked_about(shop, deploys.before_defaults())
    await go_on_approved(shop, deploys.refunding(500))

    assert deploys.made == [(7, 500)]
    [started] = of(await shop.log(run_id), ToolCallStarted)
    assert started.arguments == SHOWN


async def test_the_log_tells_what_a_tool_was_called_with_and_what_the_model_said(
    shop: Workshop, deploys: Deploys
) -> None:
    run_id = await shop.driven([REFUND_7, saying("Done.")], deploys.refunding(500))

    events = await shop.log(run_id)
    [said], [started] = of(events, ToolCallRequested), of(events, ToolCallStarted)
    assert said.arguments == {"order": 7}
    assert (started.arguments, started.coerced) == (SHOWN, ())


async def test_a_call_that_is_made_again_gets_what_it_got_before(shop: Workshop) -> None:
    made: list[int] = []
    began = asyncio.Event()

    def refunding(default: int) -> Callable[..., Awaitable[str]]:
        @tool(effect="idempotent")
        async def refund(context: ToolContext, order: int, cents: int = default) -> str:
            """Refund an order; the first worker dies over it."""
            made.append(cents)
            began.set()
            if context.attempt == 1:
                await asyncio.Event().wait()
            return f"refunded {order}"

        return refund

    before, after = refunding(500), refunding(90_000)
    await shop.queue()
    claim = await shop.claim()
    driven = await shop.driving(claim, shop.agent(before), shop.means([REFUND_7], before))
    dying = asyncio.create_task(driven.run())
    await asyncio.wait_for(began.wait(), TIMEOUT_S)
    successor = await shop.take_over()
    dying.cancel()
    await asyncio.wait({dying})
    await shop.go_on([saying("Done.")], after, agent=shop.agent(after), claim=successor)

    assert made == [500, 500]


@pytest.mark.parametrize("order", [7, "7"])
async def test_a_fork_asks_before_a_call_that_was_made_already_with_the_default_of_then(
    shop: Workshop, deploys: Deploys, order: Json
) -> None:
    wanted = calling(("refund", {"order": order}))
    ask = await asked_by_a_fork(shop, wanted, deploys.refunding(500), deploys.refunding(90_000))

    assert ask.arguments == {"order": 7, "cents": 90_000}


async def test_a_fork_asks_likewise_where_the_default_is_within_a_value(shop: Workshop) -> None:
    def refunding(default: int) -> Callable[..., str]:
        class Line(BaseModel):
            """A line of an order."""

            sku: str
            cents: int = default

        @tool
        def refund(lines: list[Line]) -> str:
            """Refund lines of an order."""
            return f"refunded {len(lines)}"

        return refund

    wanted = calling(("refund", {"lines": [{"sku": "a"}]}))
    ask = await asked_by_a_fork(shop, wanted, refunding(500), refunding(90_000))

    assert ask.arguments == {"lines": [{"sku": "a", "cents": 90_000}]}


async def asked_by_a_fork(
    shop: Workshop, wanted: Script, before: Callable[..., str], after: Callable[..., str]
) -> AskApproval:
    """Return what a fork asks that repeats a call whose tool was deployed anew meanwhile."""
    run_id = await shop.driven([wanted, saying("Done.")], before)
    past = logged(await shop.store.read(log.read_all(TENANT, run_id)))
    [seq] = [each.seq for each in past if isinstance(each.event, ToolCallRequested)]

    begun = forking(past, run_id, seq)
    rules = rules_for(shop.agent(after), Registry([tool_of(after)]))
    queued = RunQueued("clerk", "agt_1", 1, "ses_2", begun.input)
    state = fold([queued, begun.forked, RunStarted(1, "w1")])
    [ask] = decide(state, rules, shop.clock())

    assert isinstance(ask, AskApproval)
    return ask
