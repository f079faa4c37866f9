"""Chats: which session each goes on in, what was shown in it last, and what came in.

Whoever answers in a conversation holds its row's lock first, before sessions and runs.
"""

from dataclasses import dataclass

from sqlalchemy import delete, select, tuple_, update

from milepost.core.errors import ConflictError
from milepost.store import erasures, schema
from milepost.store.dialect import insert_new, number, text
from milepost.store.work import Statement, Work

KEPT_MS = 8 * 86_400_000
"""How long a message is known again: the most patient of senders try for a week."""
PURGE_MAX = 1_000

_C = schema.conversations.c
_D = schema.channel_messages.c


@dataclass(frozen=True, slots=True)
class ScopeKey:
    """One user in one conversation of one channel."""

    tenant: str
    channel: str
    conversation: str
    user: str

    def named(self) -> dict[str, str]:
        """Return it as statements take it."""
        return {
            "tenant": self.tenant,
            "channel": self.channel,
            "conversation": self.conversation,
            "user_id": self.user,
        }


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation of one user; `shown` is what that user was last asked to confirm."""

    session_id: str
    agent: str | None
    shown_id: str | None
    shown_digest: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that came in, and what it did."""

    user: str
    said_hash: str
    outcome: str
    session_id: str | None
    run_id: str | None
    after_seq: int
    pending_id: str | None


class MessageReusedError(ConflictError):
    """The message id was used for another message."""

    code = "message_id_reused"


_scope = (
    (_C.tenant == text("tenant"))
    & (_C.channel == text("channel"))
    & (_C.conversation == text("conversation"))
    & (_C.user_id == text("user_id"))
)
_ROW = (_C.session_id, _C.agent, _C.shown_id, _C.shown_digest)
_FIND = Statement(select(*_ROW).where(_scope))
_LOCK = Statement(select(*_ROW).where(_scope).with_for_update())
_OPEN = Statement(
    insert_new(schema.conversations)
    .values(
        tenant=text("tenant"),
        channel=text("channel"),
        conversation=text("conversation"),
        user_id=text("user_id"),
        session_id=text("session_id"),
        created_ms=number("now_ms"),
        updated_ms=number("now_ms"),
    )
    .returning(_C.session_id)
)
_MOVE = Statement(
    update(schema.conversations)
    .where(_scope)
    .values(session_id=text("session_id"), agent=text("agent"), updated_ms=number("now_ms"))
)
_SHOW = Statement(
    update(schema.conversations)
    .where(_scope)
    .values(shown_id=text("shown_id"), shown_digest=text("shown_digest"))
)
_of_session = (_C.session_id == text("session_id")) & (_C.tenant == text("tenant"))
_LOCK_OF_SESSION = Statement(select(_C.session_id).where(_of_session).with_for_update())

_message = (
    (_D.tenant == text("tenant"))
    & (_D.channel == text("channel"))
    & (_D.conversation == text("conversation"))
    & (_D.message_id == text("message_id"))
)
_TAKE = Statement(
    insert_new(schema.channel_messages)
    .values(
        tenant=text("tenant"),
        channel=text("channel"),
        conversation=text("conversation"),
        message_id=text("message_id"),
        user_id=text("user_id"),
        said_hash=text("said_hash"),
        created_ms=number("now_ms"),
    )
    .returning(_D.message_id)
)
_RECALL = Statement(
    select(
        _D.user_id, _D.said_hash, _D.outcome, _D.session_id, _D.run_id, _D.after_seq, _D.pending_id
    ).where(_message)
)
_NOTE = Statement(
    update(schema.channel_messages)
    .where(_message)
    .values(
        outcome=text("outcome"),
        session_id=text("session_id"),
        run_id=text("run_id"),
        after_seq=number("after_seq"),
        pending_id=text("pending_id"),
    )
)
_old = schema.channel_messages.alias("old")
_KEY = (_D.tenant, _D.channel, _D.conversation, _D.message_id)
_PURGE = Statement(
    delete(schema.channel_messages)
    .where(
        tuple_(*_KEY).in_(
            select(*(_old.c[column.name] for column in _KEY))
            .where(_old.c.created_ms < number("before_ms"))
            .order_by(_old.c.created_ms)
            .limit(PURGE_MAX)
            .with_for_update(skip_locked=True)  # Every process purges.
        )
    )
    .returning(_D.message_id)
)


def find(scope: ScopeKey) -> Work[ConversationRow | None]:
    """Return the conversation, None if nothing was said in it yet."""
    found = yield _FIND(**scope.named())
    return ConversationRow(*found[0]) if found else None


def enter(scope: ScopeKey, session_id: str, now_ms: int) -> Work[tuple[ConversationRow, bool]]:
    """Return the conversation with its lock held, and whether it begins now, in that session."""
    opened = yield _OPEN(**scope.named(), session_id=session_id, now_ms=now_ms)
    found = yield _LOCK(**scope.named())
    return ConversationRow(*found[0]), bool(opened)


def go_on(scope: ScopeKey, session_id: str, agent: str | None, now_ms: int) -> Work[None]:
    """Write down in which session the conversation goes on, and who answers there."""
    yield _MOVE(**scope.named(), session_id=session_id, agent=agent, now_ms=now_ms)


def show(scope: ScopeKey, pending_id: str | None, digest: str | None) -> Work[None]:
    """Write down what the user was asked to confirm last; None: nothing, since they spoke."""
    yield _SHOW(**scope.named(), shown_id=pending_id, shown_digest=digest)


def lock_of_session(tenant: str, session_id: str) -> Work[None]:
    """Take the lock of the conversations that go on in a session: theirs come before its own."""
    yield _LOCK_OF_SESSION(tenant=tenant, session_id=session_id)


def take(scope: ScopeKey, message_id: str, said_hash: str, now_ms: int) -> Work[Delivery | None]:
    """Take a message in; return what it did before if it has come before.

    Comes before any effect, so that a second delivery waits for the commit of the first. Raises
    `MessageReusedError` if its id stood for something else.
    """
    yield from erasures.require_none(scope.tenant, scope.user)
    named = {**scope.named(), "message_id": message_id}
    if (yield _TAKE(**named, said_hash=said_hash, now_ms=now_ms)):
        return None
    found = yield _RECALL(**named)
    before = Delivery(*found[0])
    if (before.user, before.said_hash) != (scope.user, said_hash):
        raise MessageReusedError(
            f"message {message_id!r} of conversation {scope.conversation!r} said something else"
            " before; every message needs an id of its own"
        )
    return before


def note(scope: ScopeKey, message_id: str, done: Delivery) -> Work[None]:
    """Write down what a message did, in the transaction that does it."""
    yield _NOTE(
        **scope.named(),
        message_id=message_id,
        outcome=done.outcome,
        session_id=done.session_id,
        run_id=done.run_id,
        after_seq=done.after_seq,
        pending_id=done.pending_id,
    )


def purge(now_ms: int) -> Work[int]:
    """Forget messages that nobody delivers again, so many at a time; return how many."""
    purged = yield _PURGE(before_ms=now_ms - KEPT_MS)
    return len(purged)
