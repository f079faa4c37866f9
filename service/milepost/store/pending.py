"""Actions that wait for a yes in a chat: at most one in a conversation, each answered once.

Only the database's clock says whether there is still time.
"""

from dataclasses import dataclass
from typing import Literal

import orjson
from sqlalchemy import case, insert, select, union_all, update

from milepost.core.pending import args_digest
from milepost.store import schema
from milepost.store.conversations import ScopeKey
from milepost.store.dialect import now_ms, number, text, word
from milepost.store.work import Statement, Work

_P = schema.pending_actions.c
_A = schema.approvals.c
_R = schema.runs.c

Stash = Literal["kept", "taken", "answered", "fenced"]
Answer = Literal["confirmed", "cancelled", "superseded", "consumed"]


@dataclass(frozen=True, slots=True)
class NewPending:
    """An action that a tool put off; `args` is encoded JSON."""

    id: str
    scope: ScopeKey
    run_id: str
    call_id: str
    kind: str
    preview: str
    args: str
    digest: str
    user_prompt: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class PendingRow:
    """An action as it is kept; `args` is encoded JSON.

    `status` is pending, confirmed (a run has been queued for it), cancelled, superseded, expired or
    consumed (used up, and nothing was run for it).
    """

    id: str
    tenant: str
    channel: str
    conversation: str
    user: str
    run_id: str
    call_id: str
    kind: str
    preview: str
    args: str
    digest: str
    status: str
    answered_by: str | None
    parser: str | None
    executed_by: str | None
    requested_ms: int
    expires_ms: int
    answered_ms: int | None

    @property
    def is_intact(self) -> bool:
        """Say whether its arguments are still those that it was made with."""
        return args_digest(orjson.loads(self.args)) == self.digest


# How to ask says how much time is left, and so is made when it is shown; processes of the version
# before show it as it was kept.
_COLUMNS = tuple(each for each in _P if each.name != "user_prompt")
_scope = (
    (_P.tenant == text("tenant"))
    & (_P.channel == text("channel"))
    & (_P.conversation == text("conversation"))
    & (_P.user_id == text("user_id"))
    & (_P.status == word("pending"))
)
_EXPIRE = Statement(
    update(schema.pending_actions)
    .where(_scope, _P.expires_ms <= now_ms())
    .values(status="expired", answered_ms=_P.expires_ms)
)
_OPEN = Statement(select(*_COLUMNS).where(_scope, _P.expires_ms > now_ms()))
_OF_CALL = Statement(
    select(_P.id).where(
        _P.run_id == text("run_id"),
        _P.call_id == text("call_id"),
        _P.tenant == text("tenant"),
    )
)
# Not locked: whoever takes the run over now makes the call again, and puts the same off.
_IS_OURS = Statement(
    select(_R.id).where(
        _R.id == text("run_id"),
        _R.tenant == text("tenant"),
        _R.epoch == number("epoch"),
        _R.status == word("running"),
    )
)
_IS_TAKEN = Statement(
    select(_P.id).where(_scope, _P.expires_ms > now_ms(), _P.id != text("pending_id"))
)
# Read once: the action has all of its time, and not what passes between two looks at a clock.
_clock = select(now_ms().label("ms")).subquery("clock")
_times = {"requested_ms": _clock.c.ms, "expires_ms": _clock.c.ms + number("ttl_ms")}
_asked = {name: text(name) for name in ("kind", "preview", "args", "digest", "user_prompt")}
_where = {
    name: text(name)
    for name in ("tenant", "channel", "conversation", "user_id", "run_id", "call_id")
}
_new = {
    "id": text("pending_id"),
    "status": word("pending"),
    **_where,
    **_asked,
    **_times,
}
_ADD = Statement(insert(schema.pending_actions).from_select(list(_new), select(*_new.values())))
_one = (_P.id == text("pending_id")) & (_P.tenant == text("tenant"))
_REPLACE = Statement(
    update(schema.pending_actions)
    .where(_one, _P.status == word("pending"))
    .values(**_asked, **_times)
    .returning(_P.id)
)
_ANSWER = Statement(
    update(schema.pending_actions)
    .where(
        _one,
        _P.status == word("pending"),
        _P.digest == text("digest"),
        _P.expires_ms > now_ms(),
    )
    .values(
        status=text("status"),
        answered_by=text("answered_by"),
        parser=text("parser"),
        executed_by=text("executed_by"),
        answered_ms=now_ms(),
    )
    .returning(*_COLUMNS)
)
_TIGHTEN = Statement(
    update(schema.pending_actions)
    .where(_one, _P.status == word("pending"), _P.expires_ms > now_ms())
    .values(
        expires_ms=case(
            (_P.expires_ms > now_ms() + number("ttl_ms"), now_ms() + number("ttl_ms")),
            else_=_P.expires_ms,
        )
    )
    .returning(*_COLUMNS)
)
_FIND = Statement(select(*_COLUMNS).where(_one))
_IS_PAST = Statement(
    union_all(
        select(_P.id).where(
            _one,
            (_P.status == word("expired"))
            | ((_P.status == word("pending")) & (_P.expires_ms <= now_ms())),
        ),
        select(_A.id).where(
            _A.id == text("pending_id"),
            _A.tenant == text("tenant"),
            (_A.status == word("expired"))
            | ((_A.status == word("pending")) & (_A.expires_ms <= now_ms())),
        ),
    )
)


