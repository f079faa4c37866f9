"""Whoever sees all: checks each change as it becomes durable, and each step into the world."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson

from milepost.core.canonical import call_digest
from milepost.store.records import STEER_LETTER
from milepost.store.schema import ACTIVE, ENDED
from milepost.tools import Absent, Found, ToolContext, Unknown
from tests.simulation.agents import GATED
from tests.simulation.database import CLAIMS, Sight
from tests.simulation.times import Times

if TYPE_CHECKING:
    from tests.simulation.host import Host
    from tests.simulation.world import World

TERMINAL = frozenset(f"run.{status}" for status in ENDED)
_MOVES = {
    None: {"scheduled", "blocked", "queued"},
    "scheduled": {"queued", "blocked", "cancelled", "expired"},
    "blocked": {"queued", "cancelled", "expired"},
    "queued": {"running", "cancelled", "expired"},
    "running": {"queued", "waiting", *ENDED},
    "waiting": {"queued", "cancelled", "expired"},
}
# A model may be asked a moment after the lease was looked at, and hosts stand still at any moment.
MODEL_SLACK_MS = 500


@dataclass(slots=True)
class Seen:
    """A run as far as it has become durable."""

    id: str
    session_id: str
    status: str
    owner: str | None
    epoch: int
    last: int = 0
    claimed_epoch: int = 0
    is_over: bool = False
    held_by: str = ""
    arrival: int = 0
    attempts: Counter[str] = field(default_factory=Counter)


class Watch:
    """Sees what is durable and what is done, in order; the first wrong thing ends it all."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.runs: dict[str, Seen] = {}
        self.sessions: dict[str, list[Seen]] = {}
        self.approvals: dict[str, str] = {}
        self.letters: list[tuple[str, str, dict[str, Any]]] = []
        self.executions: list[tuple[str, str, str, int]] = []
        self.done_keys: set[str] = set()
        self.begun_keys: set[str] = set()
        self.counted: Counter[str] = Counter()
        self.dead: set[str] = set()
        self.hosts: dict[str, str] = {}
        self._arrivals = 0
        self.times = Times(world, self)
        self.on_news: Callable[[str, str, dict[str, Any]], None] = lambda *_: None

    # --- What has become durable ---

    def saw(self, sights: list[Sight]) -> None:
        """Take note of the changes of one transaction, in their order."""
        for kind, *rest in sights:
            match kind:
                case "event":
                    self._saw_event(*rest)
                case "run":
                    self._saw_run(*rest)
                case "approval":
                    self._saw_approval(*rest)
                case "letter":
                    self._saw_letter(*rest)
                case "schedule":
                    self.times.saw(*rest)
                case _:
                    self._saw_worker(*rest)
        for session_id in dict.fromkeys(rest[2] for rest in sights if rest[0] == "run"):
            active = [seen.id for seen in self.sessions[session_id] if seen.status in ACTIVE]
            self.require(len(active) <= 1, f"{session_id} has {active} active at once")
        self.times.require_all_told()

    def _saw_event(self, run_id: str, seq: int, epoch: int, _: str, kind: str, said: str) -> None:
        run = self.runs[run_id]
        self._world.tell("event", run_id, seq, epoch, kind)
        self.require(seq == run.last + 1, f"{run_id}: event {seq} stands behind {run.last}")
        self.require(not run.is_over, f"{run_id}: {kind} is behind the run's end")
        self.require(
            epoch == run.epoch, f"{run_id}: {kind} of epoch {epoch} was written under {run.epoch}"
        )
        run.last = seq
        run.is_over = kind in TERMINAL
        if kind in CLAIMS:
            self.require(epoch > run.claimed_epoch, f"{run_id}: epoch {epoch} was claimed twice")
            run.claimed_epoch = epoch
            self.counted["claims"] += 1
            self._world.storm.take_over(self.hosts.get(run.held_by, ""))
            run.held_by = run.owner or ""
        elif kind == "tool_call.started":
            run.attempts[orjson.loads(said)["call_id"]] += 1
        elif kind in {"approval.requested", "run.waiting"}:
            self.on_news(kind, run_id, orjson.loads(said))
        if run.is_over:
            self.counted[kind] += 1
            self._world.end_if_over()

    def _saw_run(
        self,
        run_id: str,
        session_id: str,
        old: str | None,
        new: str,
        owner: str | None,
        epoch: int,
    ) -> None:
        self._world.tell("run", run_id, old, new, owner, epoch)
        if old is None:
            self.runs[run_id] = Seen(run_id, session_id, new, owner, epoch)
            self.sessions.setdefault(session_id, []).append(self.runs[run_id])
            self._arrive(self.runs[run_id])
            return
        run = self.runs[run_id]
        moved = f"{run_id}: from {old} of {run.owner} under {run.epoch} to {new}"
        self.require(new in _MOVES[old], f"{moved} of {owner}")
        self.require(epoch >= run.epoch, f"{moved}, and epoch {epoch}")
        if new == "running":
            self.require(epoch == run.epoch + 1, f"{moved}, and epoch {epoch}")
        if (old, new) == ("blocked", "queued"):
            self._require_next(run)
        if old == "scheduled":
            self._arrive(run)
        if old == "running" and new == "queued":
            self.require(
                run.owner in self.dead or self.hosts.get(run.owner or "") == self._writer,
                f"{moved} by {self._writer}, though its worker lives",
            )
        run.status, run.owner, run.epoch = new, owner, epoch

    def _arrive(self, run: Seen) -> None:
        """Take note of when a run came to its session: a scheduled one comes when it is due."""
        self._arrivals += 1
        run.arrival = self._arrivals

    def _require_next(self, run: Seen) -> None:
        """A session's runs begin in the order in which they came to it."""
        before = [
            other.id
            for other in self.sessions[run.session_id]
            if other.status == "blocked" and other.arrival < run.arrival
        ]
        self.require(not before, f"{run.id} has its turn before {before}")

    def _saw_approval(
        self, approval_id: str, run_id: str, old: str | None, new: str, decision: str | None, _: str
    ) -> None:
        self._world.tell("approval", approval_id, run_id, old, new, decision)
        if old is not None:
            self.require(
                self.approvals[approval_id] == "pending",
                f"{approval_id} was {self.approvals[approval_id]}, and became {new}",
            )
        self.approvals[approval_id] = new

    def _saw_letter(self, run_id: str, seq: int, kind: str, said: str, *_: object) -> None:
        self._world.tell("letter", run_id, seq, kind)
        self.letters.append((run_id, kind, orjson.loads(said)))

    def _saw_worker(self, worker: str, was_dead: int, is_dead: int, *_: object) -> None:
        self._world.tell("worker", worker, "dead" if is_dead else "revived")
        self.require(not was_dead, f"{worker} was declared dead, and lives again")
        self.dead.add(worker)

    # --- What is done in the world ---

    def thought(self, host: "Host", plan: int, step: int, asides: tuple[str, ...]) -> None:
        """A model is asked by `host`, and reads what people said to its run meanwhile."""
        self._world.tell("model", host.name, f"plan {plan}", f"step {step}", *asides)
        self.counted["model calls"] += 1
        self.counted["messages read by models"] += len(asides)
        came = [said["content"] for _, kind, said in self.letters if kind == STEER_LETTER]
        read = [came.index(aside) for aside in asides]
        self.require(
            all(before < after for before, after in pairwise(read)),
            f"the model of plan {plan} reads {asides}, and said was {came}",
        )

    def began(self, host: "Host", context: ToolContext, number: int) -> None:
        """A tool's function is entered on `host`."""
        run_id, call_id, tool = context.run_id, context.call_id, context.tool
        what = f"{tool} {number} ({run_id} {call_id}) on {host.worker_id}"
        self._world.tell("tool", host.name, run_id, call_id, tool, number, context.attempt)
        self.counted[f"{tool} calls"] += 1
        self._require_lease(host.worker_id, what)
        run = self.runs[run_id]
        self.require(
            run.is_over or (run.status, run.owner) == ("running", host.worker_id),
            f"{what} was started, and the run is {run.status} of {run.owner}",
        )
        self.require(
            run.attempts[call_id] >= context.attempt, f"{what} was started before the log said so"
        )
        again = [each for each in self.executions if each[:2] == (run_id, call_id)]
        if tool in {"pay", "wire"}:
            allowed = self._not_happened(run_id, call_id)
            self.require(len(again) <= allowed, f"{what} was attempted {len(again) + 1} times")
        if tool in GATED:
            self._require_approved(context, number, what)
        self.executions.append((run_id, call_id, tool, number))
        self.begun_keys.add(context.idempotency_key)

    def acted(self, host: "Host", context: ToolContext) -> None:
        """A tool has acted."""
        self._world.tell("acted", host.name, context.run_id, context.call_id)
        self.done_keys.add(context.idempotency_key)

    def looked_up(self, key: str) -> Found | Absent | Unknown:
        """Return what a checkable tool's own side knows of a call."""
        if key in self.done_keys:
            return Found("found")
        return Unknown() if key in self.begun_keys else Absent()

    def _require_lease(self, worker: str, what: str) -> None:
        rows = self._world.database.rows("SELECT dead, until_ms FROM workers WHERE id = ?", worker)
        ((dead, until_ms),) = rows
        left_ms = until_ms - self._world.now_ms()
        self.require(
            not dead and left_ms > 0,
            f"{what} was started {-left_ms:.0f} ms after the lease had lapsed (dead: {dead})",
        )

    def _require_approved(self, context: ToolContext, number: int, what: str) -> None:
        digest = call_digest(context.tool, {"number": number})
        given = self._world.database.rows(
            "SELECT status, digest FROM approvals WHERE run_id = ? AND call_id = ?"
            " AND kind = 'call'",
            context.run_id,
            context.call_id,
        )
        self.require(
            ("approved", digest) in given, f"{what} was started, and its approvals are {given}"
        )

    def _not_happened(self, run_id: str, call_id: str) -> int:
        """Return how often a person has said that the call did not happen."""
        return sum(
            letter[0] == run_id
            and letter[2].get("call_id") == call_id
            and letter[2].get("decision") == "not_happened"
            for letter in self.letters
        )

    @property
    def _writer(self) -> str:
        return self._world.database.writer

    def require(self, holds: bool, otherwise: str) -> None:
        """End the simulation unless this holds."""
        if not holds:
            self._world.violate(otherwise)
