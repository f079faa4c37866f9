"""What drives need, all real but for the model: a store, a hub, tools, and a clock one can turn."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import select

from milepost.core.agents import Agent, Limits, StructuredOutput
from milepost.core.approvers import Approver
from milepost.core.codec import decode, encode
from milepost.core.errors import FencedError
from milepost.core.events import Event, InputMessage, RunQueued
from milepost.core.json import Json
from milepost.core.model import Delta, ModelRequest, Provider, TextDelta
from milepost.core.policy import Policy
from milepost.core.usage import Usage
from milepost.live.hub import QUEUE_BELL, Hub, inbox_bell
from milepost.providers.catalog import Catalog
from milepost.providers.pricing import Pricing
from milepost.providers.rate_limits import RateLimited
from milepost.providers.scripted import Script, Scripted, saying
from milepost.providers.windows import InProcessWindows, Quota
from milepost.runtime.artifacts import Shelf
from milepost.runtime.clock import Ids, now_ms
from milepost.runtime.drive import Drive, drive
from milepost.runtime.history import History
from milepost.runtime.journal import Ports
from milepost.runtime.means import Means
from milepost.runtime.stored_children import StoredChildren
from milepost.runtime.stored_rates import StoredRates
from milepost.runtime.stored_transactions import StoredTransactions
from milepost.runtime.tenant_policies import TenantPolicies
from milepost.store import approvals, log, queue, runs, schema, usage
from milepost.store.address import SqliteAddress
from milepost.store.approvals import ApprovalFilter, ApprovalRow, Decided, Decision, Edit
from milepost.store.blobs import DirectoryBlobs
from milepost.store.dialect import text
from milepost.store.records import Claim, Entry, InboxMessage, NewRun, Page
from milepost.store.runs import Letter, RunRow
from milepost.store.store import Store
from milepost.store.thread import SqliteThreadStore
from milepost.store.work import Rows, Statement, Work
from milepost.telemetry.metrics import Metrics
from milepost.tools import Invoker, Registry, ToolThreads, tool_of
from tests.store.conftest import opened, serving

TENANT = "acme"
TTL_MS = 60_000
TIMEOUT_S = 10
AT_ONCE = Limits(retry_backoff_s=0, rate_limit_cooldown_s=0)


class Clock:
    """The machine's clock, turned forward at will.

    Whoever looks at it leaves a moment in which something else can happen: `interrupt` has it.
    """

    def __init__(self) -> None:
        self.ahead_ms = 0
        self._looks_left = 0
        self._meanwhile: Callable[[], None] | None = None

    def __call__(self) -> int:
        self._looks_left -= 1
        if self._meanwhile and self._looks_left <= 0:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return now_ms() + self.ahead_ms

    def interrupt(self, look: int, meanwhile: Callable[[], None]) -> None:
        """Have something happen during the `look`-th look from now on."""
        self._looks_left = look
        self._meanwhile = meanwhile


class Lease:
    """A lease that stands until it is said to have lapsed."""

    def __init__(self) -> None:
        self.lapsed = False
        self.asked = asyncio.Event()

    def check(self) -> None:
        """Raise `FencedError` once it has lapsed."""
        self.asked.set()
        if self.lapsed:
            raise FencedError("the lease may have lapsed; start nothing new")


class Held:
    """A model that says something, and then nothing until it is let go."""

    def __init__(self, *said: Delta, rest: Script = ()) -> None:
        self._said = said
        self._rest = rest
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self.closed = asyncio.Event()

    async def stream(self, _: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Say it, and wait."""
        try:
            for delta in self._said or (TextDelta("Well, "),):
                yield delta
            self.reached.set()
            await self.go.wait()
            for step in (self._rest,) if isinstance(self._rest, Exception) else self._rest:
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.closed.set()


class UsedUp:
    """A model that has no turn left in this minute, and gets none in the next."""

    def __init__(self) -> None:
        quota = Quota(requests=1, queue_s=100)
        self._limited = RateLimited(
            Scripted([saying("taken")]), InProcessWindows(), quota, name="acme", sleep=self._wait
        )
        self.reached = asyncio.Event()

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer the first, and have all others wait."""
        return self._limited.stream(request)

    async def _wait(self, _: float) -> None:
        self.reached.set()
        await asyncio.Event().wait()


async def used_up() -> UsedUp:
    """Return a model whose one turn is taken."""
    model = UsedUp()
    async for _ in model.stream(ModelRequest(TENANT, "model", ())):
        pass
    return model


class Turns:
    """Several models, one after the other."""

    def __init__(self, *models: Provider) -> None:
        self._models = list(models)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Have the next model answer."""
        return self._models.pop(0).stream(request)


