"""Agents: names are one's own, versions never change, and nothing that a run pinned goes away."""

import pytest

from milepost.core.errors import ConflictError, NotFoundError
from milepost.store import agents
from milepost.store.agents import AgentFilter, AgentRow, VersionRow
from milepost.store.records import Page
from milepost.store.store import Store
from tests.store.making import TENANT, an_id

ONE, TWO = '{"model":"demo/one","metadata":{"team":"red"}}', '{"model":"demo/two"}'


async def an_agent(store: Store, name: str = "clerk", definition: str = ONE) -> AgentRow:
    return await store.write(
        agents.create(TENANT, name, definition, agent_id=an_id("agt"), now_ms=5)
    )


@pytest.mark.parametrize("by", ["id", "name"])
async def test_an_agent_is_found_by_id_and_by_name(store: Store, by: str) -> None:
    made = await an_agent(store)

    found = await store.read(agents.find(TENANT, getattr(made, by)))

    assert found == made == AgentRow(made.id, TENANT, "clerk", 1, ONE, 5, 5)


async def test_an_id_goes_before_a_name_that_looks_like_it(store: Store) -> None:
    first = await an_agent(store)
    await an_agent(store, name=first.id)

    assert await store.read(agents.find(TENANT, first.id)) == first


async def test_another_tenant_s_agent_looks_as_if_it_were_not_there(store: Store) -> None:
    made = await an_agent(store)

    for work in (
        agents.find("other", made.id),
        agents.find("other", "clerk"),
        agents.definition("other", made.id, 1),
        agents.revise("other", made.id, TWO, now_ms=6),
        agents.delete("other", made.id, now_ms=6),
    ):
        with pytest.raises(NotFoundError) as caught:
            await store.write(work)
        assert caught.value.code == "agent_not_found"
    assert await store.read(agents.search("other", AgentFilter(), Page(10))) == []
    assert await store.read(agents.versions("other", made.id, Page(10))) == []


async def test_a_name_is_given_once_in_a_tenant(store: Store) -> None:
    await an_agent(store)

    with pytest.raises(ConflictError) as caught:
        await an_agent(store)

    assert caught.value.code == "agent_exists"
    await store.write(agents.create("other", "clerk", ONE, agent_id=an_id("agt"), now_ms=5))


async def test_a_change_makes_the_next_version_and_leaves_the_last_as_it_was(store: Store) -> None:
    made = await an_agent(store)

    changed = await store.write(agents.revise(TENANT, made.id, TWO, now_ms=6))

    assert changed == AgentRow(made.id, TENANT, "clerk", 2, TWO, 5, 6)
    assert await store.read(agents.definition(TENANT, made.id, 1)) == ONE
    assert await store.read(agents.definition(TENANT, made.id, 2)) == TWO


async def test_a_change_of_a_version_that_is_no_longer_the_newest_is_refused(
    store: Store,
) -> None:
    made = await an_agent(store)
    await store.write(agents.revise(TENANT, made.id, TWO, now_ms=6, expected_version=1))

    for work in (
        agents.revise(TENANT, made.id, ONE, now_ms=7, expected_version=1),
        agents.delete(TENANT, made.id, now_ms=7, expected_version=1),
    ):
        with pytest.raises(ConflictError, match="at version 2, not 1") as caught:
            await store.write(work)
        assert caught.value.code == "precondition_failed"
    assert (await store.read(agents.find(TENANT, made.id))).definition == TWO


async def test_a_deleted_agent_is_gone_but_for_the_versions_that_runs_pinned(
    store: Store,
) -> None:
    made = await an_agent(store)

    await store.write(agents.delete(TENANT, made.id, now_ms=6, expected_version=1))

    for work in (
        agents.find(TENANT, made.id),
        agents.find(TENANT, "clerk"),
        agents.revise(TENANT, made.id, TWO, now_ms=7),
        agents.delete(TENANT, made.id, now_ms=7),
    ):
        with pytest.raises(NotFoundError):
            await store.write(work)
    assert await store.read(agents.search(TENANT, AgentFilter(), Page(10))) == []
    assert await store.read(agents.definition(TENANT, made.id, 1)) == ONE


async def test_a_deleted_agent_s_name_is_free_again(store: Store) -> None:
    first = await an_agent(store)
    await store.write(agents.delete(TENANT, first.id, now_ms=6))

    second = await an_agent(store)

    assert await store.read(agents.find(TENANT, "clerk")) == second


async def test_agents_are_listed_at_their_newest_version_in_pages(store: Store) -> None:
    made = [await an_agent(store, name) for name in ("a", "b", "c")]
    newest = await store.write(agents.revise(TENANT, made[2].id, TWO, now_ms=6))

    first = await store.read(agents.search(TENANT, AgentFilter(), Page(2)))
    rest = await store.read(agents.search(TENANT, AgentFilter(), Page(2, after=made[1].id)))

    assert first == [newest, made[1], made[0]]
    assert rest == [made[0]]


async def test_agents_are_found_by_the_metadata_of_their_newest_version(store: Store) -> None:
    red = await an_agent(store, "red")
    blue = await an_agent(store, "blue")
    await store.write(agents.revise(TENANT, blue.id, TWO, now_ms=6))

    found = await store.read(agents.search(TENANT, AgentFilter(metadata={"team": "red"}), Page(10)))

    assert found == [red]


async def test_agents_are_found_by_when_they_were_made(store: Store) -> None:
    made = await an_agent(store)

    for wanted, found in (
        (AgentFilter(created_after_ms=4, created_before_ms=6), [made]),
        (AgentFilter(created_after_ms=5), []),
        (AgentFilter(created_before_ms=5), []),
    ):
        assert await store.read(agents.search(TENANT, wanted, Page(10))) == found


async def test_versions_are_listed_in_pages(store: Store) -> None:
    made = await an_agent(store)
    for number in (2, 3, 11):
        await store.write(agents.revise(TENANT, made.id, f"{number}", now_ms=number))

    first = await store.read(agents.versions(TENANT, made.id, Page(2)))
    rest = await store.read(agents.versions(TENANT, made.id, Page(9, after="3")))

    assert first == [VersionRow(4, "11", 11), VersionRow(3, "3", 3), VersionRow(2, "2", 2)]
    assert rest == [VersionRow(2, "2", 2), VersionRow(1, ONE, 5)]


async def test_an_applied_agent_is_made_once_and_changed_only_where_it_differs(
    store: Store,
) -> None:
    async def apply(definition: str, now_ms: int) -> AgentRow:
        work = agents.apply(TENANT, "clerk", definition, agent_id=an_id("agt"), now_ms=now_ms)
        return await store.write(work)

    made = await apply(ONE, 5)
    same = await apply(ONE, 6)
    changed = await apply(TWO, 7)

    assert made == same
    assert changed == AgentRow(made.id, TENANT, "clerk", 2, TWO, 5, 7)
    assert await store.read(agents.find(TENANT, "clerk")) == changed


async def test_an_agent_that_has_no_such_version_says_so(store: Store) -> None:
    made = await an_agent(store)

    with pytest.raises(NotFoundError, match="has no version 2"):
        await store.read(agents.definition(TENANT, made.id, 2))
