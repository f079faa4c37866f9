"""The scribe: each run that is over is read once, and what was learned of it is kept once."""

import asyncio
from collections.abc import Generator
from dataclasses import replace
from types import GeneratorType
from typing import Any, TypeVar

import orjson
import pytest
from sqlalchemy import insert, update

from milepost.core.agents import Agent, Extract, Memory, Remembered
from milepost.core.codec import encode
from milepost.core.errors import ProviderError
from milepost.core.events import (
    InputMessage,
    MemoryExtracted,
    Output,
    Parent,
    RunCompleted,
    RunQueued,
)
from milepost.core.usage import Usage
from milepost.live.hub import QUEUE_BELL
from milepost.providers.scripted import Script, saying
from milepost.runtime.definitions import Definitions, encode_definition
from milepost.runtime.memory_runs import CALL_ID, base_of
from milepost.runtime.recalling import StoredRecall
from milepost.runtime.stored_lessons import StoredLessons
from milepost.store import agents, erasures, memories, recollections, runs, schema, sessions
from milepost.store.audit import AuditRow
from milepost.store.erasures import NewErasure
from milepost.store.memories import MemoryFilter, MemoryRow
from milepost.store.recollections import RecollectionRow
from milepost.store.records import Change, Claim, Entry, IfActive, Lesson, NewRun, Page, RunFilter
from milepost.store.runs import RunRow
from milepost.store.store import Store
from milepost.store.work import Call, Statement, Work
from milepost.worker.scribe import GIVE_UP_MS, LANE, Scribe
from milepost.worker.sweeper import Sweeper
from tests.runtime.workshop import TENANT, TIMEOUT_S, Workshop, of
from tests.store.breaking import BreakingEngine
from tests.store.making import a_finish, a_run, held
from tests.store.making_memories import a_fact, a_memory
from tests.worker.running import running

T = TypeVar("T")

TAUGHT: Any = {
    "entities": [{"name": "Ann", "type": "person", "description": "a painter", "message": 0}],
    "relations": [{"subject": "Ann", "predicate": "lives in", "object": "Oslo", "message": 0}],
    "facts": [
        {"text": "Ann is allergic to nuts.", "lasting": True, "message": 0},
        {"text": "Ann has a cold.", "lasting": False, "message": 1},
    ],
}
LEARNER = Agent("agt_1", 1, "clerk", "test/model", memory=Memory(extract=Extract("test/reader")))


def teaching(answer: Any = None) -> Script:
    """Return the reply of a model that has read a conversation."""
    return saying(orjson.dumps(TAUGHT if answer is None else answer).decode())


class Steady:
    """A lease that has stood for long."""

    steady = True

    def pulse(self) -> None:
        """Go on."""


class Forgetful(BreakingEngine):
    """A line that breaks as soon as an agent's definition is asked for."""

    async def read(self, work: Work[T]) -> T:
        """Do work that changes nothing."""
        assert isinstance(work, GeneratorType)
        has_broken = self.absences > 0 or self.back.is_set()
        if work.gi_code.co_name == "definition" and not has_broken:
            self.absences = 2
        return await super().read(work)


def learner(**extract: Any) -> Agent:
    """Return an agent that learns like this."""
    return replace(LEARNER, memory=Memory(extract=Extract("test/reader", **extract)))


@pytest.fixture
def scribe(shop: Workshop) -> Scribe:
    return Scribe(shop.ports, queue_max=1_000)


async def known(shop: Workshop, agent: Agent) -> None:
    """Keep the agent, as its runs pin it."""
    work = agents.create(
        TENANT, agent.name, encode_definition(agent), agent_id=agent.id, now_ms=shop.clock()
    )
    await shop.store.write(work)


async def drive(shop: Workshop, *scripts: Script, claim: Claim | None = None) -> Claim:
    """Drive the run that is ready as a worker does, whichever it is."""
    claim = claim or await shop.claim()
    agent = await Definitions(shop.store).get(TENANT, claim.agent_id, claim.agent_version)
    lessons = StoredLessons(shop.store, shop.clock, shop.new_id)
    means = replace(shop.means(scripts), lessons=lessons)
    driven = await shop.driving(claim, agent, means)
    await asyncio.wait_for(driven.run(), TIMEOUT_S)
    return claim


