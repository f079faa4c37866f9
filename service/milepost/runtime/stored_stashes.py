"""What tools put off until their user says yes, kept in the database."""

import orjson

from milepost.core.errors import FencedError
from milepost.core.events import Channel, Failure
from milepost.core.ids import pending_id
from milepost.core.pending import args_digest
from milepost.store.conversations import ScopeKey
from milepost.store.pending import NewPending
from milepost.store.records import Claim
from milepost.store.store import Store
from milepost.tools.pending import Stash, Stashed, exists

_TWICE = (
    "the user has answered already what this call puts off: it was called before, and its worker"
    " was lost. Nothing was put off now"
)


class StoredStashes:
    """Keeps what is put off, for the conversations that its runs were asked for in.

    It is durable before its call's result is: a crash in between leaves an action that its user may
    still say yes to, and another attempt at the call puts off the same one.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def begin(self, call_id: str, claim: Claim, channel: Channel | None) -> Stash:
        """Return where a call may put an action off: nowhere but in a conversation."""
        scope = _scope(claim, channel)
        if scope is None:
            return Stash()
        waiting = await self._store.pending_in(scope)
        if waiting is None or (waiting.run_id, waiting.call_id) == (claim.run_id, call_id):
            # Its own, from an attempt that was lost, is no other; the database tells.
            return Stash(room=True)
        return Stash(room=True, taken=waiting.preview)

    async def keep(
        self, stashed: Stashed, call_id: str, claim: Claim, channel: Channel | None
    ) -> Failure | None:
        """Keep what was put off, or return why it could not be."""
        scope = _scope(claim, channel)
        assert scope is not None, "only in a conversation there is room"
        action = NewPending(
            id=pending_id(claim.run_id, call_id),
            scope=scope,
            run_id=claim.run_id,
            call_id=call_id,
            kind=stashed.kind,
            preview=stashed.preview,
            args=orjson.dumps(stashed.args).decode(),
            digest=args_digest(stashed.args),
            user_prompt=stashed.user_prompt,
            ttl_ms=round(stashed.ttl_s * 1000),
        )
        match await self._store.stash(action, claim.epoch):
            case "kept":
                return None
            case "taken":
                waiting = await self._store.pending_in(scope)
                told = waiting.preview if waiting else "it was answered just now"
                return Failure("pending_action_exists", exists(told))
            case "answered":
                return Failure("pending_action_exists", _TWICE)
            case "fenced":
                raise FencedError(f"run {claim.run_id} was taken over; stop writing to it")


def _scope(claim: Claim, channel: Channel | None) -> ScopeKey | None:
    if channel is None or claim.user is None:
        return None
    return ScopeKey(claim.tenant, channel.name, channel.conversation, claim.user)
