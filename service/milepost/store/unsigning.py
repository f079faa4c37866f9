"""What a user has answered in others' runs: it stays, without who said so and in what words.

In place of the name stands the id of the erasure, of which nobody can tell any more whose it was.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass

import orjson
from sqlalchemy import null, select, update

from milepost.core.events import ApprovalDecided, ApprovalWithdrawn, ToolCallDenied
from milepost.core.webhooks import VOTED_TYPE
from milepost.store import schema
from milepost.store.dialect import among, rows, rows_of, rows_of_ids, text, word
from milepost.store.retelling import Said, retell
from milepost.store.sweeps import Place, Sweep
from milepost.store.work import Statement, Work

_A = schema.approvals.c
_V = schema.votes.c
_G = schema.grants.c
_I = schema.inbox.c
_O = schema.outbox.c
_D = schema.webhook_deliveries.c

UNSAID = "no reason is kept"
_REFUSED = frozenset({"denied", "withdrawn"})
_LETTERS = frozenset({"approval", "approval_withdrawn"})

_APPROVALS = Sweep(
    (_A.id,),
    lambda stretch: select(_A.id, _A.run_id, _A.call_id, _A.status, _A.decided_by).where(stretch),
)
_these = rows("these", "id")
_these_ids = select(_these.c.id).scalar_subquery()
_VOTES = Statement(
    select(_V.approval_id, _V.voter, _V.created_ms).where(
        among(_V.approval_id, _these_ids), _V.tenant == text("tenant")
    )
)
_UNSIGN_APPROVALS = Statement(
    update(schema.approvals)
    .where(among(_A.id, _these_ids), _A.tenant == text("tenant"))
    .values(decided_by=text("instead"), comment=null())
)
_cast = rows("cast_by", "approval_id", "voter")
_UNSIGN_VOTES = Statement(
    update(schema.votes)
    .where(
        _V.approval_id == _cast.c.approval_id,
        _V.voter == _cast.c.voter,
        _V.tenant == text("tenant"),
    )
    .values(voter=text("instead"), actor=text("instead"), comment=null())
)
_LETTERS_IN = Statement(
    select(_I.run_id, _I.seq, _I.kind, _I.data).where(
        among(_I.run_id, _these_ids), _I.tenant == text("tenant")
    )
)
_rewritten = rows("rewritten", "run_id", "data", numbers=("seq",))
_REWRITE = Statement(
    update(schema.inbox)
    .where(
        _I.run_id == _rewritten.c.run_id,
        _I.seq == _rewritten.c.seq,
        _I.tenant == text("tenant"),
    )
    .values(data=_rewritten.c.data)
)
_retold = rows("retold", "id", "data")
# In this order: what leaves the outbox meanwhile is seen among the deliveries then.
_TOLD_OF_VOTES = tuple(
    (
        Statement(
            select(table.c.id, table.c.data, time_ms).where(
                among(table.c.run_id, _these_ids),
                table.c.type == word(VOTED_TYPE),
                table.c.tenant == text("tenant"),
            )
        ),
        Statement(
            update(table)
            .where(table.c.id == _retold.c.id, table.c.tenant == text("tenant"))
            .values(data=_retold.c.data)
        ),
    )
    for table, time_ms in (
        (schema.outbox, _O.created_ms),
        (schema.webhook_deliveries, _D.event_ms),
    )
)
_GRANTS = Sweep(
    (_G.id,), lambda stretch: select(_G.id, _G.granted_by, _G.revoked_by).where(stretch)
)
_signed = rows("signed", "id", "granted_by", "revoked_by")
_UNSIGN_GRANTS = Statement(
    update(schema.grants)
    .where(_G.id == _signed.c.id, _G.tenant == text("tenant"))
    .values(granted_by=_signed.c.granted_by, revoked_by=_signed.c.revoked_by)
)


@dataclass(frozen=True, slots=True)
class Signature:
    """By what a user is known who answers: as one, by a key, or at a chat; and what stands then.

    `called` is how messages call the user, which need not be nobody else's name.
    """

    user: str
    keys: frozenset[str]
    instead: str
    called: frozenset[str]

    def is_theirs(self, name: str | None) -> bool:
        """Say whether the name is this user's."""
        if name is None:
            return False
        at_chat = user_at_chat(name) == self.user
        return at_chat or name == f"user:{self.user}" or name in self.keys

    def without(self, name: str | None) -> str | None:
        """Return the name, or what stands for this user's."""
        return self.instead if self.is_theirs(name) else name