def stash(action: NewPending, epoch: int) -> Work[Stash]:
    """Keep what a tool put off, once for each call; say why not, where it is not kept.

    Only who holds the run may: `fenced` for everybody else. `taken` if another action waits in the
    conversation, `answered` if this very one was answered while its tool was called again; until
    then the last attempt counts.
    """
    written = {
        "pending_id": action.id,
        "kind": action.kind,
        "preview": action.preview,
        "args": action.args,
        "digest": action.digest,
        "user_prompt": action.user_prompt,
        "ttl_ms": action.ttl_ms,
    }
    ours = yield _IS_OURS(run_id=action.run_id, tenant=action.scope.tenant, epoch=epoch)
    if not ours:
        return "fenced"
    yield _EXPIRE(**action.scope.named())
    before, taken = yield (
        _OF_CALL(run_id=action.run_id, call_id=action.call_id, tenant=action.scope.tenant),
        _IS_TAKEN(**action.scope.named(), pending_id=action.id),
    )
    if before:
        replaced = yield _REPLACE(tenant=action.scope.tenant, **written)
        return "kept" if replaced else "answered"
    if taken:
        return "taken"
    named = {**action.scope.named(), "run_id": action.run_id, "call_id": action.call_id}
    yield _ADD(**named, **written)
    return "kept"


def open_in(scope: ScopeKey) -> Work[PendingRow | None]:
    """Return what a tool put off and may still be confirmed, None if there is nothing."""
    found = yield _OPEN(**scope.named())
    return PendingRow(*found[0]) if found else None


def expire_in(scope: ScopeKey) -> Work[None]:
    """Write down of what waits in the conversation that its time is over, where it is."""
    yield _EXPIRE(**scope.named())


def find(tenant: str, pending_id: str) -> Work[PendingRow | None]:
    """Return the action whatever became of it."""
    found = yield _FIND(tenant=tenant, pending_id=pending_id)
    return PendingRow(*found[0]) if found else None


def answer(
    row: PendingRow,
    status: Answer,
    *,
    by: str,
    parser: str | None = None,
    executed_by: str | None = None,
) -> Work[PendingRow | None]:
    """Answer an action: the one that was read, in time, once. None if it is too late for that."""
    found = yield _ANSWER(
        pending_id=row.id,
        tenant=row.tenant,
        digest=row.digest,
        status=status,
        answered_by=by,
        parser=parser,
        executed_by=executed_by,
    )
    return PendingRow(*found[0]) if found else None


def tighten(tenant: str, pending_id: str, ttl_ms: int) -> Work[PendingRow | None]:
    """Leave an action no more time than this, and never more than it has; None if it is over."""
    found = yield _TIGHTEN(tenant=tenant, pending_id=pending_id, ttl_ms=ttl_ms)
    return PendingRow(*found[0]) if found else None


def is_past(tenant: str, pending_id: str) -> Work[bool]:
    """Say whether time has run out for an action or an approval, unanswered."""
    return bool((yield _IS_PAST(tenant=tenant, pending_id=pending_id)))