async def answered(shop: Workshop, agent: Agent = LEARNER, **changes: Any) -> NewRun:
    """Let the agent answer once."""
    await known(shop, agent)
    run = await shop.queue("I am Ann. I live in Oslo.", agent=agent, **changes)
    await drive(shop, saying("Hello, Ann."))
    return run


async def all_of(shop: Workshop) -> list[MemoryRow]:
    return await shop.store.read(memories.search(TENANT, MemoryFilter(), Page(100, ascending=True)))


async def readers(shop: Workshop, run: NewRun) -> list[RunRow]:
    """Return the runs that read this one."""
    wanted = RunFilter(parent_run_id=run.id)
    return await shop.store.read(runs.search(TENANT, wanted, Page(10)))


async def waiting(store: Store) -> list[str]:
    return [row.run_id for row in await store.read(recollections.waiting(100))]


def garbled(run_id: str) -> Work[None]:
    """Make the run's log one that nobody can read."""
    table = schema.events
    yield Statement(update(table).where(table.c.run_id == run_id).values(data="{"))()


async def test_a_run_is_read_once_it_has_answered_and_what_it_teaches_is_kept(
    shop: Workshop, scribe: Scribe
) -> None:
    run = await answered(shop, user="ann")

    with shop.hub.bell(QUEUE_BELL) as queued:
        assert await scribe.tend() == 1
        assert queued.is_set()
    [reader] = await readers(shop, run)
    await drive(shop, teaching())

    kept = {(row.kind, row.content or row.subject) for row in await all_of(shop)}
    assert kept == {
        ("entity", "a painter"),
        ("relation", "Ann"),
        ("fact", "Ann is allergic to nuts."),
        ("log", "Ann has a cold."),
    }
    [told] = of(await shop.log(reader.id), MemoryExtracted)
    assert told == MemoryExtracted(run.id, 1, 1, 2)
    assert (await shop.types(reader.id))[-2:] == ["memory.extracted", "run.completed"]
    assert "memory.extracted" not in await shop.types(run.id)


