"""What a run that is rolled back has taught is forgotten, unless others have said it too."""

from typing import Any

from milepost.core.memories import Finding, Owner
from milepost.store import memories, recollections, rollbacks, runs
from milepost.store.memories import MemoryFilter, NewMemory, Source
from milepost.store.records import Change, Claim, IfActive, Lesson, NewRun, Page
from milepost.store.store import Store
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_run,
    an_id,
    finished,
    held,
    letters,
    queued,
    status,
)

ANN = Owner("user", "ann")
TO_BE_READ = Change("completed", outcome="{}", ended_ms=NOW_MS, lesson=Lesson(is_to_be_read=True))


def said(run_id: str | None, content: str, **changes: Any) -> NewMemory:
    """Return what this run has kept."""
    source = Source("tool" if run_id else "client", None, run_id, "ses_1", None)
    return NewMemory(an_id("mem"), TENANT, ANN, Finding("fact", content), source, NOW_MS, **changes)


async def keep(store: Store, *wanted: NewMemory) -> None:
    for each in wanted:
        await store.write(memories.keep(each))


async def known(store: Store) -> set[str]:
    found = await store.read(memories.search(TENANT, MemoryFilter(), Page(100)))
    return {row.content for row in found}


async def rolled_back(store: Store, first: Claim | NewRun, then: str = "rollback") -> NewRun:
    """Have another run take the place of what is there."""
    wish = IfActive(then, "ann")  # type: ignore[arg-type]
    return await queued(
        store, a_run(session_id=first.session_id, session_is_new=False, if_active=wish)
    )


async def below(store: Store, above: Claim, **changes: Any) -> NewRun:
    """Return a run that this one has started."""
    return a_run(parent_run_id=above.run_id, parent_call_id="call_1_0", **changes)


async def test_what_only_a_run_that_is_rolled_back_has_said_is_forgotten(store: Store) -> None:
    before = await finished(store)
    run = await held(store, a_run(session_id=before.session_id, session_is_new=False))
    await keep(
        store,
        said(before.run_id, "Both have said it"),
        said(run.run_id, "Both have said it"),
        said(before.run_id, "The first one has said it"),
        said(run.run_id, "The second one has said it"),
        said(run.run_id, "A person has corrected it"),
        said(None, "A person has corrected it"),
    )

    await rolled_back(store, run)

    assert await known(store) == {
        "Both have said it",
        "The first one has said it",
        "A person has corrected it",
    }


async def test_what_a_run_that_is_interrupted_has_said_stays(store: Store) -> None:
    run = await held(store)
    await keep(store, said(run.run_id, "Said before"))

    await rolled_back(store, run, "interrupt")

    assert await known(store) == {"Said before"}


async def test_saying_the_same_again_makes_no_second_source_of_a_run(store: Store) -> None:
    run = await held(store)
    await keep(store, said(run.run_id, "Said twice"), said(run.run_id, "Said twice"))

    await rolled_back(store, run)

    assert await known(store) == set()


async def test_what_runs_below_have_said_goes_along_and_nobody_elses(store: Store) -> None:
    run, other = await held(store), await finished(store)
    child = await finished(store, await below(store, run))
    grandchild = await finished(store, await below(store, child))
    await keep(
        store,
        said(child.run_id, "The child has said it"),
        said(grandchild.run_id, "The grandchild has said it"),
        said(other.run_id, "Another one has said it"),
    )

    await rolled_back(store, run)

    assert await known(store) == {"Another one has said it"}


async def test_runs_below_are_not_read_any_more(store: Store) -> None:
    run = await held(store)
    await finished(store, await below(store, run), change=TO_BE_READ)
    other = await finished(store, change=TO_BE_READ)

    await rolled_back(store, run)

    waiting = await store.read(recollections.waiting(10))
    assert [row.run_id for row in waiting] == [other.run_id]


async def test_who_reads_a_run_below_is_told_to_stop(store: Store) -> None:
    run = await held(store)
    child = await finished(store, await below(store, run), change=TO_BE_READ)
    [row] = await store.read(recollections.waiting(10))
    reader = a_run(parent_run_id=child.run_id, parent_call_id="memory", user=None)
    await store.write(recollections.begin(row, reader))

    await rolled_back(store, run)

    assert [letter.kind for letter in await letters(store, reader.id)] == ["cancel"]
    assert await status(store, reader.id) == "queued"
    assert (await store.read(runs.find(TENANT, reader.id))).cancel_ms is not None


async def test_a_run_is_rolled_back_with_whoever_has_started_it(store: Store) -> None:
    run = await held(store)
    child = await finished(store, await below(store, run))
    grandchild = await finished(store, await below(store, child))
    before = await store.read(rollbacks.is_rolled_back(TENANT, grandchild.run_id))

    second = await rolled_back(store, run)

    assert not before
    for run_id in (run.run_id, child.run_id, grandchild.run_id):
        assert await store.read(rollbacks.is_rolled_back(TENANT, run_id))
        assert not await store.read(rollbacks.is_rolled_back("other", run_id))
    assert not await store.read(rollbacks.is_rolled_back(TENANT, second.id))
    assert not await store.read(rollbacks.is_rolled_back(TENANT, "run_0"))
