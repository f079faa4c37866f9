"""Erasing all that there is of a user, one bounded transaction after the other.

Each stage goes through what its name says. Every step begins with what the database says, so that
whoever goes on after a crash repeats nothing, and leaves nothing out.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from sqlalchemy import delete, null, or_, select, tuple_, update

from milepost.store import batches, erasures, keys, leftovers, memories, schema, unsigning
from milepost.store.dialect import among, number, rows, rows_of, rows_of_ids, text, word
from milepost.store.erasures import ErasureRow
from milepost.store.leftovers import Cause
from milepost.store.memories import DELETE_MAX
from milepost.store.removals import close_sessions, remove_runs
from milepost.store.sweeps import Place, Sweep
from milepost.store.unsigning import Signature, user_at_chat
from milepost.store.work import Statement, Work

SESSIONS_MAX = 20
RUNS_MAX = 100
IDLE_MS = 250
"""How long whoever waits for something else leaves an erasure alone."""
FILE_STAGE = "file"

_S = schema.sessions.c
_R = schema.runs.c
_D = schema.channel_messages.c
_V = schema.conversations.c
_U = schema.usage.c
_A = schema.audit.c
_I = schema.idempotency.c
_B = schema.batches.c
_T = schema.schedules.c
_C = schema.rate_counters.c

_ID = re.compile(r"(?:run|ses|apr|bat|sch|pnd|mem)_[0-9a-f]{32}")
_OWN_WORDS = frozenset({"comment", "reason", "from"})
"""What somebody says who does something to what is another's, and from where."""
_VOCABULARY = frozenset({"decision", "events", "kind", "period", "scope", "scopes"})
"""Where a word is one of ours, also if a user is called so."""
_KEPT = re.compile(r"[a-z]{3}_[0-9a-f]{32}|call_\d+_\d+")


@dataclass(frozen=True, slots=True)
class Step:
    """What a step did: how much is gone, and which runs of whom have to be stopped first.

    `idle` says that it could do nothing, because something else has to happen before.
    """

    gone: Mapping[str, int] = field(default_factory=dict)
    runs: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """How an erasure stands after a step, and what that step did."""

    row: ErasureRow
    step: Step


@dataclass(frozen=True, slots=True)
class _At:
    """Where an erasure stands: in a stage, behind a place of it, and whether it left out some."""

    stage: str
    after: Place = ()
    again: bool = False

    @classmethod
    def of(cls, row: ErasureRow) -> "_At":
        """Return where it was written down to stand."""
        return cls(row.stage, **orjson.loads(row.place)) if row.place else cls(row.stage)

    @property
    def place(self) -> str:
        """What is written down."""
        return orjson.dumps({"after": list(self.after), "again": self.again}).decode()


_user = text("user_id")
_MESSAGES = Sweep(
    (_D.channel, _D.conversation, _D.message_id),
    lambda stretch: (
        delete(schema.channel_messages).where(stretch, _D.user_id == _user).returning(_D.message_id)
    ),
)
_CONVERSATIONS = Sweep(
    (_V.channel, _V.conversation, _V.user_id),
    lambda stretch: (
        delete(schema.conversations).where(stretch, _V.user_id == _user).returning(_V.conversation)
    ),
)
_SCHEDULES = Sweep(
    (_T.id,),
    lambda stretch: delete(schema.schedules).where(stretch, _T.user_id == _user).returning(_T.id),
)
_USAGE = Sweep(
    (_U.time_ms,),
    lambda stretch: (
        update(schema.usage)
        .where(stretch, _U.user_id == _user)
        .values(user_id=null(), metadata="{}")
        .returning(_U.seq)
    ),
)
_RUNS = Sweep(
    (_R.id,),
    lambda stretch: (
        select(_R.id).where(stretch, _R.user_id == _user).order_by(_R.id).limit(RUNS_MAX)
    ),
)
_BATCHES = Sweep(
    (_B.id,), lambda stretch: select(_B.id, _B.status).where(stretch, _B.user_id == _user)
)
_RATES = Sweep((_C.key,), lambda stretch: select(_C.key).where(stretch))
_AUDIT = Sweep(
    (_A.id,), lambda stretch: select(_A.id, _A.actor, _A.target, _A.details).where(stretch)
)
_REQUESTS = Sweep(
    (_I.scope, _I.key), lambda stretch: select(_I.scope, _I.key, _I.resource_id).where(stretch)
)

