"""Memories by their meaning: vectors that a model makes, and what lies nearest to a question.

Where the database knows vectors it compares them, and else this process does, those of what was
mentioned last, as many as it can in good time.
"""

import asyncio
from collections.abc import Sequence
from operator import mul

import orjson

from milepost.core.errors import ProviderError
from milepost.providers.embeddings import TEXTS_MAX, Embeddings, Vector
from milepost.runtime import notices
from milepost.runtime.embedding_bills import EmbeddingBills
from milepost.store import vectors
from milepost.store.memories import MemoryRow
from milepost.store.store import Store
from milepost.store.usage import Account
from milepost.store.vectors import NO_VECTOR, Bare, Embedded, Whose

EMBEDDINGS_SCAN_MAX = 1_000
QUERY_S_MAX = 2.0
QUERY_CHARS_MAX = 2_000
_DIGITS = 5
_REFUSED = frozenset({400, 413, 422})
"""How a provider answers that takes a text amiss."""


class Vectors:
    """Vectors of memories, over a store and a model."""

    def __init__(
        self, store: Store, embeddings: Embeddings, bills: EmbeddingBills | None = None
    ) -> None:
        self._store = store
        self._embeddings = embeddings
        self._bills = bills
        self._at_hand: bool | None = None

    async def nearest(
        self, account: Account, whose: Whose, query: str, limit: int
    ) -> Sequence[MemoryRow]:
        """Return what lies nearest to the question, the nearest first; the tokens are `account`'s.

        Nothing, if the model does not answer in good time: then words have to do.
        """
        asked = query.strip()[:QUERY_CHARS_MAX]
        if not (asked and whose):
            return ()
        try:
            async with asyncio.timeout(QUERY_S_MAX):
                made = await self._embeddings.embed([asked])
        except (ProviderError, TimeoutError) as error:
            notices.embeddings_failed(self._embeddings.model, error)
            return ()
        if self._bills is not None and made.tokens is not None:
            await self._bills.bill(self._embeddings.model, account, made.tokens)
        (vector,) = made.vectors
        return await self._nearest(account.tenant, whose, vector, limit) if vector else ()

    async def embed_some(self) -> int:
        """Give a vector to memories that have none; return how many were looked at.

        Raises `ProviderError`.
        """
        found = await self._store.read(vectors.bare(TEXTS_MAX))
        if not found:
            return 0
        try:
            await self._embed(found)
        except ProviderError as error:
            if error.status not in _REFUSED or len(found) == 1:
                raise
            await self._embed_each(found)
        return len(found)

    async def _embed(self, found: Sequence[Bare]) -> None:
        made = await self._embeddings.embed([each.told for each in found])
        embedded = [Embedded(of, _written(v)) for of, v in zip(found, made.vectors, strict=True)]
        model = self._embeddings.model
        keeping = vectors.embed(embedded, model)
        if self._bills is None or made.tokens is None:
            await self._store.write(keeping)
        else:
            await self._bills.bill_kept(model, made.tokens, found, keeping)

    async def _embed_each(self, found: Sequence[Bare]) -> None:
        """Give each its vector by itself: a text that the model refuses is to hold up no other.

        It gets none, and is not asked about again; if all are refused, it is not for their texts.
        """
        refused: list[Bare] = []
        for each in found:
            try:
                await self._embed([each])
            except ProviderError as error:
                if error.status not in _REFUSED:
                    raise
                refused.append(each)
                if len(refused) == len(found):
                    raise
        without = [Embedded(of, NO_VECTOR) for of in refused]
        await self._store.write(vectors.embed(without, self._embeddings.model))

    async def forget_others(self) -> None:
        """Let go of the vectors of another model, which cannot be compared with this one's."""
        while await self._store.write(vectors.forget_others(self._embeddings.model)):
            pass

    async def _nearest(
        self, tenant: str, whose: Whose, vector: Vector, limit: int
    ) -> Sequence[MemoryRow]:
        model = self._embeddings.model
        if self._at_hand is None:
            self._at_hand = await self._store.read(vectors.are_at_hand())
        if self._at_hand:
            work = vectors.nearest(tenant, whose, _written(vector), model, limit)
            return await self._store.read(work)
        known = await self._store.read(vectors.latest(tenant, whose, model, EMBEDDINGS_SCAN_MAX))
        numbers = await asyncio.to_thread(_scan, vector, known, limit)
        return await self._store.read(vectors.these(tenant, numbers)) if numbers else ()


def _scan(vector: Vector, known: Sequence[tuple[int, str]], limit: int) -> list[int]:
    """Return the numbers of the memories that lie nearest. All vectors are of length one.

    Those with another number of dimensions are passed over.
    """
    vectors = ((orjson.loads(written), number) for number, written in known)
    scored = [
        (sum(map(mul, vector, other)), number)
        for other, number in vectors
        if len(other) == len(vector)
    ]
    scored.sort(reverse=True)
    return [number for _, number in scored[:limit]]


def _written(vector: Vector) -> str:
    """Return the vector as JSON, which pgvector reads too, with all digits that matter."""
    return orjson.dumps([float(f"{value:.{_DIGITS}g}") for value in vector]).decode()