def user_at_chat(name: str) -> str | None:
    """Return the user who answers at a chat by this name; None for a name of another kind.

    There may be colons in what a user is called, and none in what a channel is.
    """
    kind, _, at = name.partition(":")
    return at.partition(":")[2] if kind == "channel" else None


def approvals(tenant: str, whose: Signature, after: Place) -> Work[tuple[int, Place | None]]:
    """Take the user out of a stretch of approvals, and out of the logs of their runs.

    Return of how many that was, and where the stretch ends, None if that was all.
    """
    found, until = yield from _APPROVALS.go_on(tenant, after)
    decided = {row[0]: row[1:4] for row in found if whose.is_theirs(row[4])}
    named = {"tenant": tenant, "instead": whose.instead}
    given = yield _VOTES(these=rows_of_ids(each for each, *_ in found), tenant=tenant)
    cast = [
        {"approval_id": approval_id, "voter": voter}
        for approval_id, voter, _ in given
        if whose.is_theirs(voter)
    ]
    others = {(row[0], row[2]) for row in given if not whose.is_theirs(row[1])}
    yield from _retell_votes(tenant, {row[1] for row in found}, others, whose)
    if cast:
        yield _UNSIGN_VOTES(cast_by=rows_of(cast), **named)
    if decided:
        yield _UNSIGN_APPROVALS(these=rows_of_ids(decided), **named)
        yield from _retell(tenant, decided, whose)
    return len({*decided, *(each["approval_id"] for each in cast)}), until


def grants(tenant: str, whose: Signature, after: Place) -> Work[Place | None]:
    """Take the user out of a stretch of what was granted; return where it ends, as above."""
    found, until = yield from _GRANTS.go_on(tenant, after)
    signed = [
        {"id": row, "granted_by": whose.without(granted), "revoked_by": whose.without(revoked)}
        for row, granted, revoked in found
        if whose.is_theirs(granted) or whose.is_theirs(revoked)
    ]
    if signed:
        yield _UNSIGN_GRANTS(signed=rows_of(signed), tenant=tenant)
    return until


def _retell_votes(
    tenant: str, runs: Set[str], others: Set[tuple[str, int]], whose: Signature
) -> Work[None]:
    """Take the user out of what webhooks are told of votes in these runs.

    A vote that has become void is told of as well, and stands nowhere else any more. `others` are
    the approvals that others have voted on, and when: keys of theirs may be called the same.
    """
    for find, tell in _TOLD_OF_VOTES:
        retold = []
        for told_id, data, time_ms in (yield find(these=rows_of_ids(sorted(runs)), tenant=tenant)):
            said = orjson.loads(data)
            is_theirs = whose.is_theirs(said["by"]) or said["by"] in whose.called
            if is_theirs and (said["approval_id"], time_ms) not in others:
                then = orjson.dumps({**said, "by": whose.instead}).decode()
                retold.append({"id": told_id, "data": then})
        if retold:
            yield tell(retold=rows_of(retold), tenant=tenant)


def _retell(
    tenant: str, decided: Mapping[str, tuple[str, str, str]], whose: Signature
) -> Work[None]:
    """Take the user out of what the runs have been told of these approvals."""
    runs = sorted({run_id for run_id, *_ in decided.values()})
    refused = {(run_id, call) for run_id, call, status in decided.values() if status in _REFUSED}

    def unsigned(run_id: str, said: Said) -> Said:
        if said.get("approval_id") in decided:
            words = {name: None for name in ("comment", "reason") if name in said}
            return {**said, "by": whose.instead, **words}
        if "approval_id" not in said and (run_id, said["call_id"]) in refused:
            return {**said, "by": whose.instead, "reason": UNSAID}
        return said

    rewritten = []
    for run_id, seq, kind, data in (yield _LETTERS_IN(these=rows_of_ids(runs), tenant=tenant)):
        said = orjson.loads(data)
        if kind in _LETTERS and (told := unsigned(run_id, said)) != said:
            rewritten.append({"run_id": run_id, "seq": seq, "data": orjson.dumps(told).decode()})
    if rewritten:
        yield _REWRITE(rewritten=rows_of(rewritten), tenant=tenant)
    types = (ApprovalDecided.type, ApprovalWithdrawn.type, ToolCallDenied.type)
    yield from retell(tenant, runs, types, unsigned)