@dataclass
class Workshop:
    """A store with a hub, and runs in it."""

    store: Store
    threads: ToolThreads
    path: Path
    hub: Hub = field(default_factory=Hub)
    clock: Clock = field(default_factory=Clock)
    lease: Lease = field(default_factory=Lease)
    new_id: Ids = field(default_factory=Ids)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        shelf = Shelf(self.store, DirectoryBlobs(self.path.parent / "artifacts"))
        self.ports = Ports(self.store, self.hub, self.clock, self.new_id, self.metrics, shelf)
        self.history = History(self.store)

    # --- What there is to drive with ---

    def agent(self, *tools: Callable[..., Any], limits: Limits = AT_ONCE, **rest: Any) -> Agent:
        """Return an agent that may use these tools."""
        names = tuple(tool_of(each).name for each in tools)
        given = {"instructions": "", "policy": None, **rest}
        return Agent("agt_1", 1, "clerk", "test/model", tools=names, limits=limits, **given)

    def means(
        self, model: Provider | Iterable[Script], *tools: Callable[..., Any], **changes: Any
    ) -> Means:
        """Return what a drive needs, with this model and these tools."""
        provider: Provider = Scripted(model) if isinstance(model, Iterable) else model
        policies = TenantPolicies(self.ports.store, clock=self.ports.clock)
        means = Means(
            ports=self.ports,
            providers=Catalog({"test": provider}),
            tools=Registry(map(tool_of, tools)),
            invoker=Invoker(self.threads, may_start=self.lease.check),
            pricing=Pricing(),
            lease=self.lease,
            lease_wait_s=0.0,
            children=StoredChildren(self.ports),
            standing_of=self.ports.store.outlasting(policies.of),
            rates=StoredRates(self.ports.store),
            transactions=StoredTransactions(self.ports.store),
        )
        return replace(means, **changes)

    # --- Runs, from outside ---

    async def queue(
        self,
        said: str = "Go.",
        *,
        session_id: str | None = None,
        agent: Agent | None = None,
        response_format: StructuredOutput | None = None,
        **changes: Any,
    ) -> NewRun:
        """Queue a run, in a session of its own unless told otherwise."""
        now = self.clock()
        run_id = self.new_id("run")
        session = session_id or self.new_id("ses")
        named = agent or Agent("agt_1", 1, "clerk", "test/model")
        queued = RunQueued(
            named.name,
            named.id,
            named.version,
            session,
            (InputMessage("user", said),),
            deadline_ms=changes.get("deadline_ms"),
            response_format=response_format,
        )
        new = NewRun(
            id=run_id,
            tenant=TENANT,
            session_id=session,
            session_is_new=session_id is None,
            agent_id=named.id,
            agent=named.name,
            agent_version=named.version,
            user=None,
            metadata="{}",
            lane=0,
            created_ms=now,
            scheduled_ms=None,
            deadline_ms=None,
            trace_parent=None,
            queued=Entry(queued.type, now, encode(queued).decode()),
        )
        new = replace(new, **changes)
        await self.store.create(new)
        self.hub.ring(QUEUE_BELL)
        return new

    async def worker(self) -> str:
        """Register a worker."""
        worker = self.new_id("wrk")
        await self.store.write(queue.register(worker, TTL_MS))
        return worker

    async def claim(self, worker: str | None = None) -> Claim:
        """Claim the one run that is ready."""
        worker = worker or await self.worker()
        taken = await self.store.write(queue.claim(worker, 10, self.new_id("apd"), self.clock()))
        (claim,) = taken
        return claim

    async def take_over(self) -> Claim:
        """Let the run's worker die, and return the claim of the next one."""
        await self.store.write(queue.dismiss_others("nobody"))
        await self.store.write(queue.sweep())
        return await self.claim()

    async def row(self, run_id: str) -> RunRow:
        """Return the run's row."""
        return await self.store.read(runs.find(TENANT, run_id))

    async def log(self, run_id: str) -> list[Event]:
        """Return the run's events, having checked that their numbers have no gap."""
        entries = await self.store.read(log.read_all(TENANT, run_id))
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        found = [decode(entry.type, entry.data) for entry in entries]
        return [event for event in found if event]

    async def types(self, run_id: str) -> list[str]:
        """Return the names of the run's events."""
        return [event.type for event in await self.log(run_id)]

    async def written(self, run_id: str) -> list[tuple[str, str]]:
        """Return which append wrote each event, with the event's name."""
        found = await self.store.read(_written(run_id))
        return [(append_id, kind) for append_id, kind in found]

    async def used(self, run_id: str) -> Usage:
        """Return what the run has used, by its usage rows."""
        return await self.store.read(usage.total(TENANT, run_id))

    async def inbox(self, run_id: str) -> list[InboxMessage]:
        """Return what nobody has read yet."""
        _, letters = await self.store.read(log.inbox(TENANT, run_id, 0))
        return letters

    async def pending(self) -> list[ApprovalRow]:
        """Return the approvals that are open, oldest first."""
        wanted = ApprovalFilter(status="pending")
        return await self.store.read(
            approvals.search(TENANT, wanted, Page(limit=100, ascending=True))
        )

    async def decide(
        self, approval: ApprovalRow, answer: str = "approve", *, edit: Edit | None = None
    ) -> None:
        """Answer a question as the API does."""
        await self.store.write(deciding(approval, answer, edit))
        self.ring(approval.run_id)

    async def deliver(self, run_id: str, kind: str, said: Mapping[str, Json], why: str) -> None:
        """Put something into the run's inbox as the API does."""
        await self.put(run_id, kind, said, why)
        self.ring(run_id)

    async def put(self, run_id: str, kind: str, said: Mapping[str, Json], why: str) -> None:
        """Put something into the run's inbox, and tell nobody."""
        await self.store.write(putting(run_id, kind, said, why))

    def at_once(self, work: Work[object]) -> None:
        """Do work from another thread's connection, while the event loop stands still."""
        other = SqliteThreadStore(self.path)
        try:
            other.write(work)
        finally:
            other.close()

    async def cancel(self, run_id: str) -> None:
        """Ask for the run's end."""
        await self.deliver(run_id, "cancel", {"by": "ann", "reason": "typo"}, "cancel")

    def ring(self, run_id: str) -> None:
        """Ring for the run, as whoever put something into its inbox does."""
        self.hub.ring(inbox_bell(run_id))
        self.hub.ring(QUEUE_BELL)

    async def seen(self, run_id: str, kind: str) -> None:
        """Wait until an event of this kind is durable; somebody must be driving the run."""
        with self.hub.listen(run_id) as (tail, woken):
            async with asyncio.timeout(TIMEOUT_S):
                while not any(frame.type == kind for frame in tail.ring):
                    woken.clear()
                    await woken.wait()

    # --- Runs, driven ---

    async def driving(self, claim: Claim, agent: Agent, means: Means) -> Drive:
        """Return what drives the claimed run."""
        return await drive(claim, agent, self.history, means)

    async def driven(
        self,
        model: Provider | Iterable[Script],
        *tools: Callable[..., Any],
        agent: Agent | None = None,
        **changes: Any,
    ) -> str:
        """Queue a run, drive it until it is let go, and return its id."""
        run = await self.queue(**changes)
        await self.go_on(model, *tools, agent=agent)
        return run.id

    async def go_on(
        self,
        model: Provider | Iterable[Script],
        *tools: Callable[..., Any],
        agent: Agent | None = None,
        claim: Claim | None = None,
    ) -> None:
        """Claim the one run that is ready and drive it until it is let go."""
        claim = claim or await self.claim()
        named = agent or self.agent(*tools)
        driven = await self.driving(claim, named, self.means(model, *tools))
        await asyncio.wait_for(driven.run(), TIMEOUT_S)


