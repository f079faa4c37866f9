"""What is said to a run that is under way: it reaches the model in order, and once."""

import asyncio
from typing import Any

import orjson
import pytest

from milepost.core.agents import Agent
from milepost.core.errors import ConflictError
from milepost.core.events import (
    ApprovalWithdrawn,
    GuardrailTriggered,
    InputMessage,
    RunCancelled,
    RunCompleted,
    RunResumed,
    SteerApplied,
    SteerReceived,
)
from milepost.core.guardrails import Guardrails, PiiRail, TopicsRail
from milepost.core.model import ModelRequest
from milepost.core.policy import Policy
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.ending import end_run
from milepost.runtime.steering import letter_of
from milepost.store.records import NewRun
from milepost.tools import tool
from tests.runtime.workshop import (
    ASK,
    TIMEOUT_S,
    Held,
    Turns,
    Workshop,
    in_background,
    of,
)


async def say(shop: Workshop, run_id: str, said: str, message_id: str = "ste_1") -> None:
    """Say something to a run as the API does."""
    await put(shop, run_id, said, message_id)
    shop.ring(run_id)


async def put(shop: Workshop, run_id: str, said: str, message_id: str) -> None:
    letter: dict[str, Any] = orjson.loads(letter_of(InputMessage("user", said), message_id, "ann"))
    await shop.put(run_id, "steer", letter, "steer")


def spoken(request: ModelRequest) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in request.messages]


async def steered(shop: Workshop, said: str, agent: Agent) -> tuple[str, Scripted]:
    """Say something while a model speaks; return the run, and the model that was asked after."""
    first, then = Held(rest=saying("Hello.")), Scripted([saying("Well then.")])
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), agent, shop.means(Turns(first, then)))
    async with in_background(driven):
        await asyncio.wait_for(first.reached.wait(), TIMEOUT_S)
        await say(shop, run.id, said)
        await shop.seen(run.id, "steer.received")
        first.go.set()
    return run.id, then


async def test_what_is_said_while_the_model_speaks_is_told_to_it_before_the_run_ends(
    shop: Workshop,
) -> None:
    run_id, model = await steered(shop, "In French.", shop.agent())

    assert spoken(model.requests[0]) == [
        ("user", "Go."),
        ("assistant", "Well, Hello."),
        ("user", "In French."),
    ]
    log = await shop.log(run_id)
    assert [event.type for event in log[-9:]] == [
        "steer.received", "message.completed", "step.completed", "steer.applied", "step.started",
        "message.started", "message.completed", "step.completed", "run.completed",
    ]  # fmt: skip
    assert of(log, SteerReceived) == [SteerReceived("ste_1", "In French.", by="ann")]
    assert of(log, RunCompleted)[0].output.text == "Well then."
    assert await shop.inbox(run_id) == []


async def test_what_is_said_while_a_tool_runs_stands_behind_its_result(shop: Workshop) -> None:
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        await say(shop, run.id, "Faster.")
        await say(shop, run.id, "And cheaper.", "ste_2")
        return "seen"

    run = await shop.queue()
    model = Scripted([calling(("look", {})), saying("Done.")])
    await shop.go_on(model, look)

    assert [each for each in spoken(model.requests[1]) if each[0] != "assistant"] == [
        ("user", "Go."),
        ("tool", "seen"),
        ("user", "Faster."),
        ("user", "And cheaper."),
    ]
    assert of(await shop.log(run.id), SteerApplied) == [SteerApplied(("ste_1", "ste_2"))]


async def test_what_is_said_to_a_run_that_has_not_begun_is_read_with_its_input(
    shop: Workshop,
) -> None:
    run = await shop.queue()
    await say(shop, run.id, "And hurry.")
    model = Scripted([saying("Yes.")])

    await shop.go_on(model)

    assert spoken(model.requests[0]) == [("user", "Go."), ("user", "And hurry.")]


async def test_a_run_that_waits_for_a_person_hears_it_and_waits_on(shop: Workshop) -> None:
    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = shop.agent(pay, policy=ASK)
    run = await shop.queue()
    await shop.go_on([calling(("pay", {}))], pay, agent=agent)

    await say(shop, run.id, "Hurry.")
    await shop.go_on([], pay, agent=agent)

    row, log = await shop.row(run.id), await shop.log(run.id)
    assert row.status == "waiting"
    assert [each.why for each in of(log, RunResumed)] == ["steer"]
    assert [event.type for event in log[-2:]] == ["steer.received", "run.waiting"]
    [approval] = await shop.pending()
    await shop.decide(approval)
    model = Scripted([saying("Paid.")])
    await shop.go_on(model, pay, agent=agent)
    assert spoken(model.requests[0])[-2:] == [("tool", "paid"), ("user", "Hurry.")]


async def test_it_is_heard_once_although_the_worker_that_read_it_was_taken_over(
    shop: Workshop,
) -> None:
    first = Held()
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), shop.agent(), shop.means(first))
    dies = asyncio.create_task(driven.run())
    await asyncio.wait_for(first.reached.wait(), TIMEOUT_S)
    await say(shop, run.id, "In French.")
    await shop.seen(run.id, "steer.received")
    dies.cancel()
    await asyncio.wait({dies})

    model = Scripted([saying("Bonjour.")])
    await shop.go_on(model, claim=await shop.take_over())

    assert spoken(model.requests[0]) == [("user", "Go."), ("user", "In French.")]
    log = await shop.log(run.id)
    assert len(of(log, SteerReceived)) == len(of(log, SteerApplied)) == 1


