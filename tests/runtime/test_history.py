"""What a run sees of its session: the runs that ended before it began, and nothing later."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

import pytest

from milepost.core.agents import Memory, Window
from milepost.core.events import RunCancelled, RunResumed, SessionLoaded
from milepost.core.messages import Message
from milepost.core.model import ModelRequest
from milepost.core.window import Place
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.ending import end_run
from milepost.runtime.history import History
from milepost.store import pins
from milepost.store.address import SqliteAddress
from milepost.store.store import Store
from milepost.store.work import Work
from milepost.tools import tool
from tests.benchmarks.sessions import repeat
from tests.runtime.workshop import ASK, TENANT, Workshop, of

T = TypeVar("T")


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
    assert of(await shop.log(second.id), SessionLoaded) == [
        SessionLoaded(turns=1, messages=2, kept_from="1.0")
    ]


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


async def test_a_run_of_an_earlier_version_is_shown_what_that_one_showed(shop: Workshop) -> None:
    """Its log does not say where the messages begin that it saw."""
    agent = shop.agent(look, policy=ASK)
    first = await shop.queue("Before.")
    await shop.go_on([saying("Yes.")])
    run = await shop.queue("Look.", session_id=first.session_id)
    await shop.go_on([calling(("look", {}))], look, agent=agent)
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as file:
        file.execute(
            "UPDATE events SET data = ? WHERE run_id = ? AND type = 'session.loaded'",
            ('{"turns":1,"messages":2}', run.id),
        )
    [asked] = await shop.pending()
    await shop.decide(asked)
    model = Scripted([saying("I see.")])

    await shop.go_on(model, look, agent=agent)

    assert spoken(model.requests[0])[:3] == [
        ("user", "Before."),
        ("assistant", "Yes."),
        ("user", "Look."),
    ]


async def test_a_run_that_goes_on_is_shown_all_that_it_was_shown_of_a_long_session(
    shop: Workshop,
) -> None:
    agent = replace(shop.agent(look, policy=ASK), memory=Memory(Window(tokens=1_000_000)))
    first = await shop.queue("Hm?")
    await shop.go_on([saying("Yes.")])
    repeat(SqliteAddress(shop.path), first.session_id, first.id, 1_100)
    await shop.queue("Look.", session_id=first.session_id)
    asking, going_on = Scripted([calling(("look", {}))]), Scripted([saying("I see.")])
    await shop.go_on(asking, look, agent=agent)

    [asked] = await shop.pending()
    await shop.decide(asked)
    await shop.go_on(going_on, look, agent=agent)

    shown, again = (spoken(model.requests[0]) for model in (asking, going_on))
    assert len(shown) > 1_000
    assert again[: len(shown)] == shown


class Counting:
    """A store that counts the rows which are read from it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0
        self.rows = 0

    async def read(self, work: Work[T]) -> T:
        """Do it, and count."""
        self.reads += 1
        return await self._store.read(self._counted(work))

    def _counted(self, work: Work[T]) -> Work[T]:
        asked = next(work)
        while True:
            found = yield asked
            self.rows += len(found)
            try:
                asked = work.send(found)
            except StopIteration as done:
                result: T = done.value
                return result


async def rows_read(shop: Workshop, turns: int) -> int:
    """Return how many rows a run reads that begins in a session of so many turns."""
    run = await shop.queue("Where is order 7?")
    await shop.go_on([saying("On its way.")])
    repeat(SqliteAddress(shop.path), run.session_id, run.id, turns)
    await shop.queue("And now?", session_id=run.session_id)
    counting = Counting(shop.store)
    shop.history = History(counting)  # type: ignore[arg-type]  # it only reads
    await shop.go_on([saying("Still on its way.")])
    return counting.rows


async def test_a_session_of_ten_thousand_messages_is_read_as_far_as_it_is_shown(
    shop: Workshop,
) -> None:
    assert await rows_read(shop, 5_000) == await rows_read(shop, 500)


async def test_a_run_of_a_new_session_reads_nothing_and_a_later_one_twice(shop: Workshop) -> None:
    counting = Counting(shop.store)
    shop.history = History(counting)  # type: ignore[arg-type]  # it only reads
    first = await shop.queue("One.")
    await shop.go_on([saying("1.")])
    assert counting.reads == 0

    await in_session(shop, "Two.", first.session_id, "2.")
    assert counting.reads == 2

    await in_session(shop, "Three.", first.session_id, "3.")
    assert counting.reads == 4


