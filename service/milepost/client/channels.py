"""`client.channels`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack

from milepost.client.foreign import ours
from milepost.client.transport import Transport, quoted

ChannelOutcome = Literal[
    "started", "confirmed", "cancelled", "superseded", "expired", "ignored", "kind_mismatch",
    "digest_mismatch", "no_executor", "failed", "nothing_pending",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PendingAction:
    """What waits for a user's yes; `user_prompt` is how to ask. An approval's kind is approval."""

    id: str
    kind: str
    preview: str
    digest: str
    expires_at: str
    user_prompt: str


@dataclass(frozen=True, slots=True)
class ChannelAnswer:
    """What a message did, what waits now, and what to tell the user, if there is anything yet."""

    outcome: ChannelOutcome
    run_id: str | None
    session_id: str | None
    pending: PendingAction | None
    reply: str | None
    raw: Mapping[str, Any]


class MessageOptions(TypedDict, total=False):
    """What a message says: a `text`, or the `intent` of a button, with what it answers."""

    user: str | None
    text: str | None
    intent: str | None
    agent: str | None
    expected_kind: str | None
    expected_id: str | None
    expected_digest: str | None
    metadata: Mapping[str, str] | None


class Channels:
    """Chats: messages that come in, and what waits there for a yes."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(
        self,
        channel: str,
        conversation: str,
        message_id: str,
        *,
        wait_s: int | None = None,
        **said: Unpack[MessageOptions],
    ) -> ChannelAnswer:
        """Pass a message on, and return what it did; the same message again does nothing more."""
        known = {name: value for name, value in said.items() if value is not None}
        told = await self._transport.request(
            "POST",
            f"/v1/channels/{quoted(channel)}/messages",
            params={"wait": wait_s},
            body={"conversation": conversation, "message_id": message_id, **known},
        )
        answer = ours(told, "outcome", "run_id", "session_id", "pending", "reply")
        return ChannelAnswer(
            answer["outcome"],
            answer["run_id"],
            answer["session_id"],
            _pending(answer["pending"]),
            answer["reply"],
            answer,
        )

    async def pending(
        self, channel: str, conversation: str, *, user: str | None = None
    ) -> PendingAction | None:
        """Return what waits for the user, None if nothing does."""
        path = f"/v1/channels/{quoted(channel)}/conversations/{quoted(conversation)}/pending"
        told = await self._transport.get(path, {"user": user})
        return _pending(ours(told, "pending")["pending"])


def _pending(told: object) -> PendingAction | None:
    if told is None:
        return None
    action = ours(told, *_PENDING)
    return PendingAction(**{name: action[name] for name in _PENDING})


_PENDING = ("id", "kind", "preview", "digest", "expires_at", "user_prompt")