@contextlib.asynccontextmanager
async def working(path: Path) -> AsyncIterator[Workshop]:
    """Open a workshop on a migrated SQLite file."""
    threads = ToolThreads(4)
    async with opened(SqliteAddress(path)) as engine, serving(Store(engine)) as store:
        yield Workshop(store, threads, path)
    threads.close()


@contextlib.asynccontextmanager
async def in_background(driven: Drive) -> AsyncIterator["asyncio.Task[None]"]:
    """Drive a run while the test goes on; the test must see to it that it comes to an end."""
    task = asyncio.create_task(driven.run())
    try:
        yield task
        await asyncio.wait_for(task, TIMEOUT_S)
    finally:
        task.cancel()


def deciding(
    approval: ApprovalRow, answer: str = "approve", edit: Edit | None = None
) -> Work[Decided]:
    """Return the work of answering a question."""
    who = Approver("ann")
    decision = Decision(answer, "ann", "so be it", edit=edit, who=who)  # type: ignore[arg-type]
    return approvals.decide(TENANT, approval.id, decision, now_ms())


def putting(run_id: str, kind: str, said: Mapping[str, Json], why: str) -> Work[str | None]:
    """Return the work of putting something into a run's inbox."""
    return runs.deliver(TENANT, run_id, Letter(kind, orjson.dumps(said).decode(), why, now_ms()))


_E = schema.events.c
_WRITTEN = Statement(
    select(_E.append_id, _E.type).where(_E.run_id == text("run_id")).order_by(_E.seq)
)


def _written(run_id: str) -> Work[Rows]:
    found: Rows = yield _WRITTEN(run_id=run_id)
    return found


def of(events: Sequence[Event], *kinds: type) -> list[Any]:
    """Return the events of these kinds."""
    return [event for event in events if isinstance(event, kinds)]


ASK = Policy(ask=("*",))
