"""People and programs outside: they start runs, answer questions, change their minds, ask twice."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from milepost.api.access import Principal
from milepost.api.approval_bodies import ApprovalDecision
from milepost.api.deciding import UNKNOWN_ORIGIN
from milepost.api.replays import once
from milepost.api.runs import _sent_on
from milepost.api.steers import _brought, _the_same
from milepost.core.codec import encode
from milepost.core.errors import MilepostError, UnavailableError
from milepost.core.events import InputMessage, RunQueued
from milepost.live.hub import QUEUE_BELL, inbox_bell, ring_for
from milepost.runtime.cancelling import Cancellation, cancel_run
from milepost.runtime.steering import letter_of
from milepost.store import runs
from milepost.store.idempotency import Asked
from milepost.store.records import Entry, NewRun, Request
from milepost.store.runs import Letter
from tests.simulation.agents import ASIDE, TENANT, Plan

if TYPE_CHECKING:
    from tests.simulation.host import Host
    from tests.simulation.world import World

T = TypeVar("T")

REFUSALS = frozenset(
    {
        "approval_decided", "approval_expired", "approval_withdrawn", "digest_mismatch",
        "not_waiting_for_operator", "run_over", "schedule_not_found",
    }
)  # fmt: skip
PATIENCE_S = 4.0
TRIES_MAX = 40
SCOPES = frozenset({"runs:write", "approvals:decide"})
ANN = Principal(TENANT, "key_ann", "ann", SCOPES, "ann")
BOB = Principal(TENANT, "key_bob", "bob", SCOPES, "bob")


@dataclass(slots=True)
class Wish:
    """A run that somebody wants, and what is known of it outside."""

    plan: Plan
    key: str | None
    at_s: float
    delay_s: float | None = None
    deadline_s: float | None = None
    behind: "Wish | None" = None
    cancel_after_s: float | None = None
    says_after_s: tuple[float, ...] = ()
    made: list[tuple[str, str]] = field(default_factory=list)
    is_settled: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Answered:
    """A yes or no that the service has taken."""

    approval_id: str
    decision: str


class Clients:
    """All who ask something of the hosts. What they were told is kept, to be held against it."""

    def __init__(self, world: "World", wishes: list[Wish]) -> None:
        self._world = world
        self._random: Random = world.random
        self.wishes = wishes
        self.answers: list[Answered] = []
        self.cancelled: list[str] = []
        self.said: list[tuple[str, str]] = []
        self.busy = 0
        self._minds: dict[str, float] = {}

    def start(self) -> None:
        """Begin to ask."""
        for wish in self.wishes:
            self.begin(self._want, wish)

    def hear(self, kind: str, run_id: str, said: dict[str, Any]) -> None:
        """React to an event that has become known."""
        if kind == "approval.requested":
            self.begin(self._answer, run_id, said)
        elif kind == "run.waiting" and said["for"] == "operator":
            self.begin(self._retry, run_id)

    def lose_patience(self, worker: str) -> None:
        """Want what a worker has in hand to stop."""
        for run in list(self._world.watch.runs.values()):
            if run.owner == worker and run.status == "running":
                self.begin(self._cancel, run.id, None)

    def begin(self, act: Callable[..., Awaitable[None]], *about: object) -> None:
        """Have somebody do something; all is not over until they have."""
        self.busy += 1
        self._world.loop.spawn(self._world.clients, self._act(act, about))

    async def _act(self, act: Callable[..., Awaitable[None]], about: tuple[object, ...]) -> None:
        try:
            await act(*about)
        except Exception as error:
            self._world.violate(f"a client was told {error!r}")
        finally:
            self.busy -= 1
            self._world.end_if_over()

    # --- Starting and stopping runs ---

    async def _want(self, wish: Wish) -> None:
        await asyncio.sleep(wish.at_s)
        if wish.behind is not None:
            await wish.behind.is_settled.wait()
        twice = wish.key is not None and self._random.random() < 0.3
        try:
            await asyncio.gather(*(self._create(wish) for _ in range(1 + twice)))
        finally:
            wish.is_settled.set()
        if wish.made:
            for number, after_s in enumerate(wish.says_after_s):
                self.begin(self._say, wish, f"{wish.plan.number}{number}", after_s)
        if wish.made and wish.cancel_after_s is not None:
            await asyncio.sleep(wish.cancel_after_s)
            run_id = wish.made[0][0]
            twice = self._random.random() < 0.3
            key = f"cancel {wish.plan.number}" if self._random.random() < 0.5 else None
            await asyncio.gather(*(self._cancel(run_id, key) for _ in range(1 + twice)))

    async def _create(self, wish: Wish) -> None:
        session_id = None
        if wish.behind is not None:
            if not wish.behind.made:
                return
            session_id = wish.behind.made[0][1]

        async def create(host: "Host") -> tuple[str, str]:
            new = new_run(host, wish, session_id)
            created = await host.store.create(new)
            if created.replayed:
                row = await host.store.read(runs.find(TENANT, created.run_id))
                return row.id, row.session_id
            if created.status == "queued":
                host.hub.ring(QUEUE_BELL)
            return new.id, new.session_id

        made = await self.ask(create, is_repeatable=wish.key is not None)
        self._world.tell("made", wish.plan.said, made)
        if made is not None:
            wish.made.append(made)

    async def _cancel(self, run_id: str, key: str | None) -> None:
        async def cancel(host: "Host") -> bool:
            asked = self.asked(host, f"POST /v1/runs/{run_id}/cancel", key, run_id)
            return await cancel_run(
                host.ports, Cancellation(TENANT, run_id, "ann", "a change of mind", asked)
            )

        was_over = self._world.watch.runs[run_id].is_over
        replayed = await self.ask(cancel, is_repeatable=True)
        self._world.tell("cancelled", run_id, replayed)
        if replayed is not None and not was_over:
            self.cancelled.append(run_id)

    async def _say(self, wish: Wish, number: str, after_s: float) -> None:
        """Say something to a run that may be at anything by now, or over."""
        await asyncio.sleep(after_s)
        run_id = wish.made[0][0]
        key = f"say {number}" if self._random.random() < 0.5 else None
        said = InputMessage("user", f"{ASIDE}{number}")

        async def say(host: "Host") -> str:
            message_id, now = host.new_id("ste"), host.now_ms()
            asked = self.asked(host, f"POST /v1/runs/{run_id}/messages", key, message_id)
            letter = letter_of(said, message_id, "ann")
            effect = _brought(TENANT, run_id, message_id, letter, now)
            made = await host.store.write(once(asked, effect, _the_same))
            if not made.replayed:
                ring_for(host.hub, run_id)
            return made.resource

        twice = key is not None and self._random.random() < 0.3
        asking = (self.ask(say, is_repeatable=key is not None) for _ in range(1 + twice))
        for message_id in await asyncio.gather(*asking):
            self._world.tell("said", run_id, said.content, message_id)
            if message_id is not None:
                self.said.append((run_id, message_id))

    async def _retry(self, run_id: str) -> None:
        await asyncio.sleep(self._random.random() * 2)

        async def retry(host: "Host") -> bool:
            now = host.now_ms()
            letter = Letter("retry", orjson.dumps({"by": "ann"}).decode(), "retry", now)
            find = runs.find(TENANT, run_id)
            effect = _sent_on(find, letter)
            made = await host.store.write(once(None, effect, lambda _: find))
            host.hub.ring(QUEUE_BELL)
            host.hub.ring(inbox_bell(run_id))
            return made.replayed

        self._world.tell("retried", run_id, await self.ask(retry, is_repeatable=True))

    # --- Answering questions ---

    async def _answer(self, run_id: str, asked: dict[str, Any]) -> None:
        """Be of one mind, of two, of none, or too late."""
        chance = self._random.random()
        if chance < 0.1 and self._world.weather.is_rough:
            return
        if chance < 0.3:
            left_ms = asked["expires_at_ms"] - self._world.now_ms()
            await asyncio.sleep(max(0.0, left_ms / 1000 + self._random.uniform(-0.02, 0.02)))
        else:
            # Whoever answers a run's questions answers all at once, and may be tired of it then.
            after_s = self._minds.setdefault(run_id, self._random.random() ** 2 * 3)
            await asyncio.sleep(after_s + self._random.random() ** 2 * 0.02)
            if self._random.random() < 0.1:
                self.begin(self._cancel, run_id, None)
        people = 2 if self._random.random() < 0.4 else 1
        await asyncio.gather(*(self._decide(asked) for _ in range(people)))

    async def _decide(self, asked: dict[str, Any]) -> None:
        approval_id = asked["approval_id"]
        who = self._random.choice((ANN, BOB))
        decision, edit = self._choose(asked)
        key = f"{who.name} {decision} {edit}" if self._random.random() < 0.5 else None
        body = ApprovalDecision.model_validate({"decision": decision, "arguments": edit})

        async def decide(host: "Host") -> str:
            path = f"POST /v1/approvals/{approval_id}/decision"
            wish = self.asked(host, path, key, approval_id)
            made = await host.deciding.decide(who, approval_id, body, wish, UNKNOWN_ORIGIN)
            return made.resource.approval.status

        for _ in range(1 + (self._random.random() < 0.2)):
            status = await self.ask(decide, is_repeatable=True)
            self._world.tell("decided", who.name, approval_id, decision, edit, status)
            if status is not None:
                self.answers.append(Answered(approval_id, decision))

    def _choose(self, asked: dict[str, Any]) -> tuple[str, dict[str, int] | None]:
        if asked["kind"] == "outcome":
            return self._random.choice(("happened", "not_happened", "stop")), None
        chance = self._random.random()
        if chance < 0.2:
            return "approve", {"number": asked["arguments"]["number"] + 1_000}
        return ("approve" if chance < 0.75 else "deny"), None

    # --- Asking a host ---

    def asked(self, host: "Host", scope: str, key: str | None, resource: str) -> Asked | None:
        """Return what a request with this key asks for, None without one."""
        if key is None:
            return None
        return Asked(TENANT, Request(scope, key, "same"), resource, host.now_ms())

    async def ask(self, act: "Callable[[Host], Awaitable[T]]", *, is_repeatable: bool) -> T | None:
        """Ask some host, and another one if there is no answer; None if all said no."""
        for _ in range(TRIES_MAX):
            up = [host for host in self._world.hosts if host.is_up]
            if not up:
                await asyncio.sleep(0.3)
                continue
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await self._random.choice(up).ask(act)
            except (UnavailableError, ConnectionResetError, TimeoutError):
                if not is_repeatable:
                    return None
                await asyncio.sleep(0.2 + self._random.random())
            except MilepostError as error:
                if not error.retryable or not is_repeatable:
                    self._world.tell("refused", error.code, str(error))
                    if error.code not in REFUSALS:
                        self._world.violate(f"a client was refused: {error.code}, {error}")
                    return None
                await asyncio.sleep(0.2 + self._random.random())
        return None


def new_run(host: "Host", wish: Wish, session_id: str | None) -> NewRun:
    """Return the run that a request becomes on this host, as the API makes it."""
    now, agent = host.now_ms(), wish.plan.agent
    session = session_id or host.new_id("ses")
    deadline_ms = None if wish.deadline_s is None else now + round(wish.deadline_s * 1000)
    scheduled_ms = None if wish.delay_s is None else now + round(wish.delay_s * 1000)
    queued = RunQueued(
        agent.name,
        agent.id,
        agent.version,
        session,
        (InputMessage("user", wish.plan.said),),
        deadline_ms=deadline_ms,
        reason="ready" if scheduled_ms is None else "scheduled",
    )
    request = Request("POST /v1/runs", wish.key, wish.plan.said) if wish.key else None
    return NewRun(
        id=host.new_id("run"),
        tenant=TENANT,
        session_id=session,
        session_is_new=session_id is None,
        agent_id=agent.id,
        agent=agent.name,
        agent_version=agent.version,
        user=None,
        metadata=orjson.dumps({"wish": str(wish.plan.number)}).decode(),
        lane=0,
        created_ms=now,
        scheduled_ms=scheduled_ms,
        deadline_ms=deadline_ms,
        trace_parent=None,
        queued=Entry(queued.type, now, encode(queued).decode()),
        request=request,
        made_by=ANN.id,
    )