_heard = rows("heard", "message_id")
_FORGET_HEARD = Statement(
    delete(schema.idempotency).where(
        _I.tenant == text("tenant"),
        _I.scope >= word("POST /v1/channels/"),
        _I.scope < word("POST /v1/channels0"),
        _I.resource_id.in_(select(_heard.c.message_id)),
    )
)
_SESSIONS_OF_USER = Statement(
    select(_S.id)
    .where(
        _S.tenant == text("tenant"),
        _S.user_id == _user,
        _S.user_id.is_not(None),
        _S.id > text("after"),
    )
    .order_by(_S.id)
    .limit(SESSIONS_MAX)
)
_these = rows("these", "id")
_these_ids = select(_these.c.id).scalar_subquery()
_FORKS = Statement(
    select(_S.id)
    .where(
        _S.forked_from.is_not(None),
        among(_S.forked_from, _these_ids),
        _S.tenant == text("tenant"),
    )
    .order_by(_S.id)
    .limit(SESSIONS_MAX)
)
_RUNS_IN = Statement(
    select(_R.id)
    .where(among(_R.session_id, _these_ids), _R.tenant == text("tenant"))
    .order_by(_R.id)
    .limit(number("limit"))
)
_UNNAME_USAGE = Statement(
    update(schema.usage)
    .where(
        among(_U.run_id, _these_ids),
        _U.tenant == text("tenant"),
        or_(_U.user_id.is_(None), _U.user_id == _user),
    )
    .values(user_id=null(), metadata="{}")
)
_counted = rows("counted", "key")
_FORGET_RATES = tuple(
    Statement(
        delete(table).where(
            table.c.tenant == text("tenant"), table.c.key.in_(select(_counted.c.key))
        )
    )
    for table in (schema.rate_marks, schema.rate_counters)
)
_said = rows("said", "id", "actor", "details")
_RETELL = Statement(
    update(schema.audit)
    .where(_A.id == _said.c.id, _A.tenant == text("tenant"))
    .values(actor=_said.c.actor, details=_said.c.details)
)
_asked = rows("asked", "scope", "key")
_FORGET_REQUESTS = Statement(
    delete(schema.idempotency).where(
        _I.tenant == text("tenant"),
        tuple_(_I.scope, _I.key).in_(select(_asked.c.scope, _asked.c.key)),
    )
)
_THERE = tuple(
    Statement(select(table.c.id).where(among(table.c.id, _these_ids)))
    for table in (
        schema.runs,
        schema.sessions,
        schema.approvals,
        schema.batches,
        schema.schedules,
        schema.pending_actions,
        schema.memories,
    )
)
_of_users = (schema.budgets.c.tenant == text("tenant")) & (schema.budgets.c.scope == word("user"))
_FORGET_NAMES = (
    Statement(
        delete(schema.budget_counters).where(
            schema.budget_counters.c.tenant == text("tenant"),
            schema.budget_counters.c.scope_value == _user,
            schema.budget_counters.c.budget_id.in_(select(schema.budgets.c.id).where(_of_users)),
        )
    ),
    Statement(delete(schema.budgets).where(_of_users, schema.budgets.c.scope_value == _user)),
    Statement(
        delete(schema.keys).where(
            schema.keys.c.tenant == text("tenant"), schema.keys.c.subject == _user
        )
    ),
)


