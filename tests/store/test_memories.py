"""Memories: each thing once for each owner, found by its words, and forgotten in full."""

import asyncio
from dataclasses import replace

import pytest

from milepost.core.errors import ConflictError, NotFoundError
from milepost.core.memories import Finding, MemoryKind, Owner, sought
from milepost.store import memories
from milepost.store.address import Address, SqliteAddress
from milepost.store.memories import MemoryFilter, MemoryRow
from milepost.store.records import Page
from milepost.store.store import Store
from milepost.store.work import Work
from tests.store.making import NOW_MS, TENANT
from tests.store.making_memories import ANN, a_fact, a_memory, remembered

BEN = Owner("user", "ben")
MANY = 20


async def all_of(store: Store, wanted: MemoryFilter = MemoryFilter()) -> list[MemoryRow]:  # noqa: B008 - frozen
    return await store.read(memories.search(TENANT, wanted, Page(100, ascending=True)))


async def like(store: Store, *words: str, tenant: str = TENANT) -> list[str]:
    found = await store.read(memories.worded_like(tenant, MemoryFilter(), words, MANY))
    return [row.content or row.subject for row in found]


async def pruned(store: Store, kind: MemoryKind, most: int) -> int:
    def work() -> Work[int]:
        return len((yield memories.pruning(TENANT, ANN, kind, most)))

    return await store.write(work())


async def test_a_memory_is_found_as_it_was_kept(store: Store) -> None:
    finding = Finding("relation", "at work", "Ann", "knows", "Ben", {"since": "2020"})
    row = await remembered(store, finding, user="carl", run_id="run_1")

    assert await store.read(memories.find(TENANT, row.id)) == row
    assert row.finding == finding
    assert (row.run_id, row.session_id, row.place, row.user) == ("run_1", "ses_1", "1.0", "ann")
    assert (row.mentions, row.version, row.seen_ms) == (1, 1, NOW_MS)


async def test_the_same_said_again_in_other_letters_is_one_memory_mentioned_twice(
    store: Store,
) -> None:
    first = await remembered(store, a_fact("Ann likes green tea."))
    again = await remembered(store, a_fact("ann LIKES  green tea"), now_ms=NOW_MS + 5)

    assert again.id == first.id
    assert (again.mentions, again.seen_ms, again.created_ms) == (2, NOW_MS + 5, NOW_MS)
    assert [row.content for row in await all_of(store)] == ["ann LIKES  green tea"]


async def test_an_entity_that_is_only_named_again_keeps_what_was_said_of_it(store: Store) -> None:
    await remembered(store, Finding("entity", "a painter from Oslo", "Ann"))
    named = await remembered(store, Finding("entity", "", "ANN"))
    told = await remembered(store, Finding("entity", "a sculptor", "ann"))

    assert (named.content, named.subject, named.version) == ("a painter from Oslo", "Ann", 1)
    assert (told.content, told.version, told.mentions) == ("a sculptor", 2, 3)


async def test_what_is_told_anew_goes_with_who_has_told_it(store: Store) -> None:
    shared = Owner("tenant")
    await remembered(store, Finding("entity", "a painter", "Oda"), shared, user="ann")
    told = await remembered(store, Finding("entity", "a sculptor", "Oda"), shared, user="ben")

    assert (told.content, told.user) == ("a sculptor", "ben")


async def test_each_owner_has_memories_of_their_own(store: Store) -> None:
    mine = await remembered(store)
    others = [
        await remembered(store, owner=BEN),
        await remembered(store, owner=Owner("session", "ann")),
        await remembered(store, tenant="globex"),
    ]

    assert mine.id not in {row.id for row in others}
    assert all(row.mentions == 1 for row in others)


async def test_a_correction_stands_whatever_is_heard_later(store: Store) -> None:
    row = await remembered(store, a_fact("Ann lives in Oslo"))
    right = a_fact("Ann lives in Bergen")

    changed = await store.write(memories.change(row, right, now_ms=NOW_MS + 1, expected_version=1))
    heard = await remembered(store, a_fact("Ann lives in Oslo"), now_ms=NOW_MS + 2)

    assert (changed.origin, changed.version, changed.content) == ("client", 2, right.content)
    assert heard == replace(changed, mentions=2, seen_ms=NOW_MS + 2)