async def test_a_letter_that_is_read_again_is_one_event(shop: Workshop) -> None:
    """A database that was put back to an earlier moment has letters whose events it has not."""
    run = await shop.queue()
    await put(shop, run.id, "In French.", "ste_1")
    await put(shop, run.id, "In French.", "ste_1")

    await shop.go_on([saying("Bonjour.")])

    log = await shop.log(run.id)
    assert len(of(log, SteerReceived)) == 1
    assert of(log, SteerApplied) == [SteerApplied(("ste_1",))]


async def test_it_is_not_lost_where_it_comes_while_the_last_step_is_written(
    shop: Workshop,
) -> None:
    """The append that would end the run is refused: there is something that it has not read."""
    run = await shop.queue()
    claim = await shop.claim()
    model = Scripted([saying("Hello."), saying("Bonjour.")])
    driven = await shop.driving(claim, shop.agent(), shop.means(model))
    ending = driven._journal.append
    told = False

    async def append(*given: Any, **named: Any) -> None:
        nonlocal told
        if named.get("change") is not None and not told:
            told = True
            await put(shop, run.id, "In French.", "ste_1")
        await ending(*given, **named)

    driven._journal.append = append  # type: ignore[method-assign]
    await asyncio.wait_for(driven.run(), TIMEOUT_S)

    assert told
    assert len(model.requests) == 2
    assert spoken(model.requests[1])[-1] == ("user", "In French.")


# --- What comes too late, and who looks at it ---

GUARDED = Guardrails(input=(TopicsRail(words=("weather",)),))


async def test_the_guardrails_look_at_it_as_they_do_at_the_input(shop: Workshop) -> None:
    pii = Guardrails(input=(PiiRail(),))

    run_id, model = await steered(shop, "Write to ann@example.com.", shop.agent(guardrails=pii))

    assert "ann@example.com" not in str(spoken(model.requests[0]))
    log = await shop.log(run_id)
    [heard] = of(log, SteerReceived)
    assert heard.screened
    assert "ann@example.com" not in heard.content
    [seen] = of(log, GuardrailTriggered)
    assert (seen.place, seen.action) == ("input", "rewritten")


async def test_what_they_refuse_nobody_reads_and_the_run_goes_on(shop: Workshop) -> None:
    first = Held(rest=saying("Hello."))
    run = await shop.queue()
    agent = shop.agent(guardrails=GUARDED)
    driven = await shop.driving(await shop.claim(), agent, shop.means(first))
    async with in_background(driven):
        await asyncio.wait_for(first.reached.wait(), TIMEOUT_S)
        await say(shop, run.id, "What about the weather?")
        await shop.seen(run.id, "steer.received")
        first.go.set()

    log = await shop.log(run.id)
    [heard] = of(log, SteerReceived)
    assert heard.content == ""
    assert heard.blocked is not None
    assert "topics" in heard.blocked
    assert of(log, SteerApplied) == []
    assert of(log, RunCompleted)[0].output.text == "Well, Hello."


async def test_what_came_too_late_is_read_by_the_session_s_next_run(shop: Workshop) -> None:
    session_id = await ended_unread(shop, "In French.")
    model = Scripted([saying("Bonjour.")])

    await shop.queue("Go on.", session_id=session_id)
    await shop.go_on(model)

    assert spoken(model.requests[0]) == [
        ("user", "Go."),
        ("user", "In French."),
        ("user", "Go on."),
    ]


async def test_what_no_guardrail_has_seen_is_no_part_of_a_guarded_run_s_past(
    shop: Workshop,
) -> None:
    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    run = await shop.queue()
    await shop.go_on([calling(("pay", {}))], pay, agent=shop.agent(pay, policy=ASK))
    session_id = await ended_unread(shop, "What about the weather?", run)
    model = Scripted([saying("Hello.")])

    await shop.queue("Go on.", session_id=session_id)
    await shop.go_on(model, agent=shop.agent(guardrails=GUARDED))

    assert [content for _, content in spoken(model.requests[0])] == [
        "Go.",
        "",
        "Not run.",
        "Go on.",
    ]


async def ended_unread(shop: Workshop, said: str, run: NewRun | None = None) -> str:
    """Return the session of a run that was ended with a message in its inbox."""
    run = run or await shop.queue()
    await put(shop, run.id, said, "ste_1")
    row = await shop.row(run.id)
    await end_run(shop.ports, row, lambda used: RunCancelled("ann", None, (), used))
    assert [each.content for each in of(await shop.log(run.id), SteerReceived)] == [said]
    return run.session_id


async def test_a_question_that_falls_away_while_its_run_goes_on_is_nobody_s_to_answer(
    shop: Workshop,
) -> None:
    """The run was to end with another call's result, and was told something instead."""
    reached, go = asyncio.Event(), asyncio.Event()

    @tool(terminal=True)
    async def finish() -> str:
        """Finish."""
        reached.set()
        await go.wait()
        return "done"

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    policy = Policy(ask=("pay",), allow=("finish",))
    agent = shop.agent(finish, pay, policy=policy)
    model = [calling(("finish", {}), ("pay", {"amount": 5})), calling(("pay", {"amount": 6}))]
    run = await shop.queue()
    driven = await shop.driving(await shop.claim(), agent, shop.means(model, finish, pay))
    async with in_background(driven):
        await asyncio.wait_for(reached.wait(), TIMEOUT_S)
        [skipped] = await shop.pending()
        await say(shop, run.id, "Not yet.")
        await shop.seen(run.id, "steer.received")
        go.set()

    log = await shop.log(run.id)
    assert [event.approval_id for event in of(log, ApprovalWithdrawn)] == [skipped.id]
    [asked] = await shop.pending()
    assert asked.arguments == '{"amount":6}'
    with pytest.raises(ConflictError, match="fell away"):
        await shop.decide(skipped)
