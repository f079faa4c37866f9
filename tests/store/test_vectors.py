"""Vectors in the store: who has none, and what lies nearest, as either side compares them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from milepost.core.errors import ProviderError
from milepost.core.memories import Owner
from milepost.core.usage import Usage
from milepost.providers.embeddings import Embedded
from milepost.providers.pricing import Pricing
from milepost.runtime import vectors as runtime_vectors
from milepost.runtime.embedding_bills import EmbeddingBills
from milepost.runtime.vectors import Vectors
from milepost.store import memories, usage, vectors
from milepost.store.address import Address, PostgresAddress
from milepost.store.memories import MemoryFilter, MemoryRow
from milepost.store.store import Store
from milepost.store.usage import Account, UsageFilter
from tests.store.conftest import opened, serving
from tests.store.making import NOW_MS, TENANT
from tests.store.making_memories import ANN, a_fact, remembered
from tests.stubs.embeddings_server import meaning

BEN = Owner("user", "ben")
ACCOUNT = Account(TENANT)


class Meanings:
    """A model of meanings in this process.

    `broken` ones fail, `more` makes vectors longer, texts with what one `refuses` get none, and
    what one `knows_nothing_of` an empty one.
    """

    def __init__(self, model: str = "stub/little") -> None:
        self.model = model
        self.broken = False
        self.asked = 0
        self.more: list[float] = []
        self.refuses: str | None = None
        self.knows_nothing_of: str | None = None

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return where the texts point."""
        self.asked += 1
        if self.broken:
            raise ProviderError("out of order")
        if self.refuses is not None and any(self.refuses in text for text in texts):
            raise ProviderError("refused", status=400)
        return Embedded([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Sequence[float]:
        return () if text == self.knows_nothing_of else [*meaning(text), *self.more]


@pytest.fixture(params=["sqlite", "postgres", "pgvector"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store on each database; one of them compares vectors itself."""
    kind = "postgres" if request.param == "pgvector" else request.param
    address: Address = request.getfixturevalue(f"{kind}_address")
    if request.param == "pgvector":
        assert isinstance(address, PostgresAddress)
        with psycopg.connect(address.url, autocommit=True) as connection:
            found = connection.execute(
                "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
            ).fetchone()
            if found is None:
                pytest.skip("this Postgres has no pgvector")
            connection.execute("CREATE EXTENSION vector")
    async with opened(address) as engine, serving(Store(engine)) as store:
        yield store


def said(rows: Sequence[MemoryRow]) -> list[str]:
    return [row.content for row in rows]


async def embedded(store: Store, model: Any = None) -> Vectors:
    """Return vectors, everything having got one."""
    found = Vectors(store, model or Meanings())
    while await found.embed_some():
        pass
    return found


async def test_what_means_the_same_is_found_without_a_word_in_common(store: Store) -> None:
    await remembered(store, a_fact("Ann has a cat"))
    await remembered(store, a_fact("Ann likes tea"))
    await remembered(store, a_fact("coffee for Ben"), BEN)

    found = await (await embedded(store)).nearest(ACCOUNT, [ANN], "which beverage?", 10)

    assert said(found) == ["Ann likes tea", "Ann has a cat"]


async def test_a_search_takes_filters_and_a_limit(store: Store) -> None:
    await remembered(store, a_fact("Ann likes tea"))
    await remembered(store, a_fact("coffee for Ben"), BEN)
    await remembered(store, a_fact("tea elsewhere"), tenant="globex")
    near = (await embedded(store)).nearest

    assert len(await near(ACCOUNT, MemoryFilter(), "beverage", 10)) == 2
    assert said(await near(ACCOUNT, MemoryFilter(user="ben"), "beverage", 10)) == ["coffee for Ben"]
    assert len(await near(ACCOUNT, MemoryFilter(), "beverage", 1)) == 1
    assert await near(ACCOUNT, MemoryFilter(), "  ", 1) == ()


async def test_among_nobodys_memories_nothing_is_found(store: Store) -> None:
    await remembered(store, a_fact("Ann likes tea"))
    found = await embedded(store)

    assert await found.nearest(ACCOUNT, [], "beverage", 10) in ([], ())
    assert await store.read(vectors.latest(TENANT, [], "stub/little", 10)) == []


async def test_a_vector_of_another_length_is_compared_with_nothing_and_breaks_nothing(
    store: Store,
) -> None:
    await remembered(store, a_fact("Ann likes tea"))
    await embedded(store)
    await remembered(store, a_fact("Ann has coffee"))
    model = Meanings()
    model.more = [0.0]
    longer = await embedded(store, model)

    assert said(await longer.nearest(ACCOUNT, [ANN], "beverage", 10)) == ["Ann has coffee"]


async def test_what_is_told_anew_gets_another_vector(store: Store) -> None:
    row = await remembered(store, a_fact("Ann likes tea"))
    found = await embedded(store)
    assert await store.read(vectors.bare(10)) == []

    await store.write(memories.change(row, a_fact("Ann has a dog"), now_ms=1))

    assert [each.told for each in await store.read(vectors.bare(10))] == ["Ann has a dog"]
    await found.embed_some()
    assert said(await found.nearest(ACCOUNT, [ANN], "pet", 10)) == ["Ann has a dog"]


async def test_a_vector_of_what_was_said_before_is_not_kept(store: Store) -> None:
    row = await remembered(store, a_fact("Ann likes tea"))
    [bare] = await store.read(vectors.bare(10))
    await store.write(memories.change(row, a_fact("Ann has a dog"), now_ms=1))

    await store.write(vectors.embed([vectors.Embedded(bare, "[1.0]")], "stub/little"))

    assert len(await store.read(vectors.bare(10))) == 1


async def test_vectors_of_another_model_are_not_compared_and_made_anew(store: Store) -> None:
    await remembered(store, a_fact("Ann likes tea"))
    await embedded(store)
    other = Vectors(store, Meanings("stub/large"))

    assert await other.nearest(ACCOUNT, [ANN], "beverage", 10) in ([], ())
    await other.forget_others()
    await other.embed_some()

    assert said(await other.nearest(ACCOUNT, [ANN], "beverage", 10)) == ["Ann likes tea"]


async def test_a_model_that_fails_finds_nothing_and_breaks_nothing(store: Store) -> None:
    await remembered(store, a_fact("Ann likes tea"))
    model = Meanings()
    found = await embedded(store, model)
    model.broken = True

    assert await found.nearest(ACCOUNT, [ANN], "beverage", 10) == ()


async def test_a_text_that_the_model_refuses_keeps_no_other_from_its_vector(store: Store) -> None:
    await remembered(store, a_fact("tea and poison"))
    await remembered(store, a_fact("Ann likes coffee"))
    model = Meanings()
    model.refuses = "poison"

    found = await embedded(store, model)

    assert said(await found.nearest(ACCOUNT, [ANN], "beverage", 10)) == ["Ann likes coffee"]
    assert await store.read(vectors.bare(10)) == []


async def test_a_model_that_refuses_everything_is_asked_again(store: Store) -> None:
    await remembered(store, a_fact("tea and poison"))
    model = Meanings()
    model.refuses = ""

    with pytest.raises(ProviderError, match="refused"):
        await Vectors(store, model).embed_some()

    assert len(await store.read(vectors.bare(10))) == 1


async def test_a_text_that_means_nothing_is_not_asked_about_again_and_near_to_nothing(
    store: Store,
) -> None:
    model = Meanings()
    model.knows_nothing_of = "🙂"
    await remembered(store, a_fact("🙂"))
    await remembered(store, a_fact("Ann likes tea"))

    found = await embedded(store, model)

    assert said(await found.nearest(ACCOUNT, [ANN], "beverage", 10)) == ["Ann likes tea"]
    assert await found.nearest(ACCOUNT, [ANN], "🙂", 10) == ()


async def test_a_plain_scan_looks_at_so_many_of_late(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if await store.read(vectors.are_at_hand()):
        pytest.skip("the database looks at all of them")
    monkeypatch.setattr(runtime_vectors, "EMBEDDINGS_SCAN_MAX", 2)
    for age, text in enumerate(["tea long ago", "a cat", "a dog"]):
        await remembered(store, a_fact(text), now_ms=age + 1)

    found = await (await embedded(store)).nearest(ACCOUNT, [ANN], "tea", 10)

    assert sorted(said(found)) == ["a cat", "a dog"]


class Uncounted:
    """Budgets of which there are none; they remember whom they were asked about."""

    def __init__(self) -> None:
        self.users: list[str | None] = []

    async def charge(self, account: Account, _: Usage) -> None:
        """Note for whom it is."""
        self.users.append(account.user)


async def test_who_is_forgotten_meanwhile_has_no_part_in_what_vectors_took(store: Store) -> None:
    await remembered(store, a_fact("Ann likes tea"))
    await remembered(store, a_fact("coffee for Ben"), BEN)

    class Forgetful(Meanings):
        async def embed(self, texts: Sequence[str]) -> Embedded:
            await store.write(memories.delete_of_user(TENANT, "ann"))
            return replace(await super().embed(texts), tokens=27)

    budgets = Uncounted()
    bills = EmbeddingBills(store, lambda: NOW_MS, Pricing(), budgets)
    await Vectors(store, Forgetful(), bills).embed_some()

    found = await store.read(usage.grouped(TENANT, ["user"], UsageFilter()))
    assert {group.key: group.usage.input_tokens for group in found} == {("ben",): 14, (None,): 13}
    assert sorted(budgets.users, key=str) == [None, "ben"]


async def test_no_vector_is_kept_whose_cost_could_not_be_written_down(store: Store) -> None:
    await remembered(store, a_fact("Ann likes tea"))
    broken = [ConnectionError("the database is away")]

    class Billed(Meanings):
        async def embed(self, texts: Sequence[str]) -> Embedded:
            return replace(await super().embed(texts), tokens=27)

    def clock() -> int:
        if broken:
            raise broken.pop()
        return NOW_MS

    vectors = Vectors(store, Billed(), EmbeddingBills(store, clock, Pricing(), Uncounted()))
    with pytest.raises(ConnectionError):
        await vectors.embed_some()

    assert await vectors.embed_some() == 1
    assert await vectors.embed_some() == 0
    found = await store.read(usage.grouped(TENANT, ["user"], UsageFilter()))
    assert [group.usage.input_tokens for group in found] == [27]
