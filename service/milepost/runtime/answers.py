"""What a run's calls come to: a result that is known, or what the tool brings and leaves behind."""

from collections.abc import Awaitable, Callable

from milepost.core.effects import CallTool, CompressResult
from milepost.core.events import (
    ArtifactCreated,
    Event,
    ToolCallCompleted,
    ToolCallFailed,
    ToolResultCompressed,
)
from milepost.core.usage import Usage
from milepost.runtime import notices
from milepost.runtime.contents import ContentLostError, Contents, not_kept
from milepost.runtime.result_cache import ResultCache, key_of, owner_of, summary_key
from milepost.runtime.screening import screened
from milepost.store.records import Claim
from milepost.tools import Tool
from milepost.tools.artifacts import Emissions, collecting

RunTool = Callable[[Emissions], Awaitable[list[Event]]]
Compress = Callable[[CompressResult], Awaitable[ToolResultCompressed]]


class Answers:
    """The answers to one run's calls, under one claim.

    `announced` says which calls have told of events of their own.
    """

    def __init__(
        self,
        claim: Claim,
        shelf: Contents,
        results: ResultCache | None,
        announced: Callable[[str], bool],
    ) -> None:
        self._claim = claim
        self._owner = owner_of(claim)
        self._shelf = shelf
        self._results = results
        self._announced = announced
        self._kept: dict[str, tuple[str, float]] = {}
        self._running: dict[str, Emissions] = {}

    async def answer(self, effect: CallTool, tool: Tool | None, run: RunTool) -> list[Event]:
        """Return what the call comes to. However a result comes, it is screened."""
        if tool is None:
            return await run(Emissions())
        if self._results is None or not (key := key_of(tool, effect.arguments, self._claim)):
            return screened(tool, await self._run(effect, run))
        if found := await self._results.find(key, self._owner, tool.cache_ttl_s):
            self._kept[effect.call.id] = key, tool.cache_ttl_s
            call_id, result = effect.call.id, found.result
            again = ToolCallCompleted(call_id, result, 0, terminal=tool.terminal, cached=True)
            return screened(tool, [again])
        events = await self._run(effect, run)
        match events:
            # One with artifacts or with events of its own would come without them.
            case [ToolCallCompleted(result=result)] if not self._announced(effect.call.id):
                await self._results.keep(key, result, tool.cache_ttl_s, self._owner)
                self._kept[effect.call.id] = key, tool.cache_ttl_s
            case _:
                pass
        return screened(tool, events)

    async def shorten(
        self, effect: CompressResult, threshold_chars: int, compress: Compress
    ) -> ToolResultCompressed:
        """Return the shorter form of a result; of one that is kept, it is kept as well."""
        call_id, opening = effect.call.id, effect.opening
        if self._results is None or call_id not in self._kept:
            return await compress(effect)
        result_key, ttl_s = self._kept[call_id]
        key = summary_key(result_key, opening.model, threshold_chars, effect.content)
        found = await self._results.find(key, self._owner, ttl_s)
        if found and isinstance(found.result, str):
            return ToolResultCompressed(
                call_id, found.result, opening.chars, opening.model, Usage(), cached=True
            )
        event = await compress(effect)
        if event.fallback is None:
            await self._results.keep(key, event.content, ttl_s, self._owner)
        return event

    async def left_behind(self, call_id: str) -> list[ArtifactCreated]:
        """Keep what a call has left behind that was stopped, maybe for the second time.

        It leaves no more.
        """
        if (emissions := self._running.pop(call_id, None)) is None:
            return []
        try:
            return await self._shelf.keep(emissions, call_id, self._claim)
        except ContentLostError as error:
            notices.artifact_lost(error, self._claim.run_id, call_id)
            return []

    def told(self, call_id: str) -> None:
        """Forget what a call has left behind: whoever asked has the events that tell of it."""
        self._running.pop(call_id, None)

    async def _run(self, effect: CallTool, run: RunTool) -> list[Event]:
        """Run the tool; what it has left behind is told of before what came of it."""
        with collecting() as emissions:
            self._running[effect.call.id] = emissions
            events = await run(emissions)
        try:
            left = await self._shelf.keep(emissions, effect.call.id, self._claim)
        except ContentLostError as error:
            return [ToolCallFailed(effect.call.id, not_kept(effect.call.name, error))]
        return [*left, *events]