@dataclass(frozen=True, slots=True)
class _Whose:
    """Whose data is erased, in which tenant, for what, and what time it is."""

    tenant: str
    user: str
    cause: Cause
    now_ms: int


_Outcome = tuple[Step, _At]


def go_on(row: ErasureRow, now_ms: int) -> Work[Gone]:
    """Take the next step of the erasure, and write down how far it has come.

    Whoever finds that another has taken one meanwhile leaves it to that one.
    """
    assert row.user is not None, "who it was is forgotten only when all else is gone"
    if not (yield from erasures.stands(row)):
        return Gone(row, Step(idle=True))
    at = _At.of(row)
    whose = _Whose(row.tenant, row.user, Cause(row.id, row.user), now_ms)
    step, then = yield from STAGES[at.stage](whose, at)
    counts = row.counted
    for name, count in step.gone.items():
        counts[name] = counts.get(name, 0) + count
    moved = replace(row, stage=then.stage, place=then.place, counts=orjson.dumps(counts).decode())
    yield from erasures.advance(moved, held_ms=IDLE_MS if step.idle else erasures.HELD_MS)
    return Gone(moved, step)


def _next(at: _At) -> _At:
    stages = [*STAGES, FILE_STAGE]
    return _At(stages[stages.index(at.stage) + 1])


def _behind(at: _At, until: Place | None) -> _At:
    """Return where to go on: behind the stretch, or in the next stage."""
    return _next(at) if until is None else _At(at.stage, until, at.again)


def _behind_all(at: _At, until: Place | None, *, again: bool) -> _At:
    """Return where to go on if what was left out has to be looked at again."""
    again = at.again or again
    if until is not None:
        return _At(at.stage, until, again)
    return _At(at.stage) if again else _next(at)


def _messages(whose: _Whose, at: _At) -> Work[_Outcome]:
    found, until = yield from _MESSAGES.go_on(whose.tenant, at.after, user_id=whose.user)
    if found:
        heard = rows_of({"message_id": each} for (each,) in found)
        yield _FORGET_HEARD(tenant=whose.tenant, heard=heard)
    return Step({"channel_messages": len(found)}), _behind(at, until)


def _conversations(whose: _Whose, at: _At) -> Work[_Outcome]:
    found, until = yield from _CONVERSATIONS.go_on(whose.tenant, at.after, user_id=whose.user)
    return Step({"conversations": len(found)}), _behind(at, until)


def _sessions(whose: _Whose, at: _At) -> Work[_Outcome]:
    """Erase the user's sessions: before them, what was forked off them, and all their runs."""
    (after,) = at.after or ("",)
    found = yield _SESSIONS_OF_USER(tenant=whose.tenant, user_id=whose.user, after=after)
    page = [session_id for (session_id,) in found]
    if not page:
        return Step(idle=at.again), _behind_all(at, None, again=False)
    these, forks = page, page
    while forks:
        these = forks
        forks = [each for (each,) in (yield _FORKS(these=rows_of_ids(these), tenant=whose.tenant))]
    inside = yield _RUNS_IN(these=rows_of_ids(these), tenant=whose.tenant, limit=RUNS_MAX)
    if not inside:
        closed = yield from close_sessions(whose.tenant, these, whose.cause)
        step = Step({"sessions": len(closed)})
        return step, at if closed else _At(at.stage, [page[-1]], again=True)
    step = yield from _remove(whose, [each for (each,) in inside])
    return step, at if step.runs else _At(at.stage, [page[-1]], again=True)


def _runs(whose: _Whose, at: _At) -> Work[_Outcome]:
    """Erase the user's runs in sessions of others."""
    found, until = yield from _RUNS.go_on(whose.tenant, at.after, user_id=whose.user)
    if not found:
        then = _behind_all(at, until, again=False)
        return Step(idle=until is None and at.again), then
    step = yield from _remove(whose, [each for (each,) in found])
    if step.runs:
        return step, at
    return step, _behind_all(at, [found[-1][0]], again=True)


