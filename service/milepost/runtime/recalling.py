"""Recall: what of all that is known a run is told, found by what it was asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.core.agents import Agent
from milepost.core.memories import MemoryKind, MemoryScope, Owner, sought
from milepost.memory import knowledge, telling
from milepost.memory.ranking import fused
from milepost.memory.telling import Noted
from milepost.runtime.clock import Clock
from milepost.runtime.vectors import Vectors
from milepost.store import memories
from milepost.store.memories import MemoryRow
from milepost.store.records import Claim
from milepost.store.store import Store
from milepost.store.usage import Account
from milepost.store.work import Work

MATCHES_MAX = 60
RELATIONS_MAX = 20
NEAR_MAX = 30
NEAREST = 3
# Relations are told if they are asked about, and never because they are new.
RECENT_MAX: dict[MemoryKind, int] = {"entity": 20, "fact": 20, "log": 20}
# Who is asked about something has it told before what was only said of late.
_WEIGHTS = (2.0, 2.0, 1.0)


class StoredRecall:
    """Finds what is worth telling a run, over a store."""

    def __init__(self, store: Store, clock: Clock, vectors: Vectors | None = None) -> None:
        self._store = store
        self._clock = clock
        self._vectors = vectors

    async def context(self, claim: Claim, agent: Agent, query: str) -> str:
        """Return what the run is told beside its session, a section a kind; nothing if nothing is.

        What was noted is what users have said: each of it is one line, and no more than a line.
        """
        wanted = agent.memory.recall if agent.memory else None
        if wanted is None:
            return ""
        owners = owners_of(wanted.scopes, claim.session_id, claim.user, agent.id)
        named = sought(query)
        recent_ms = knowledge.since_ms(self._clock(), wanted.recent_days)
        matches, recent = await self._store.read(_look(claim.tenant, owners, named, recent_ms))
        near: Sequence[MemoryRow] = ()
        # What guardrails have not looked at yet goes to no model.
        if self._vectors and recent and not (agent.guardrails and agent.guardrails.input):
            account = Account(
                claim.tenant,
                claim.user,
                claim.run_id,
                claim.session_id,
                agent.name,
                agent.id,
                claim.metadata,
            )
            near = await self._vectors.nearest(account, owners, query, NEAR_MAX)
        return told(Found(matches, near, recent), named, recent_ms)


def owners_of(
    scopes: Sequence[MemoryScope], session_id: str, user: str | None, agent_id: str
) -> list[Owner]:
    """Return whose memories these scopes are in a run; of a run for nobody there is no user's."""
    ids: dict[MemoryScope, str | None] = {
        "session": session_id,
        "user": user,
        "agent": agent_id,
        "tenant": "",
    }
    return [Owner(scope, owner) for scope in scopes if (owner := ids[scope]) is not None]


@dataclass(frozen=True, slots=True)
class Found:
    """What may be worth telling: by its words, by its meaning (the best first), and by its time."""

    matches: Sequence[MemoryRow]
    near: Sequence[MemoryRow]
    recent: Sequence[MemoryRow]

    @property
    def best(self) -> list[MemoryRow]:
        """All of it, the best first."""
        rows = {row.number: row for row in (*self.matches, *self.near, *self.recent)}
        latest = sorted(self.recent, key=lambda row: (-row.seen_ms, -row.number))
        rankings = ([row.number for row in each] for each in (self.matches, self.near, latest))
        return [rows[number] for number in fused(*rankings, weights=_WEIGHTS)]


def both(matches: Sequence[MemoryRow], near: Sequence[MemoryRow]) -> list[MemoryRow]:
    """Return what was found by words and by meaning, what is both first."""
    return Found(matches, near, ()).best


def told(found: Found, named: Sequence[str], recent_ms: int) -> str:
    """Return the best of what was found as one text."""
    asked = {*named, *(word for row in found.near[:NEAREST] for word in row.finding.words.split())}
    best = [Noted(row.finding, row.seen_ms) for row in found.best]
    return telling.told(best, asked, recent_ms)


def _look(
    tenant: str, owners: Sequence[Owner], named: Sequence[str], recent_ms: int
) -> Work[tuple[list[MemoryRow], list[MemoryRow]]]:
    matches: list[MemoryRow] = []
    if named:
        matches = yield from memories.matching(tenant, owners, named, MATCHES_MAX)
        related = yield from memories.matching(
            tenant, owners, named, RELATIONS_MAX, kind="relation"
        )
        known = {row.number for row in matches}
        matches += [row for row in related if row.number not in known]
    most = {kind: (limit, recent_ms if kind == "log" else 0) for kind, limit in RECENT_MAX.items()}
    return matches, (yield from memories.recent(tenant, owners, most))


def in_a_line(row: MemoryRow) -> str:
    """Return what the memory says as one line."""
    return telling.in_a_line(Noted(row.finding, row.seen_ms))