async def test_what_is_kept_of_sessions_is_bounded_by_its_size(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a thousand long transcripts would stay in memory, as a thousand short ones do."""
    monkeypatch.setattr("milepost.runtime.history.CACHED_TOKENS_MAX", 1_000)
    history = History(shop.store)
    long = await shop.queue("x" * 8_000)
    await shop.go_on([saying("Yes.")])
    short = await shop.queue("x")
    await shop.go_on([saying("Yes.")])

    first = await history.of([long.id, short.id])
    again = await history.of([long.id, short.id])

    assert first == again
    assert first[long.id] is not again[long.id]
    assert first[short.id] is again[short.id]


async def test_a_run_whose_log_is_gone_is_passed_over(shop: Workshop) -> None:
    """Retention keeps the row of a run longer than its log."""
    first = await shop.queue("My name is Ann.")
    await shop.go_on([saying("Hello, Ann.")])
    await in_session(shop, "I am 30.", first.session_id, "Good.")
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as file:
        file.execute("DELETE FROM events WHERE run_id = ?", (first.id,))
    shop.history = History(shop.store)

    model = await in_session(shop, "Who am I?", first.session_id, "You are 30.")

    assert spoken(model.requests[0]) == [
        ("user", "I am 30."),
        ("assistant", "Good."),
        ("user", "Who am I?"),
    ]


async def test_what_was_read_of_a_log_is_not_kept_for_long_behind_its_end(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.runtime.history.TRUSTED_S", 0)
    first = await shop.queue("My name is Ann.")
    await shop.go_on([saying("Hello, Ann.")])
    second = await shop.queue("I am 30.", session_id=first.session_id)
    await shop.go_on([saying("Good.")])
    history = History(shop.store)
    before = await history.of([first.id, second.id])
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as file:
        file.execute("DELETE FROM events WHERE run_id = ?", (first.id,))

    after = await history.of([first.id, second.id])

    assert len(before[first.id]) == 2
    assert after[first.id] == ()
    assert after[second.id] is before[second.id]


async def test_what_was_rolled_back_is_not_seen(shop: Workshop) -> None:
    first = await shop.queue("My name is Ann.")
    await shop.go_on([saying("Hello, Ann.")])
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as file:
        file.execute("UPDATE runs SET rolled_back_by = 'run_2' WHERE id = ?", (first.id,))

    model = await in_session(shop, "Who am I?", first.session_id, "I do not know.")

    assert spoken(model.requests[0]) == [("user", "Who am I?")]


async def forked(shop: Workshop, session_id: str, turn: int, index: int | None) -> str:
    """Return a session that shares what was said up to there."""
    fork_id = shop.new_id("ses")
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as file:
        file.execute(
            "INSERT INTO sessions (id, tenant, turns, forked_from, forked_turn, forked_index)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (fork_id, TENANT, turn, session_id, turn, index),
        )
    return fork_id


async def test_a_fork_goes_on_from_the_past_that_it_shares(shop: Workshop) -> None:
    first = await shop.queue("One.")
    await shop.go_on([saying("1.")])
    for said in ("Two.", "Three."):
        await in_session(shop, said, first.session_id, said)
    fork = await forked(shop, first.session_id, 2, 0)
    await in_session(shop, "Other.", fork, "Another.")
    again = await forked(shop, fork, 3, None)

    model = await in_session(shop, "And?", again, "So.")

    assert [said for _, said in spoken(model.requests[0])] == [
        "One.", "1.", "Two.", "Other.", "Another.", "And?",
    ]  # fmt: skip
    other = await in_session(shop, "Four.", first.session_id, "4.")
    assert "Other." not in [said for _, said in spoken(other.requests[0])]


async def test_a_fork_within_a_step_leaves_no_call_without_a_result(shop: Workshop) -> None:
    first = await shop.queue("Look.")
    await shop.go_on([calling(("look", {})), saying("I see.")], look)
    fork = await forked(shop, first.session_id, 1, 1)

    model = await in_session(shop, "And?", fork, "So.")

    assert model.requests[0].messages[2] == Message("tool", "Not run.", call_id="call_1_0")
    assert [message.role for message in model.requests[0].messages] == [
        "user", "assistant", "tool", "user",
    ]  # fmt: skip


async def test_a_fork_may_begin_in_what_its_parent_shares_itself(shop: Workshop) -> None:
    first = await shop.queue("One.")
    await shop.go_on([saying("1.")])
    await in_session(shop, "Two.", first.session_id, "2.")
    fork = await forked(shop, first.session_id, 2, 1)
    await in_session(shop, "Three.", fork, "3.")

    within = await in_session(shop, "And?", await forked(shop, fork, 2, 0), "So.")
    before = await in_session(shop, "And?", await forked(shop, fork, 1, 0), "So.")

    assert [said for _, said in spoken(within.requests[0])] == ["One.", "1.", "Two.", "And?"]
    assert [said for _, said in spoken(before.requests[0])] == ["One.", "And?"]


async def test_a_fork_is_told_what_fell_out_of_sight_before_it(shop: Workshop) -> None:
    agent = replace(shop.agent(), memory=Memory(Window(messages=4)))
    first = await shop.queue("One.")
    await shop.go_on([saying("1.")], agent=agent)
    for said in ("Two.", "Three.", "Four."):
        await shop.queue(said, session_id=first.session_id)
        await shop.go_on([saying(said)], agent=agent)

    model = Scripted([saying("So.")])
    await shop.queue("And?", session_id=await forked(shop, first.session_id, 3, None))
    await shop.go_on(model, agent=agent)
    early = Scripted([saying("So.")])
    await shop.queue("And?", session_id=await forked(shop, first.session_id, 1, None))
    await shop.go_on(early, agent=agent)

    assert [said for _, said in spoken(model.requests[0])] == ["Three.", "Three.", "And?"]
    assert [said for _, said in spoken(early.requests[0])] == ["One.", "1.", "And?"]


async def test_what_no_guardrail_has_seen_is_not_shown_for_being_pinned(shop: Workshop) -> None:
    unseen = await shop.queue("Unseen.")
    row = await shop.row(unseen.id)
    await end_run(shop.ports, row, lambda used: RunCancelled("ann", None, (), used))
    for said in ("Seen.", "Last."):
        await in_session(shop, said, unseen.session_id, "Yes.")
    for turn in (1, 2):
        await shop.store.write(pins.put(TENANT, unseen.session_id, Place(turn, 0), 0))
    await shop.queue("Next.", session_id=unseen.session_id)
    claim = await shop.claim()
    narrow = Memory(window=Window(messages=2))

    seen = await shop.history.before(claim, narrow, "sum_1")
    guarded = await shop.history.before(claim, narrow, "sum_1", begun_only=True)

    assert [each.content for each in seen.earlier.pinned] == ["Unseen.", "Seen."]
    assert [each.content for each in guarded.earlier.pinned] == ["Seen."]
    assert guarded.loaded is not None
    assert guarded.loaded.pins == ("2.0",)