def _remove(whose: _Whose, run_ids: Sequence[str]) -> Work[Step]:
    removed = yield from remove_runs(whose.tenant, run_ids, whose.cause, forks=True)
    if removed.gone:
        yield _UNNAME_USAGE(
            these=rows_of_ids(removed.gone), tenant=whose.tenant, user_id=whose.user
        )
    return Step({"runs": len(removed.gone)}, removed.gone, removed.busy)


def _memories(whose: _Whose, at: _At) -> Work[_Outcome]:
    gone = yield from memories.delete_of_user(whose.tenant, whose.user)
    return Step({"memories": gone}), at if gone >= DELETE_MAX else _next(at)


def _schedules(whose: _Whose, at: _At) -> Work[_Outcome]:
    found, until = yield from _SCHEDULES.go_on(whose.tenant, at.after, user_id=whose.user)
    return Step({"schedules": len(found)}), _behind(at, until)


def _batches(whose: _Whose, at: _At) -> Work[_Outcome]:
    """Erase the user's batches; those that are open are cancelled first."""
    found, until = yield from _BATCHES.go_on(whose.tenant, at.after, user_id=whose.user)
    gone = 0
    for batch_id, status in found:
        if status in schema.BATCH_OPEN:
            yield from batches.cancel(
                whose.tenant, batch_id, by="erasure", reason=None, now_ms=whose.now_ms
            )
        else:
            yield from batches.delete(whose.tenant, batch_id)
            gone += 1
    is_open = gone < len(found)
    return Step({"batches": gone}, idle=is_open), _behind_all(at, until, again=is_open)


def _answers(whose: _Whose, at: _At) -> Work[_Outcome]:
    """Keep what the user has answered in others' runs, but neither the name nor the words."""
    signature = yield from _signature(whose)
    gone, until = yield from unsigning.approvals(whose.tenant, signature, at.after)
    return Step({"approvals_unnamed": gone}), _behind(at, until)


def _grants(whose: _Whose, at: _At) -> Work[_Outcome]:
    signature = yield from _signature(whose)
    until = yield from unsigning.grants(whose.tenant, signature, at.after)
    return Step(), _behind(at, until)


def _signature(whose: _Whose) -> Work[Signature]:
    assert whose.cause.erasure_id is not None, "an erasure is the cause"
    own_keys = yield from keys.named_of_subject(whose.tenant, whose.user)
    called = frozenset({whose.user, *own_keys.values()})
    return Signature(whose.user, frozenset(own_keys), whose.cause.erasure_id, called)


def _usage(whose: _Whose, at: _At) -> Work[_Outcome]:
    found, until = yield from _USAGE.go_on(whose.tenant, at.after, user_id=whose.user)
    return Step({"usage_rows_unnamed": len(found)}), _behind(at, until)


def _rates(whose: _Whose, at: _At) -> Work[_Outcome]:
    """Forget how often the user's calls were made: the name stands in what is counted."""
    found, until = yield from _RATES.go_on(whose.tenant, at.after)
    counted = rows_of({"key": key} for (key,) in found if key.endswith(f":user:{whose.user}"))
    yield tuple(statement(tenant=whose.tenant, counted=counted) for statement in _FORGET_RATES)
    return Step(), _behind(at, until)


