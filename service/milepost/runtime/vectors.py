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
from milepost.store import vectors
from milepost.store.memories import MemoryRow
from milepost.store.store import Store
from milepost.store.vectors import Embedded, Whose

EMBEDDINGS_SCAN_MAX = 1_000
QUERY_S_MAX = 2.0
QUERY_CHARS_MAX = 2_000
_DIGITS = 5


class Vectors:
    """Vectors of memories, over a store and a model."""

    def __init__(self, store: Store, embeddings: Embeddings) -> None:
        self._store = store
        self._embeddings = embeddings
        self._at_hand: bool | None = None

    async def nearest(
        self, tenant: str, whose: Whose, query: str, limit: int
    ) -> Sequence[MemoryRow]:
        """Return what lies nearest to the question, the nearest first.

        Nothing, if the model does not answer in good time: then words have to do.
        """
        asked = query.strip()[:QUERY_CHARS_MAX]
        if not asked:
            return ()
        try:
            async with asyncio.timeout(QUERY_S_MAX):
                [vector] = await self._embeddings.embed([asked])
        except (ProviderError, TimeoutError) as error:
            notices.embeddings_failed(self._embeddings.model, error)
            return ()
        return await self._nearest(tenant, whose, vector, limit)

    async def embed_some(self) -> int:
        """Give a vector to memories that have none; return how many got one.

        Raises `ProviderError`.
        """
        found = await self._store.read(vectors.bare(TEXTS_MAX))
        if not found:
            return 0
        made = await self._embeddings.embed([each.told for each in found])
        embedded = [Embedded(of, _written(v)) for of, v in zip(found, made, strict=True)]
        await self._store.write(vectors.embed(embedded, self._embeddings.model))
        return len(found)

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
    """Return the numbers of the memories that lie nearest. All vectors are of length one."""
    scored = [(_likeness(vector, orjson.loads(written)), number) for number, written in known]
    scored.sort(reverse=True)
    return [number for _, number in scored[:limit]]


def _likeness(one: Vector, other: Vector) -> float:
    return sum(map(mul, one, other)) if len(one) == len(other) else -1.0


def _written(vector: Vector) -> str:
    """Return the vector as JSON, which pgvector reads too, with all digits that matter."""
    return orjson.dumps([float(f"{value:.{_DIGITS}g}") for value in vector]).decode()
