"""Many runs of one agent, so many at a time, each for itself."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from milepost.agent.asking import Messages, Options, conversation
from milepost.agent.observations import BatchEnd, BatchStart
from milepost.agent.result import AgentResult, Record, result_of
from milepost.agent.runner import Runner
from milepost.agent.telling import Telling
from milepost.core.errors import InvalidError, MilepostError
from milepost.core.events import Failure, RunFailed
from milepost.core.usage import Usage
from milepost.runtime.clock import Ids, now_ms

OnProgress = Callable[[int, int], object]
"""Is called with how many runs are over, and how many there are."""


@dataclass(slots=True)
class _Item:
    """One of the batch, and its result once there is one."""

    said: Messages
    result: AgentResult | None = None


class Batch:
    """Its runs end in any order, and its results are in the order of what was asked."""

    def __init__(
        self, runner: Runner, asked: Sequence[Messages], options: Options, max_concurrency: int
    ) -> None:
        if max_concurrency < 1:
            raise InvalidError(
                f"max_concurrency is {max_concurrency}; let at least 1 run at a time"
            )
        if isinstance(asked, str | Mapping):
            raise InvalidError("a batch is a list of inputs; give this one to `run`, or a list")
        self._runner = runner
        self._options = options
        self._max_concurrency = max_concurrency
        self._items = [_Item(each) for each in asked]
        self._over = 0
        new_id = Ids()
        self._id = new_id("bat")
        self._new_id = new_id

    async def results(self, on_progress: OnProgress | None) -> list[AgentResult]:
        """Run all. One that cannot be run at all has a result that says so.

        What `on_progress` raises ends the batch.
        """
        telling = Telling(self._runner.observers, self._id)
        total, began_ms = len(self._items), now_ms()
        start = BatchStart(self._id, self._runner.name, total, self._max_concurrency)
        await telling.tell([start])
        try:
            async with self._runner.workplace.held():
                await self._run_all(on_progress)
        finally:
            results = [item.result for item in self._items if item.result is not None]
            completed = sum(result.status == "completed" for result in results)
            took_ms = now_ms() - began_ms
            await telling.tell([BatchEnd(self._id, self._runner.name, total, completed, took_ms)])
            await telling.end()
        return results

    async def _run_all(self, on_progress: OnProgress | None) -> None:
        waiting = iter(self._items)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(self._max_concurrency, len(self._items))):
                    tasks.create_task(self._work(waiting, on_progress))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _work(self, waiting: Iterator[_Item], on_progress: OnProgress | None) -> None:
        for item in waiting:
            item.result = await self._run(item.said)
            self._over += 1
            if on_progress:
                on_progress(self._over, len(self._items))

    async def _run(self, said: Messages) -> AgentResult:
        began_ms = now_ms()
        try:
            return await self._runner.run(conversation(said), self._options, batch_id=self._id)
        except MilepostError as error:
            failure = Failure(error.code, str(error), error.retryable)
        except Exception as error:
            failure = Failure("internal", repr(error))
        event = RunFailed(failure, Usage())
        model = self._runner.plan.written.agent.model
        return result_of(self._new_id("run"), Record(model, (), (event,), (began_ms,)))