async def test_a_version_that_has_moved_is_neither_changed_nor_deleted(store: Store) -> None:
    row = await remembered(store)
    await store.write(memories.change(row, a_fact("x"), now_ms=1, expected_version=1))

    for work in (
        memories.change(row, a_fact("y"), now_ms=2, expected_version=1),
        memories.delete(TENANT, row.id, expected_version=1),
    ):
        with pytest.raises(ConflictError, match="at version 2, not 1") as caught:
            await store.write(work)
        assert caught.value.code == "precondition_failed"


async def test_memories_are_found_by_words_and_their_beginnings(store: Store) -> None:
    await remembered(store, a_fact("Ann likes green tea"))
    await remembered(store, Finding("entity", "sells teapots in Ærø", "Øyvind Å"))
    await remembered(store, a_fact("Nothing of the kind: it's 3.14 o'clock, ann@example.com"))

    assert await like(store, "green") == ["Ann likes green tea"]
    assert set(await like(store, "tea")) == {"Ann likes green tea", "sells teapots in Ærø"}
    assert await like(store, "øyvind") == ["sells teapots in Ærø"]
    assert await like(store, "ærø") == ["sells teapots in Ærø"]
    assert len(await like(store, "example")) == 1
    assert await like(store, "oyvind") == []
    assert await like(store, "or", "and", "not", "near") == [
        "Nothing of the kind: it's 3.14 o'clock, ann@example.com"
    ]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("ฉันชอบกาแฟ", "กาแฟ"),
        ("မနက်ဖြန်တွေ့မယ်", "တွေ့"),
        ("मीना दिल्ली में रहती है", "दिल्ली"),
        ("İzmir is by the sea", "izmir"),
        ("明日会いましょう", "会い"),
    ],
    ids=["Thai", "Burmese", "Hindi", "Turkish", "Japanese"],
)
async def test_words_are_found_in_any_script(store: Store, said: str, asked: str) -> None:
    await remembered(store, a_fact(said))

    assert await like(store, *sought(asked)) == [said]


async def test_names_that_differ_in_a_vowel_s_sign_are_two(store: Store) -> None:
    for name, said in (("मीना", "a painter"), ("मोना", "a doctor")):
        await remembered(store, Finding("entity", said, name))

    known = await store.read(memories.recent(TENANT, [ANN], {"entity": (MANY, 0)}))

    assert {row.content for row in known} == {"a painter", "a doctor"}


async def test_who_has_more_of_the_words_comes_first(store: Store) -> None:
    await remembered(store, a_fact("green is a colour"))
    await remembered(store, a_fact("green tea is a drink"))
    await remembered(store, a_fact("coffee is a drink"))

    assert (await like(store, "green", "tea"))[0] == "green tea is a drink"


async def test_what_was_changed_or_deleted_is_found_no_more_by_its_old_words(store: Store) -> None:
    changed, deleted = await remembered(store), await remembered(store, a_fact("green grass"))
    await store.write(memories.change(changed, a_fact("Ann drinks coffee"), now_ms=1))
    await store.write(memories.delete(TENANT, deleted.id))

    assert await like(store, "green") == []
    assert await like(store, "coffee") == ["Ann drinks coffee"]


async def test_another_tenant_s_memory_does_not_exist(store: Store) -> None:
    row = await remembered(store)
    theirs = replace(row, tenant="globex")

    for work in (
        memories.find("globex", row.id),
        memories.change(theirs, a_fact("x"), now_ms=1),
        memories.delete("globex", row.id),
    ):
        with pytest.raises(NotFoundError) as caught:
            await store.write(work)
        assert caught.value.code == "memory_not_found"
    assert await like(store, "green", tenant="globex") == []
    assert await store.read(memories.search("globex", MemoryFilter(), Page(MANY))) == []
    assert await store.read(memories.matching("globex", [ANN], ["green"], MANY)) == []
    assert await store.read(memories.recent("globex", [ANN], {"fact": (MANY, 0)})) == []
    assert await store.write(memories.delete_of_user("globex", "ann")) == 0


