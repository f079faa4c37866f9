"""A call that may have acted: looked up, asked about or told of, and never simply made again."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from milepost.core.agents import Agent, StopRule
from milepost.core.canonical import call_digest
from milepost.core.errors import FencedError
from milepost.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    GuardrailTriggered,
    RunCancelled,
    RunCompleted,
    RunFailed,
    ToolCallChecked,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallStarted,
)
from milepost.core.guardrails import Guardrails, TopicsRail
from milepost.core.json import Json
from milepost.core.policy import Policy, Rule, Terms
from milepost.core.repetition import OnUnknown
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.definitions import encode_definition
from milepost.runtime.ending import end_run
from milepost.runtime.forking import forking
from milepost.runtime.logged import logged
from milepost.store import agents, grants, log
from milepost.store.approvals import ApprovalRow
from milepost.store.grants import GrantRow
from milepost.tools import Absent, Found, Invoker, ToolContext, Unknown, tool
from tests.runtime.workshop import ASK, TENANT, TIMEOUT_S, Workshop, in_background, of


class Till:
    """A tool that dies over its first attempt, whether it has acted by then or not."""

    def __init__(self, **options: Any) -> None:
        self.keys: list[str] = []
        self._began = asyncio.Event()

        @tool(**{"name": "pay", "effect": "once", **options})
        async def pay(amount: int, context: ToolContext) -> str:
            """Pay an amount."""
            self.keys.append(context.idempotency_key)
            self._began.set()
            if len(self.keys) == 1:
                await asyncio.Event().wait()
            return f"paid {amount}"

        self.pay = pay

    async def cut_off(
        self,
        shop: Workshop,
        agent: Agent | None = None,
        *,
        approve: bool = False,
        passed_on_to: str | None = None,
    ) -> str:
        """Have a call of it cut off, and return the run, which is queued for the next worker."""
        agent = agent or shop.agent(self.pay)
        run = await shop.queue()
        model: list[Any] = [calling(("pay", {"amount": 5}))]
        claim = await shop.claim()
        if approve:
            await shop.go_on(model, self.pay, agent=agent, claim=claim)
            [asked] = await shop.pending()
            if passed_on_to:
                said: dict[str, Json] = {
                    "approval_id": asked.id,
                    "call_id": asked.call_id,
                    "approvers": [passed_on_to],
                    "expires_at_ms": asked.expires_ms,
                }
                await shop.put(run.id, "approval_escalated", said, "approval")
            await shop.decide(asked)
            claim, model = await shop.claim(), []
        driven = await shop.driving(claim, agent, shop.means(model, self.pay))
        dying = asyncio.create_task(driven.run())
        await asyncio.wait_for(self._began.wait(), TIMEOUT_S)
        self.successor = await shop.take_over()
        dying.cancel()
        await asyncio.wait({dying})
        return run.id

    async def go_on(self, shop: Workshop, agent: Agent | None = None) -> Scripted:
        """Have the next worker go on with the run, and return what the model was asked."""
        model = Scripted([saying("Well.")])
        await shop.go_on(model, self.pay, agent=agent, claim=self.successor)
        return model


async def say(shop: Workshop, asked: ApprovalRow, decision: str, **said: Any) -> None:
    """Say what came of a call, as the API does."""
    letter = {
        "approval_id": asked.id,
        "call_id": asked.call_id,
        "decision": decision,
        "by": "ann",
        "comment": None,
        "arguments": None,
        "digest": None,
        **said,
    }
    await shop.deliver(asked.run_id, "approval", letter, "approval")


def told(model: Scripted) -> str:
    """Return what the model was told last."""
    return model.requests[0].messages[-1].content


# --- What can be looked up ---


async def test_a_call_that_is_found_to_have_acted_is_not_made_again(shop: Workshop) -> None:
    asked: list[Any] = []

    async def lookup(key: str, arguments: dict[str, Any], context: ToolContext) -> Found:
        asked.append((key, arguments, context.call_id, context.attempt, context.run_id))
        return Found("paid 5, as the bank says")

    till = Till(effect="checkable", lookup=lookup)
    run_id = await till.cut_off(shop)
    model = await till.go_on(shop)

    log = await shop.log(run_id)
    [key] = till.keys
    assert asked == [(key, {"amount": 5}, "call_1_0", 1, run_id)]
    assert told(model) == "paid 5, as the bank says"
    assert [each.then for each in of(log, ToolCallInterrupted)] == ["check"]
    assert [each.found for each in of(log, ToolCallChecked)] == ["found"]
    assert len(of(log, ToolCallCompleted)) == len(of(log, ToolCallStarted)) == 1


def absent_in_a_thread(key: str) -> Absent:
    return Absent()


async def test_a_call_that_has_not_acted_is_made_again_with_the_same_key(shop: Workshop) -> None:
    till = Till(effect="checkable", lookup=absent_in_a_thread)
    run_id = await till.cut_off(shop)
    model = await till.go_on(shop)

    log = await shop.log(run_id)
    assert told(model) == "paid 5"
    assert len(till.keys) == 2
    assert len({*till.keys}) == 1
    assert [each.attempt for each in of(log, ToolCallStarted)] == [1, 2]
    assert [each.found for each in of(log, ToolCallChecked)] == ["absent"]


async def test_a_lookup_waits_for_a_lease_that_is_only_late(shop: Workshop) -> None:
    till = Till(effect="checkable", lookup=absent_in_a_thread)
    run_id = await till.cut_off(shop)
    refusals = iter([FencedError("the lease may have lapsed; start nothing new")])

    def may_start() -> None:
        for refusal in refusals:
            raise refusal

    invoker = Invoker(shop.threads, may_start=may_start)
    means = shop.means([saying("Well.")], till.pay, invoker=invoker)
    driven = await shop.driving(till.successor, shop.agent(till.pay), means)

    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    log = await shop.log(run_id)
    assert [each.found for each in of(log, ToolCallChecked)] == ["absent"]
    assert log[-1].type == "run.completed"


async def raising(key: str) -> Found:
    raise OSError("the bank does not answer")


async def hanging(key: str) -> Found:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def unknowing(key: str) -> Unknown:
    return Unknown()


async def babbling(key: str) -> str:
    return "absent"


@pytest.mark.parametrize("lookup", [raising, hanging, unknowing, babbling])
async def test_a_call_of_which_the_lookup_learns_nothing_is_as_one_that_is_never_repeated(
    shop: Workshop, lookup: Callable[..., Any]
) -> None:
    till = Till(effect="checkable", lookup=lookup, timeout_s=0.5)
    run_id = await till.cut_off(shop)
    model = await till.go_on(shop)

    log = await shop.log(run_id)
    assert len(till.keys) == 1
    assert [each.found for each in of(log, ToolCallChecked)] == ["unknown"]
    assert [each.then for each in of(log, ToolCallInterrupted)] == ["check", "tell_model"]
    assert "(outcome_unknown)" in told(model)


async def test_what_a_lookup_finds_passes_the_rails_as_any_result(shop: Workshop) -> None:
    async def lookup(key: str) -> Found:
        return Found("paid 5 from the secret account")

    till = Till(effect="checkable", lookup=lookup)
    rail = TopicsRail(words=("secret",), action="rewrite")
    agent = shop.agent(till.pay, guardrails=Guardrails(tool_results=(rail,)))
    await till.cut_off(shop, agent)
    model = await till.go_on(shop, agent)

    assert told(model) == "paid 5 from the [removed] account"


async def test_a_worker_that_is_drained_over_a_lookup_leaves_it_to_the_next(shop: Workshop) -> None:
    looking = asyncio.Event()
    times = []

    async def lookup(key: str) -> Found:
        times.append(key)
        looking.set()
        if len(times) == 1:
            await asyncio.Event().wait()
        return Found("paid 5")

    till = Till(effect="checkable", lookup=lookup)
    run_id = await till.cut_off(shop)
    driven = await shop.driving(till.successor, shop.agent(till.pay), shop.means([], till.pay))
    async with in_background(driven):
        await asyncio.wait_for(looking.wait(), TIMEOUT_S)
        driven.drain()

    till.successor = await shop.claim()
    await till.go_on(shop)

    log = await shop.log(run_id)
    assert len(till.keys) == 1
    assert len({*times}) == 1
    assert [each.found for each in of(log, ToolCallChecked)] == ["found"]


async def test_a_run_that_is_cancelled_over_a_lookup_leaves_the_call_unknown(
    shop: Workshop,
) -> None:
    looking = asyncio.Event()

    async def lookup(key: str) -> Found:
        looking.set()
        await asyncio.Event().wait()
        return Found(key)

    till = Till(effect="checkable", lookup=lookup)
    run_id = await till.cut_off(shop)
    driven = await shop.driving(till.successor, shop.agent(till.pay), shop.means([], till.pay))
    async with in_background(driven):
        await asyncio.wait_for(looking.wait(), TIMEOUT_S)
        await shop.cancel(run_id)

    [failed] = of(await shop.log(run_id), ToolCallFailed)
    assert "it may have acted" in failed.error.message
    assert len(till.keys) == 1


# --- What nobody knows ---


async def asked_about(shop: Workshop, till: Till, agent: Agent | None = None) -> ApprovalRow:
    """Return the question that the next worker puts to people."""
    await shop.go_on([], till.pay, agent=agent, claim=till.successor)
    [asked] = await shop.pending()
    return asked


async def test_whoever_approved_a_call_is_asked_what_came_of_it(shop: Workshop) -> None:
    till = Till()
    agent = shop.agent(till.pay, policy=ASK)
    run_id = await till.cut_off(shop, agent, approve=True)

    asked = await asked_about(shop, till, agent)

    log = await shop.log(run_id)
    [_, outcome] = of(log, ApprovalRequested)
    assert (asked.kind, outcome.kind) == ("outcome", "outcome")
    assert asked.digest == call_digest("pay", {"amount": 5})
    assert "nobody knows whether it has acted" in asked.reason
    assert [each.then for each in of(log, ToolCallInterrupted)] == ["ask"]
    assert (await shop.row(run_id)).status == "waiting"


async def test_a_yes_for_the_session_leaves_to_whom_it_belonged_what_came_of_the_call(
    shop: Workshop,
) -> None:
    """Who is named has said that the call may be made, and not that anybody may speak of it."""
    till = Till()
    terms = Terms(approvers=("key:ann",))
    agent = shop.agent(till.pay, policy=Policy(ask=(Rule("pay", terms=terms),)))
    run_id = await till.cut_off(shop, agent, approve=True)
    digest = call_digest("pay", {"amount": 5})
    session_id = (await shop.row(run_id)).session_id
    far_ms = shop.clock() + 3_600_000
    await shop.store.write(
        grants.add(GrantRow("grt_1", TENANT, session_id, "pay", digest, "apr_1", "ann", 1, far_ms))
    )

    asked = await asked_about(shop, till, agent)

    assert asked.kind == "outcome"
    assert asked.terms_shown()["approvers"] == ["key:ann"]


async def test_a_rule_that_forbids_such_calls_by_now_leaves_it_to_whom_it_belonged(
    shop: Workshop,
) -> None:
    till = Till()
    asks = Policy(ask=(Rule("pay", terms=Terms(approvers=("key:ann",))),))
    await till.cut_off(shop, shop.agent(till.pay, policy=asks), approve=True)

    forbids = shop.agent(till.pay, policy=replace(asks, deny=("pay",)))
    asked = await asked_about(shop, till, forbids)

    assert asked.kind == "outcome"
    assert asked.terms_shown()["approvers"] == ["key:ann"]


async def test_whoever_was_asked_about_a_call_is_asked_what_came_of_it_once_no_rule_names_anybody(
    shop: Workshop,
) -> None:
    till = Till()
    asks = Policy(ask=(Rule("pay", terms=Terms(approvers=("key:ann",))),))
    await till.cut_off(shop, shop.agent(till.pay, policy=asks), approve=True)

    asked = await asked_about(shop, till, shop.agent(till.pay, policy=Policy(allow=("pay",))))

    assert asked.kind == "outcome"
    assert asked.terms_shown()["approvers"] == ["key:ann"]


async def test_whoever_a_question_was_passed_on_to_is_asked_what_came_of_its_call(
    shop: Workshop,
) -> None:
    """Those who were asked first have said nothing, and no rule names anybody any more."""
    till = Till()
    asks = Policy(ask=(Rule("pay", terms=Terms(approvers=("key:ann",))),))
    await till.cut_off(
        shop, shop.agent(till.pay, policy=asks), approve=True, passed_on_to="key:bob"
    )

    asked = await asked_about(shop, till, shop.agent(till.pay, policy=Policy(allow=("pay",))))

    assert asked.kind == "outcome"
    assert asked.terms_shown()["approvers"] == ["key:bob"]


async def test_whoever_was_asked_about_a_call_is_asked_what_came_of_it_where_its_tool_is_gone(
    shop: Workshop,
) -> None:
    till = Till()
    asks = shop.agent(
        till.pay, policy=Policy(ask=(Rule("pay", terms=Terms(approvers=("key:ann",))),))
    )
    await till.cut_off(shop, asks, approve=True)

    await shop.go_on(Scripted([]), agent=asks, claim=till.successor)

    [asked] = await shop.pending()
    assert asked.kind == "outcome"
    assert asked.terms_shown()["approvers"] == ["key:ann"]


async def test_a_person_says_that_it_happened_and_what_it_brought(shop: Workshop) -> None:
    till = Till(on_unknown="ask")
    run_id = await till.cut_off(shop)
    asked = await asked_about(shop, till)

    await say(shop, asked, "happened", result={"receipt": 7})
    model = Scripted([saying("Well.")])
    await shop.go_on(model, till.pay)

    log = await shop.log(run_id)
    assert len(till.keys) == 1
    assert told(model) == '{"receipt":7}'
    [decided] = of(log, ApprovalDecided)
    assert (decided.decision, decided.by) == ("happened", "ann")
    [completed] = of(log, ToolCallCompleted)
    assert completed.result == {"receipt": 7}


@pytest.mark.parametrize("terminal", [True, False])
async def test_what_a_person_says_that_a_call_has_brought_ends_the_run_where_its_result_would(
    shop: Workshop, terminal: bool
) -> None:
    till = Till(on_unknown="ask", terminal=terminal)
    agent = shop.agent(till.pay, stop_when=() if terminal else (StopRule("pay"),))
    run_id = await till.cut_off(shop, agent)
    asked = await asked_about(shop, till, agent)

    await say(shop, asked, "happened", result="paid 5")
    await shop.go_on([], till.pay, agent=agent)

    [ended] = of(await shop.log(run_id), RunCompleted)
    assert (ended.output.text, ended.finish_reason) == ("paid 5", "terminal")


async def test_a_fork_at_what_a_person_says_has_what_that_came_to(shop: Workshop) -> None:
    """The decision and the result are one thing: behind the first the second is there, too."""
    till = Till(on_unknown="ask", terminal=True)
    run_id = await till.cut_off(shop)
    asked = await asked_about(shop, till)
    await say(shop, asked, "happened", result="paid 5")
    await shop.go_on([], till.pay)

    past = logged(await shop.store.read(log.read_all(TENANT, run_id)))
    [seq] = [each.seq for each in past if isinstance(each.event, ApprovalDecided)]
    [paid] = forking(past, run_id, seq).forked.calls
    assert (paid.status, paid.content, paid.terminal) == ("done", "paid 5", True)


async def test_a_fork_within_what_the_rails_make_of_what_a_person_says_has_all_of_it(
    shop: Workshop,
) -> None:
    till = Till(on_unknown="ask", terminal=True)
    rail = TopicsRail(words=("secret",), action="rewrite")
    agent = shop.agent(till.pay, guardrails=Guardrails(tool_results=(rail,)))
    run_id = await till.cut_off(shop, agent)
    asked = await asked_about(shop, till, agent)
    await say(shop, asked, "happened", result="paid 5 from the secret account")
    await shop.go_on([], till.pay, agent=agent)

    past = logged(await shop.store.read(log.read_all(TENANT, run_id)))
    within = ApprovalDecided | GuardrailTriggered
    points = [each.seq for each in past if isinstance(each.event, within)]
    forks = [forking(past, run_id, seq).forked.calls for seq in points]
    told_of = [(paid.content, paid.terminal) for [paid] in forks]
    assert told_of == [("paid 5 from the [removed] account", True)] * 2


async def test_what_a_person_says_it_brought_passes_the_rails_as_any_result(
    shop: Workshop,
) -> None:
    till = Till(on_unknown="ask")
    rail = TopicsRail(words=("secret",), action="rewrite")
    agent = shop.agent(till.pay, guardrails=Guardrails(tool_results=(rail,)))
    run_id = await till.cut_off(shop, agent)
    asked = await asked_about(shop, till, agent)

    await say(shop, asked, "happened", result="paid 5 from the secret account")
    model = Scripted([saying("Well.")])
    await shop.go_on(model, till.pay, agent=agent)

    assert told(model) == "paid 5 from the [removed] account"
    [decided] = of(await shop.log(run_id), ApprovalDecided)
    assert decided.result == "paid 5 from the [removed] account"


async def test_what_a_person_says_it_brought_is_withheld_where_no_worker_has_read_it_at_the_end(
    shop: Workshop,
) -> None:
    till = Till(on_unknown="ask")
    rail = TopicsRail(words=("secret",), action="rewrite")
    agent = shop.agent(till.pay, guardrails=Guardrails(tool_results=(rail,)))
    work = agents.create(
        TENANT, agent.name, encode_definition(agent), agent_id=agent.id, now_ms=shop.clock()
    )
    await shop.store.write(work)
    run_id = await till.cut_off(shop, agent)
    asked = await asked_about(shop, till, agent)
    await say(shop, asked, "happened", result="paid 5 from the secret account")

    row = await shop.row(run_id)
    await end_run(shop.ports, row, lambda used: RunCancelled("ann", None, (), used))

    log = await shop.log(run_id)
    assert [each.decision for each in of(log, ApprovalDecided)] == ["happened"]
    brought = [each.result for each in log if isinstance(each, ApprovalDecided | ToolCallCompleted)]
    assert ["withheld" in f"{result}" for result in brought] == [True, True]


async def test_what_a_person_says_it_brought_is_its_result_where_no_worker_has_read_it_at_the_end(
    shop: Workshop,
) -> None:
    till = Till(on_unknown="ask")
    run_id = await till.cut_off(shop)
    asked = await asked_about(shop, till)
    await say(shop, asked, "happened", result="paid 5")

    row = await shop.row(run_id)
    await end_run(shop.ports, row, lambda used: RunCancelled("ann", None, (), used))

    log = await shop.log(run_id)
    assert [each.result for each in of(log, ToolCallCompleted)] == ["paid 5"]
    assert of(log, ToolCallFailed) == []
    assert [(each.stopped, each.work) for each in of(log, RunCancelled)] == [((), ())]


async def test_a_person_says_that_it_did_not_happen_and_it_is_made_once_more(
    shop: Workshop,
) -> None:
    till = Till(on_unknown="ask")
    run_id = await till.cut_off(shop)
    asked = await asked_about(shop, till)

    await say(shop, asked, "not_happened")
    model = Scripted([saying("Well.")])
    await shop.go_on(model, till.pay)

    assert len(till.keys) == 2
    assert len({*till.keys}) == 1
    assert told(model) == "paid 5"
    assert [each.attempt for each in of(await shop.log(run_id), ToolCallStarted)] == [1, 2]


async def test_a_run_that_asks_what_came_of_a_call_has_crashed_its_worker_all_the_same(
    shop: Workshop,
) -> None:
    """It has achieved nothing since: what ended one worker may end the next."""
    till = Till(on_unknown="ask")
    await till.cut_off(shop)
    asked = await asked_about(shop, till)

    await say(shop, asked, "not_happened")

    assert (await shop.claim()).crashes == 1


async def test_a_person_stops_the_run_whose_call_nobody_knows_of(shop: Workshop) -> None:
    till = Till(on_unknown="ask")
    run_id = await till.cut_off(shop)
    asked = await asked_about(shop, till)

    await say(shop, asked, "stop", comment="call the bank")
    await shop.go_on([], till.pay)

    log = await shop.log(run_id)
    assert len(till.keys) == 1
    assert isinstance(log[-1], RunFailed)
    assert log[-1].error.code == "outcome_unknown"
    assert "call the bank" in log[-1].error.message


async def test_silence_about_an_outcome_leaves_it_unknown(shop: Workshop) -> None:
    till = Till(on_unknown="ask")
    run_id = await till.cut_off(shop)
    asked = await asked_about(shop, till)

    expiry = {"approval_id": asked.id, "call_id": asked.call_id}
    await shop.deliver(run_id, "approval_expired", expiry, "approval")
    model = Scripted([saying("Well.")])
    await shop.go_on(model, till.pay)

    assert len(till.keys) == 1
    assert "(outcome_unknown)" in told(model)


async def test_a_tool_that_needs_approval_is_asked_about_even_where_a_rule_had_let_it_run(
    shop: Workshop,
) -> None:
    till = Till(requires_approval=True)
    agent = shop.agent(till.pay, policy=None)
    run_id = await till.cut_off(shop, agent, approve=True)

    asked = await asked_about(shop, till, agent)

    assert asked.kind == "outcome"
    assert asked.run_id == run_id


@pytest.mark.parametrize("on_unknown", ["tell_model", "fail"])
async def test_a_tool_says_itself_what_is_done_where_nobody_knows(
    shop: Workshop, on_unknown: OnUnknown
) -> None:
    till = Till(on_unknown=on_unknown)
    agent = shop.agent(till.pay, policy=ASK)
    run_id = await till.cut_off(shop, agent, approve=True)
    model = await till.go_on(shop, agent)

    log = await shop.log(run_id)
    assert len(till.keys) == 1
    assert [each.then for each in of(log, ToolCallInterrupted)] == [on_unknown]
    assert await shop.pending() == []
    if on_unknown == "fail":
        assert isinstance(log[-1], RunFailed)
        assert log[-1].error.code == "outcome_unknown"
    else:
        assert "(outcome_unknown)" in told(model)
        assert [each.error.code for each in of(log, ToolCallFailed)] == ["outcome_unknown"]
