"""What a run sees of its session: the runs that ended before it began, and nothing later."""

import pytest

from milepost.core.events import RunCancelled, RunResumed, SessionLoaded
from milepost.core.messages import Message
from milepost.core.model import ModelRequest
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.ending import end_run
from milepost.tools import tool
from tests.runtime.workshop import ASK, Workshop, of


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


def spoken(request: ModelRequest) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in request.messages]


async def in_session(shop: Workshop, said: str, session_id: str, answer: str) -> Scripted:
    """Run the session's next turn to its end."""
    model = Scripted([saying(answer)])
    await shop.queue(said, session_id=session_id)
    await shop.go_on(model)
    return model


async def test_a_run_sees_what_was_said_before_it(shop: Workshop) -> None:
    first = await shop.queue("My name is Ann.")
    await shop.go_on([saying("Hello, Ann.")])

    model = await in_session(shop, "Who am I?", first.session_id, "Ann.")

    assert spoken(model.requests[0]) == [
        ("user", "My name is Ann."),
        ("assistant", "Hello, Ann."),
        ("user", "Who am I?"),
    ]


async def test_earlier_calls_keep_their_results(shop: Workshop) -> None:
    first = await shop.queue("Look.")
    await shop.go_on([calling(("look", {})), saying("I see.")], look)

    model = await in_session(shop, "And?", first.session_id, "Nothing more.")

    call, result = model.requests[0].messages[1:3]
    assert [asked.id for asked in call.calls] == ["call_1_0"]
    assert result == Message("tool", "seen", call_id="call_1_0")


async def test_a_run_that_was_cancelled_in_a_step_leaves_no_call_without_a_result(
    shop: Workshop,
) -> None:
    first = await shop.queue("Look.")
    await shop.go_on([calling(("look", {}))], look, agent=shop.agent(look, policy=ASK))
    row = await shop.row(first.id)
    await end_run(shop.ports, row, lambda used: RunCancelled("ann", None, (), used))

    model = await in_session(shop, "Never mind.", first.session_id, "Well.")

    assert model.requests[0].messages[2] == Message("tool", "Not run.", call_id="call_1_0")


async def test_another_sessions_runs_are_not_seen(shop: Workshop) -> None:
    await shop.driven([saying("Hello, Ann.")], said="My name is Ann.")
    model = Scripted([saying("I do not know.")])

    await shop.driven(model, said="Who am I?")

    assert spoken(model.requests[0]) == [("user", "Who am I?")]


async def test_what_was_seen_is_pinned_in_the_log(shop: Workshop) -> None:
    first = await shop.queue("One.")
    await shop.go_on([saying("1.")])
    second = await shop.queue("Two.", session_id=first.session_id)
    await shop.go_on([saying("2.")])

    assert of(await shop.log(first.id), SessionLoaded) == []
    assert of(await shop.log(second.id), SessionLoaded) == [SessionLoaded(turns=1, messages=2)]


@pytest.mark.parametrize("turns", [0, 1])
async def test_what_ended_while_a_run_waited_is_not_seen_by_it(shop: Workshop, turns: int) -> None:
    """A run that is blocked behind this one may be cancelled, and so end before it."""
    agent = shop.agent(look, policy=ASK)
    session_id = None
    if turns:
        earlier = await shop.queue("Before.")
        session_id = earlier.session_id
        await shop.go_on([saying("Yes.")])
    run = await shop.queue("Look.", session_id=session_id)
    await shop.go_on([calling(("look", {}))], look, agent=agent)
    behind = await shop.queue("Forget it.", session_id=run.session_id)
    row = await shop.row(behind.id)
    await end_run(shop.ports, row, lambda used: RunCancelled("ann", None, (), used))

    [asked] = await shop.pending()
    await shop.decide(asked)
    model = Scripted([saying("I see.")])
    await shop.go_on(model, look, agent=agent)

    assert "Forget it." not in [content for _, content in spoken(model.requests[0])]
    log = await shop.log(run.id)
    assert len(of(log, RunResumed)) == 1
    assert len(of(log, SessionLoaded)) == turns
