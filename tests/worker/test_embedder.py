"""The embedder: memories get their vectors, whoever else is at it."""

import asyncio
from collections.abc import Sequence

from milepost.providers.embeddings import Embedded
from milepost.runtime.vectors import Vectors
from milepost.store.store import Store
from milepost.worker.embedder import Embedder
from tests.store.breaking import BreakingEngine
from tests.store.making_memories import a_fact, remembered
from tests.worker.running import running


class Rival:
    """Another process, of before, whose model is another one."""

    model = "stub/former"

    async def embed(self, texts: Sequence[str]) -> Embedded:
        return Embedded([[1.0, 0.0] for _ in texts])


class Rivalled:
    """A model; while it is asked first, a process of before gives a vector to what comes in.

    `was_asked_again` is set when it is asked for that, too. `line`, if any, is broken meanwhile.
    """

    model = "stub/new"

    def __init__(self, store: Store, line: BreakingEngine | None = None) -> None:
        self.asked: list[Sequence[str]] = []
        self.was_asked_again = asyncio.Event()
        self._store = store
        self._line = line

    async def embed(self, texts: Sequence[str]) -> Embedded:
        self.asked.append(texts)
        if len(self.asked) == 1:
            await remembered(self._store, a_fact("Ann drinks coffee"))
            await Vectors(self._store, Rival()).embed_some()
            if self._line is not None:
                self._line.absences = 2
        elif "Ann drinks coffee" in texts:
            self.was_asked_again.set()
        return Embedded([[0.0, 1.0] for _ in texts])


async def test_what_a_process_of_before_has_made_during_a_rollout_is_made_anew(
    store: Store,
) -> None:
    model = Rivalled(store)
    await remembered(store, a_fact("Ann drinks tea"))
    embedder = Embedder(Vectors(store, model), model.model, poll_s=0, again_s=0)

    tending = asyncio.create_task(embedder.run())
    try:
        await asyncio.wait_for(model.was_asked_again.wait(), 20)
    finally:
        tending.cancel()
        await asyncio.wait([tending])

    assert model.asked == [["Ann drinks tea"], ["Ann drinks coffee"]]


async def test_an_outage_at_the_start_leaves_no_vector_of_another_model_for_long(
    store: Store,
) -> None:
    line, model = BreakingEngine(store.engine), Rivalled(store)
    await remembered(store, a_fact("Ann drinks tea"))
    await Vectors(store, Rival()).embed_some()

    line.absences = 1
    async with running(Embedder(Vectors(Store(line), model), model.model, poll_s=0, again_s=0)):
        await model.was_asked_again.wait()

    assert model.asked == [["Ann drinks tea"], ["Ann drinks coffee"]]


async def test_an_outage_after_a_rollout_leaves_no_vector_of_another_model_for_good(
    store: Store,
) -> None:
    line = BreakingEngine(store.engine)
    model = Rivalled(store, line)
    await remembered(store, a_fact("Ann drinks tea"))

    async with running(Embedder(Vectors(Store(line), model), model.model, poll_s=0, again_s=0)):
        await model.was_asked_again.wait()

    assert model.asked == [["Ann drinks tea"], ["Ann drinks tea", "Ann drinks coffee"]]