def _audit(whose: _Whose, at: _At) -> Work[_Outcome]:
    """Keep that something was done, and to what, but not the name, nor what was said."""
    signature = yield from _signature(whose)
    found, until = yield from _AUDIT.go_on(whose.tenant, at.after)
    told = {act_id: (actor, orjson.loads(details)) for act_id, actor, _, details in found}
    about = {act_id: _about(target, told[act_id][1]) for act_id, _, target, _ in found}
    gone = yield from _gone({each for ids in about.values() for each in ids})
    retold = {
        act_id: (
            signature.without(actor),
            _reduced(said) if about[act_id] & gone else _unsaid(actor, said, signature),
        )
        for act_id, (actor, said) in told.items()
    }
    changed = [
        {"id": act_id, "actor": actor, "details": orjson.dumps(said).decode()}
        for act_id, (actor, said) in retold.items()
        if (actor, said) != told[act_id]
    ]
    if changed:
        yield _RETELL(tenant=whose.tenant, said=rows_of(changed))
    return Step({"audit_rows_unnamed": len(changed)}), _behind(at, until)


def _unsaid(actor: str, said: Any, signature: Signature) -> Any:
    """Return what was written down without the user, and without his words where he did it."""
    unnamed = _unnamed(said, signature.user)
    if isinstance(unnamed, dict) and signature.is_theirs(actor):
        return {key: None if key in _OWN_WORDS else value for key, value in unnamed.items()}
    return unnamed


def _requests(whose: _Whose, at: _At) -> Work[_Outcome]:
    """Forget which requests made what is gone."""
    found, until = yield from _REQUESTS.go_on(whose.tenant, at.after)
    about = {
        (scope, key): set(_ID.findall(f"{scope} {resource_id}"))
        for scope, key, resource_id in found
    }
    gone = yield from _gone({each for ids in about.values() for each in ids})
    asked = [{"scope": scope, "key": key} for (scope, key), ids in about.items() if ids & gone]
    if asked:
        yield _FORGET_REQUESTS(tenant=whose.tenant, asked=rows_of(asked))
    return Step({"requests": len(asked)}), _behind(at, until)


def _names(whose: _Whose, at: _At) -> Work[_Outcome]:
    """Erase what bears the user's name: keys that speak for them, and budgets that are theirs."""
    yield tuple(statement(tenant=whose.tenant, user_id=whose.user) for statement in _FORGET_NAMES)
    return Step(), _next(at)


def _leftovers(whose: _Whose, at: _At) -> Work[_Outcome]:
    """Wait until nothing is left outside the database."""
    assert whose.cause.erasure_id is not None, "an erasure is the cause"
    left = yield from leftovers.any_of(whose.cause.erasure_id)
    return Step(idle=left), at if left else _next(at)


STAGES: Mapping[str, Callable[[_Whose, _At], Work[_Outcome]]] = {
    "messages": _messages,
    "conversations": _conversations,
    "schedules": _schedules,
    "batches": _batches,
    "sessions": _sessions,
    "runs": _runs,
    "memories": _memories,
    "answers": _answers,
    "grants": _grants,
    "usage": _usage,
    "rates": _rates,
    "audit": _audit,
    "requests": _requests,
    "names": _names,
    "leftovers": _leftovers,
}


def _gone(ids: set[str]) -> Work[set[str]]:
    """Return which of these are ids of nothing any more."""
    these = rows_of_ids(sorted(ids))
    found = yield tuple(statement(these=these) for statement in _THERE)
    return ids - {each for there in found for (each,) in there}


def _about(target: str, details: Any) -> set[str]:
    run_id = details.get("run_id") if isinstance(details, dict) else None
    return set(_ID.findall(f"{target} {run_id}"))


def _reduced(said: Any) -> Any:
    """Return what was written down without any words but ids."""
    match said:
        case dict():
            return {key: _reduced(value) for key, value in said.items()}
        case list():
            return [_reduced(value) for value in said]
        case str() if not _KEPT.fullmatch(said):
            return None
        case _:
            return said


def _unnamed(said: Any, user: str) -> Any:
    """Return what was written down without the user."""
    match said:
        case dict():
            return {
                key: value if key in _VOCABULARY else _unnamed(value, user)
                for key, value in said.items()
            }
        case list():
            return [_unnamed(value, user) for value in said]
        case str() if user in (said, user_at_chat(said)):
            return None
        case _:
            return said