async def test_only_what_these_owners_have_is_recalled(store: Store) -> None:
    mine = await remembered(store)
    await remembered(store, owner=BEN)
    later = await remembered(store, a_fact("Ann has a green hat"), now_ms=NOW_MS + 1)

    found = await store.read(memories.matching(TENANT, [ANN], ["green"], MANY))
    recent = await store.read(memories.recent(TENANT, [ANN], {"fact": (MANY, 0), "log": (1, 0)}))
    new = await store.read(memories.recent(TENANT, [ANN], {"fact": (MANY, NOW_MS + 1)}))

    assert {row.id for row in found} == {mine.id, later.id}
    assert [row.id for row in recent] == [later.id, mine.id]
    assert [row.id for row in new] == [later.id]


@pytest.mark.parametrize("name", ["Ann", "ann ) OR words : (tea", 'ann"*', "ann\nben", "安娜", "*"])
async def test_whatever_an_owner_is_called_only_their_own_is_found(store: Store, name: str) -> None:
    owner = Owner("user", name)
    await remembered(store, a_fact("Ann likes green tea"))
    row = await remembered(store, a_fact("green walls"), owner)

    found = await store.read(memories.matching(TENANT, [owner], ["green", "tea"], MANY))

    assert [each.id for each in found] == [row.id]


async def test_what_was_not_mentioned_for_longest_is_forgotten_first(store: Store) -> None:
    for age, name in enumerate(["Ann", "Ben", "Carl", "Dora"]):
        await remembered(store, Finding("entity", "", name), now_ms=NOW_MS + age)
    await remembered(store, Finding("entity", "", "ann"), now_ms=NOW_MS + 9)
    await remembered(store, a_fact(), now_ms=1)

    assert await pruned(store, "entity", 2) == 2

    kept = [row.subject or row.content for row in await all_of(store)]
    assert sorted(kept) == ["Ann likes green tea", "Dora", "ann"]


async def test_nobody_else_s_memories_are_pruned(store: Store) -> None:
    for age, name in enumerate(["Ann", "Ben"]):
        await remembered(store, Finding("entity", "", name), now_ms=NOW_MS + age)
    theirs = await remembered(store, Finding("entity", "", "Carl"), tenant="globex", now_ms=1)
    bens = await remembered(store, Finding("entity", "", "Dora"), BEN, now_ms=1)

    assert await pruned(store, "entity", 1) == 1

    assert [row.subject for row in await all_of(store)] == ["Ben", "Dora"]
    for row in (theirs, bens):
        assert await store.read(memories.find(row.tenant, row.id)) == row


async def test_what_a_client_has_written_is_never_pruned(store: Store) -> None:
    await remembered(store, Finding("entity", "", "Ann"), origin="client", now_ms=1)
    await remembered(store, Finding("entity", "", "Ben"))

    assert await pruned(store, "entity", 1) == 0
    assert await pruned(store, "entity", 0) == 1
    assert [row.subject for row in await all_of(store)] == ["Ann"]


async def test_two_that_learn_the_same_at_once_keep_it_once(store: Store) -> None:
    batch = [a_memory() for _ in range(8)]

    await asyncio.gather(*(store.write(memories.keep(each)) for each in batch))

    [row] = await all_of(store)
    assert row.mentions == 8


async def test_keys_tell_what_is_known_but_for_what_a_client_has_written(store: Store) -> None:
    await remembered(store, Finding("entity", "", "Ann  Å."))
    await remembered(store, Finding("entity", "", "Ben"), origin="client")
    await remembered(store, owner=BEN)

    assert await store.read(memories.keys(TENANT, ANN, MANY)) == [("entity", "ann å")]


async def test_all_that_is_known_about_a_user_can_be_forgotten(store: Store) -> None:
    shared = Owner("tenant")
    await remembered(store)
    await remembered(store, a_fact("said by ann"), shared, user="ann")
    other = await remembered(store, a_fact("said by ben"), shared, user="ben")

    assert await store.write(memories.delete_of_user(TENANT, "ann")) == 2
    assert await all_of(store) == [other]


async def test_what_was_forgotten_is_nowhere_in_the_file(store: Store, address: Address) -> None:
    if not isinstance(address, SqliteAddress):
        pytest.skip("Postgres takes it out when it vacuums")
    for number in range(50):
        await remembered(store, a_fact(f"filler {number} zyxwvut{number}"))
    await remembered(store, a_fact("the marker is qwertzuiop"))

    await store.write(memories.delete_of_user(TENANT, "ann"))
    await store.engine.close()

    assert b"qwertzuiop" not in address.path.read_bytes()
    assert b"zyxwvut" not in address.path.read_bytes()
