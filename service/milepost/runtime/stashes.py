"""What a run's calls put off until their user says yes: kept before the call's result is told."""

from collections.abc import Sequence
from typing import Protocol

from milepost.core.events import Channel, Event, Failure, ToolCallCompleted, ToolCallFailed
from milepost.store.records import Claim
from milepost.tools.pending import Stash, Stashed


class Stashes(Protocol):
    """Keeps what is put off, for the conversations that runs were asked for in."""

    async def begin(self, call_id: str, claim: Claim, channel: Channel | None) -> Stash:
        """Return where a call may put an action off: nowhere but in a conversation."""

    async def keep(
        self, stashed: Stashed, call_id: str, claim: Claim, channel: Channel | None
    ) -> Failure | None:
        """Keep what was put off, or return why it could not be."""


class PuttingOff:
    """What the calls of one run put off, under one claim. In process there is no conversation."""

    def __init__(self, stashes: Stashes | None, claim: Claim, channel: Channel | None) -> None:
        self._stashes = stashes
        self._claim = claim
        self._channel = channel
        self._calls: set[str] = set()

    async def begin(self, call_id: str) -> Stash:
        """Return where the call may put an action off."""
        if self._stashes is None or self._channel is None:
            return Stash()
        return await self._stashes.begin(call_id, self._claim, self._channel)

    def has_from(self, call_id: str) -> bool:
        """Say whether the call has put anything off."""
        return call_id in self._calls

    def close(self, stash: Stash, call_id: str) -> Stashed | None:
        """Return what the call has put off, and remember that it has."""
        if stashed := stash.close():
            self._calls.add(call_id)
        return stashed

    async def kept(
        self, stashed: Stashed | None, call_id: str, events: Sequence[Event]
    ) -> list[Event]:
        """Return the call's events once what it put off is durable; of one that failed nothing is.

        What cannot be kept makes the call a failed one: nobody must be asked for what is not there.
        """
        if stashed is None or not any(isinstance(event, ToolCallCompleted) for event in events):
            return [*events]
        assert self._stashes is not None, "only who keeps things has room for them"
        failure = await self._stashes.keep(stashed, call_id, self._claim, self._channel)
        if failure is None:
            return [*events]
        others = [event for event in events if not isinstance(event, ToolCallCompleted)]
        return [*others, ToolCallFailed(call_id, failure)]