async def test_what_tells_a_memory_run_how_to_learn_is_waited_for(
    shop: Workshop, scribe: Scribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await answered(shop)
    await scribe.tend()
    [reader] = await readers(shop, run)
    claim = await shop.claim()
    agent = await Definitions(shop.store).get(TENANT, claim.agent_id, claim.agent_version)
    state = (await shop.driving(claim, agent, shop.means([])))._journal.state
    line = Forgetful(shop.store.engine)
    monkeypatch.setattr(shop.store, "engine", line)
    lessons = StoredLessons(shop.store, shop.clock, shop.new_id)

    end = RunCompleted(Output("", TAUGHT), Usage())
    told, _ = await asyncio.wait_for(lessons.of(claim, agent, state, end), TIMEOUT_S)

    assert line.back.is_set()
    assert reader.id == claim.run_id
    assert told == MemoryExtracted(run.id, 1, 1, 2)


async def test_a_memory_says_which_run_and_which_message_said_so(
    shop: Workshop, scribe: Scribe
) -> None:
    run = await answered(shop, user="ann")
    await scribe.tend()
    await drive(shop, teaching())

    for row in await all_of(shop):
        assert (row.run_id, row.session_id, row.user) == (run.id, run.session_id, "ann")
        assert (row.scope, row.owner, row.origin) == ("session", run.session_id, "run")
        assert row.place == ("1.1" if row.kind == "log" else "1.0")


async def test_a_message_that_the_model_was_not_shown_has_said_nothing(
    shop: Workshop, scribe: Scribe
) -> None:
    await answered(shop)
    await scribe.tend()
    facts = [{"text": f"fact {at}", "lasting": True, "message": at} for at in (1, 2, 99)]
    await drive(shop, teaching({**TAUGHT, "entities": [], "relations": [], "facts": facts}))

    places = {row.content: row.place for row in await all_of(shop)}

    assert places == {"fact 1": "1.1", "fact 2": None, "fact 99": None}


async def test_the_run_that_reads_is_an_ordinary_one_of_an_agent_that_nobody_has_made(
    shop: Workshop, scribe: Scribe
) -> None:
    run = await answered(shop, user="ann")
    await scribe.tend()
    [reader] = await readers(shop, run)

    assert (reader.agent, reader.user, reader.lane) == ("memory:clerk", "ann", LANE)
    assert base_of(reader.agent_id) == "agt_1"
    assert reader.session_id != run.session_id
    [queued] = of(await shop.log(reader.id), RunQueued)
    assert queued.input[0].content == (
        "[0] user: I am Ann. I live in Oslo.\n[1] assistant: Hello, Ann."
    )
    claim = await drive(shop, teaching())
    used = await shop.used(claim.run_id)
    assert (used.input_tokens, used.model_calls) == (10, 1)


async def test_the_run_that_reads_another_s_child_counts_in_the_session_that_had_that_asked(
    shop: Workshop, scribe: Scribe
) -> None:
    above = await shop.queue("Go.")
    await shop.claim()
    parent = Parent(above.id, "call_1_0", 1, above.session_id)
    said = (InputMessage("user", "I am Ann."),)
    queued = RunQueued("clerk", "agt_1", 1, "ses_below", said, parent=parent)
    run = await answered(
        shop,
        session_id="ses_below",
        session_is_new=True,
        queued=Entry(queued.type, shop.clock(), encode(queued).decode()),
        parent_run_id=above.id,
        parent_call_id="call_1_0",
    )

    await scribe.tend()

    [reader] = await readers(shop, run)
    [begun] = of(await shop.log(reader.id), RunQueued)
    assert begun.parent == Parent(run.id, CALL_ID, 2, above.session_id)


async def test_nobody_stops_the_run_that_reads_because_the_other_is_over(
    shop: Workshop, scribe: Scribe
) -> None:
    run = await answered(shop)
    await scribe.tend()

    await Sweeper(shop.ports, Steady()).reunite()

    [reader] = await readers(shop, run)
    assert (reader.status, reader.cancel_ms) == ("queued", None)
    await drive(shop, teaching())
    assert await shop.inbox(run.id) == []


@pytest.mark.parametrize(("scope", "owner"), [("user", "ann"), ("agent", "agt_1"), ("tenant", "")])
async def test_what_is_learned_is_whose_the_agent_says(
    shop: Workshop, scribe: Scribe, scope: str, owner: str
) -> None:
    await answered(shop, learner(scope=scope), user="ann")
    await scribe.tend()
    await drive(shop, teaching())

    assert {(row.scope, row.owner, row.user) for row in await all_of(shop)} == {
        (scope, owner, "ann")
    }


async def test_without_a_user_nothing_is_learned_for_users_and_the_run_says_so(
    shop: Workshop, scribe: Scribe
) -> None:
    run = await answered(shop, learner(scope="user"))

    assert of(await shop.log(run.id), MemoryExtracted) == [
        MemoryExtracted(run.id, reason="no_user")
    ]
    assert (await shop.types(run.id))[-1] == "run.completed"
    assert await waiting(shop.store) == []
    assert await scribe.tend() == 0


async def test_a_run_of_an_agent_that_learns_nothing_leaves_nothing(shop: Workshop) -> None:
    await answered(shop, replace(LEARNER, memory=None))
    await answered(shop, replace(LEARNER, id="agt_2", name="other", memory=Memory()))

    assert await waiting(shop.store) == []


async def test_a_run_that_failed_or_read_another_is_not_read(
    shop: Workshop, scribe: Scribe
) -> None:
    await known(shop, LEARNER)
    await shop.queue(agent=LEARNER)
    await drive(shop, ProviderError("broken"))
    assert await waiting(shop.store) == []

    await shop.queue(agent=LEARNER)
    await drive(shop, saying("Hello."))
    await scribe.tend()
    await drive(shop, teaching())
    assert await waiting(shop.store) == []


async def test_what_fails_while_reading_concerns_nobody_but_memory(
    shop: Workshop, scribe: Scribe
) -> None:
    run = await answered(shop)
    before = await shop.log(run.id)
    await scribe.tend()
    await drive(shop, ProviderError("broken"))

    [reader] = await readers(shop, run)
    assert reader.status == "failed"
    assert (await shop.row(run.id)).status == "completed"
    assert await shop.log(run.id) == before
    assert await all_of(shop) == []


@pytest.mark.parametrize("answer", [{"entities": [], "relations": [], "facts": []}])
async def test_a_run_that_teaches_nothing_is_read_and_that_is_all(
    shop: Workshop, scribe: Scribe, answer: Any
) -> None:
    run = await answered(shop)
    await scribe.tend()
    await drive(shop, teaching(answer))

    [reader] = await readers(shop, run)
    assert of(await shop.log(reader.id), MemoryExtracted) == [MemoryExtracted(run.id)]
    assert await all_of(shop) == []


async def test_the_same_said_in_two_runs_is_one_memory(shop: Workshop, scribe: Scribe) -> None:
    for said in ("Ann", "ANN"):
        await answered(shop, replace(learner(scope="tenant"), id=f"agt_{said}", name=said))
        await scribe.tend()
        taught = {**TAUGHT, "entities": [{**TAUGHT["entities"][0], "name": said}]}
        await drive(shop, teaching(taught))

    entities = [row for row in await all_of(shop) if row.kind == "entity"]
    assert [(row.subject, row.mentions) for row in entities] == [("ANN", 2)]


async def test_who_was_not_mentioned_for_longest_makes_room(shop: Workshop, scribe: Scribe) -> None:
    agent = learner(scope="tenant", relations=False, facts=False)
    await known(shop, agent)
    claim = None
    for batch in range(3):
        await shop.queue("Hello.", agent=agent)
        await drive(shop, saying("Hello."))
        await scribe.tend()
        names = [f"Name {batch} {number}" for number in range(20)]
        taught = [{**TAUGHT["entities"][0], "name": name} for name in names]
        shop.clock.ahead_ms += 60_000
        claim = await drive(shop, teaching({"entities": taught}))

    assert claim is not None
    [told] = of(await shop.log(claim.run_id), MemoryExtracted)
    kept = [row.subject for row in await all_of(shop)]
    assert told.pruned == 10
    assert len(kept) == 50
    assert len([name for name in kept if name.startswith("Name 0")]) == 10


async def test_what_was_learned_is_told_to_the_next_run(shop: Workshop, scribe: Scribe) -> None:
    run = await answered(shop)
    await scribe.tend()
    await drive(shop, teaching())
    await shop.queue("Where do I live?", agent=LEARNER, session_id=run.session_id)
    claim = await shop.claim()

    recall = StoredRecall(shop.store, shop.clock)
    agent = replace(LEARNER, memory=Memory(recall=Remembered()))
    told = await recall.context(claim, agent, "Where do I live? In Oslo?")

    assert "- Ann (person): a painter" in told
    assert "- Ann — lives in — Oslo" in told


# --- Once ---


class CrashError(Exception):
    """The process dies here."""


def crashing(work: Work[T], after: int) -> Generator[Call | tuple[Call, ...], Any, T]:
    """Do the work's first statements, and die."""
    answer: Any = None
    try:
        for _ in range(after):
            answer = yield work.send(answer)
    except StopIteration as finished:
        raise CrashError from finished
    raise CrashError


@pytest.mark.parametrize("after", range(8))
async def test_a_crash_between_any_two_statements_leaves_the_run_to_be_read_once(
    store: Store, after: int
) -> None:
    claim = await held(store)
    change = Change("completed", outcome="{}", ended_ms=1, lesson=Lesson(is_to_be_read=True))
    await store.append(a_finish(claim, change=change))
    [row] = await store.read(recollections.waiting(10))
    reader = a_run(parent_run_id=row.run_id, tenant=row.tenant)

    with pytest.raises(CrashError):
        await store.write(crashing(recollections.begin(row, reader), after))
    begun = await asyncio.gather(
        *(store.write(recollections.begin(row, a_run(parent_run_id=row.run_id))) for _ in range(4))
    )

    assert sorted(begun) == [False, False, False, True]
    wanted = RunFilter(parent_run_id=row.run_id)
    [read] = await store.read(runs.search(row.tenant, wanted, Page(10)))
    assert read.status == "queued"
    assert await waiting(store) == []


async def test_what_is_learned_comes_with_the_end_or_not_at_all(store: Store) -> None:
    lost, kept = await held(store), await held(store)
    lesson = Lesson(memories=(a_memory(),), kept_max={"fact": 10})
    change = Change("completed", outcome="{}", ended_ms=1, lesson=lesson)
    stale = a_finish(lost, change=change, epoch=lost.epoch + 1)

    await asyncio.gather(
        store.append(a_finish(kept, change=change)), store.append(stale), return_exceptions=True
    )

    found = await store.read(memories.search(TENANT, MemoryFilter(), Page(10)))
    assert [row.mentions for row in found] == [1]


async def test_many_runs_that_end_at_once_and_learn_the_same_keep_it_once(store: Store) -> None:
    claims = [await held(store) for _ in range(6)]

    def change() -> Change:
        taught = (a_memory(), a_memory(a_fact("Ann is old")))
        lesson = Lesson(memories=taught, kept_max={"fact": 10})
        return Change("completed", outcome="{}", ended_ms=1, lesson=lesson)

    await asyncio.gather(*(store.append(a_finish(each, change=change())) for each in claims))

    found = await store.read(memories.search(TENANT, MemoryFilter(), Page(10)))
    assert [row.mentions for row in found] == [6, 6]


async def test_a_worker_that_dies_while_it_reads_is_followed_by_one_that_keeps_it_once(
    shop: Workshop, scribe: Scribe
) -> None:
    await answered(shop)
    await scribe.tend()
    await shop.claim()

    claim = await shop.take_over()
    await drive(shop, teaching(), claim=claim)

    assert all(row.mentions == 1 for row in await all_of(shop))
    assert of(await shop.log(claim.run_id), RunCompleted)


async def test_two_scribes_have_a_run_read_once(shop: Workshop) -> None:
    run = await answered(shop)

    await asyncio.gather(*(Scribe(shop.ports, queue_max=1_000).tend() for _ in range(5)))

    assert len(await readers(shop, run)) == 1


async def test_the_bell_wakes_the_scribe(shop: Workshop) -> None:
    scribe = Scribe(shop.ports, queue_max=1_000, poll_s=3_600)
    async with running(scribe):
        with shop.hub.bell(QUEUE_BELL) as queued:
            run = await answered(shop)
            while not await readers(shop, run):
                queued.clear()
                await queued.wait()


# --- What is not read ---


async def test_a_run_that_is_gone_is_forgotten(shop: Workshop, scribe: Scribe) -> None:
    run = await answered(shop)
    await shop.store.write(sessions.delete(TENANT, run.session_id))

    assert await waiting(shop.store) == []


async def a_run_below_one_that_goes_on(shop: Workshop) -> tuple[NewRun, NewRun]:
    """Return a run that is held, and one that it has started and that has answered."""
    above = await shop.queue("Go.")
    await shop.claim()
    return above, await answered(shop, parent_run_id=above.id, parent_call_id="call_1_0")


async def roll_back(shop: Workshop, run: NewRun) -> None:
    """Have another run take this one's place."""
    await shop.queue("Go.", session_id=run.session_id, if_active=IfActive("rollback", "ann"))


async def test_a_run_below_one_that_was_rolled_back_is_not_read(
    shop: Workshop, scribe: Scribe
) -> None:
    above, below = await a_run_below_one_that_goes_on(shop)
    [row] = await shop.store.read(recollections.waiting(10))
    await roll_back(shop, above)
    await shop.store.write(to_be_read(row))  # As one that ends just behind it writes.

    await scribe.tend()

    assert await readers(shop, below) == []
    assert await waiting(shop.store) == []


def to_be_read(row: RecollectionRow) -> Work[None]:
    values = {"run_id": row.run_id, "tenant": row.tenant, "created_ms": row.created_ms}
    yield Statement(insert(schema.recollections).values(**values))()


async def test_a_run_that_is_rolled_back_while_it_is_read_teaches_nothing(
    shop: Workshop, scribe: Scribe
) -> None:
    above, below = await a_run_below_one_that_goes_on(shop)
    await scribe.tend()
    [reader] = await readers(shop, below)
    lessons = StoredLessons(shop.store, shop.clock, shop.new_id)
    claim = await shop.claim()
    agent = await Definitions(shop.store).get(TENANT, claim.agent_id, 1)
    state = (await shop.driving(claim, agent, shop.means([])))._journal.state

    await roll_back(shop, above)

    end = RunCompleted(Output("", TAUGHT), Usage())
    told, lesson = await lessons.of(claim, agent, state, end)
    assert reader.id == claim.run_id
    assert told == MemoryExtracted(below.id, reason="rolled_back")
    assert lesson == Lesson()


async def test_a_run_that_is_erased_while_it_is_read_teaches_nothing(
    shop: Workshop, scribe: Scribe
) -> None:
    run = await answered(shop)
    await scribe.tend()
    [reader] = await readers(shop, run)
    lessons = StoredLessons(shop.store, shop.clock, shop.new_id)
    claim = await shop.claim()
    agent = await Definitions(shop.store).get(TENANT, claim.agent_id, 1)
    state = (await shop.driving(claim, agent, shop.means([])))._journal.state
    assert state.parent is not None
    gone = replace(state, parent=replace(state.parent, run_id="run_0"))

    end = RunCompleted(Output("", TAUGHT), Usage())
    told, lesson = await lessons.of(claim, agent, gone, end)

    assert told == MemoryExtracted("run_0", reason="run_gone")
    assert lesson == Lesson()
    assert reader.id == claim.run_id


async def test_a_run_of_a_user_who_is_being_erased_is_not_read(
    shop: Workshop, scribe: Scribe
) -> None:
    run = await answered(shop, user="ann")
    new = NewErasure("era_1", TENANT, "owner", "key", "ann", shop.clock())
    act = AuditRow("aud_1", TENANT, "key", "user.erasing", new.id, "{}", shop.clock())
    await shop.store.write(erasures.begin(new, act))

    assert await scribe.tend() == 1

    assert await readers(shop, run) == []
    assert await waiting(shop.store) == []


async def test_a_run_that_waited_for_a_day_is_not_read_any_more(
    shop: Workshop, scribe: Scribe
) -> None:
    run = await answered(shop)
    shop.clock.ahead_ms += GIVE_UP_MS + 60_000

    assert await scribe.tend() == 1

    assert await readers(shop, run) == []
    assert await waiting(shop.store) == []


async def test_a_run_whose_log_cannot_be_read_waits_for_a_day_and_no_longer(
    shop: Workshop, scribe: Scribe
) -> None:
    run = await answered(shop)
    await shop.store.write(garbled(run.id))

    assert await scribe.tend() == 0
    assert await waiting(shop.store) == [run.id]
    shop.clock.ahead_ms += GIVE_UP_MS + 60_000

    assert await scribe.tend() == 1
    assert await waiting(shop.store) == []


async def test_a_full_queue_is_left_to_those_who_wait_for_an_answer(shop: Workshop) -> None:
    run = await answered(shop)
    await shop.queue("Me first.")
    scribe = Scribe(shop.ports, queue_max=2)

    assert await scribe.tend() == 0

    assert await readers(shop, run) == []
    assert await waiting(shop.store) == [run.id]
