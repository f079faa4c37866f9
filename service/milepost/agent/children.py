"""Agents that are tools of others, in process: each call a run of its own, on the same loop."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

import orjson

from milepost.agent.result import AgentResult
from milepost.agent.run_log import RunLog
from milepost.core.agents import Agent, Bounds
from milepost.core.effects import CallTool
from milepost.core.events import ChildRunStarted, Event, Failure, Parent, ToolCallFailed
from milepost.core.evolve import fold
from milepost.core.ids import child_run_id
from milepost.core.json import Json
from milepost.core.state import State
from milepost.live.hub import Hub, inbox_bell
from milepost.runtime.agent_spec import AGENT_PREFIX
from milepost.runtime.children import LETTER, below, left_of, trace_below
from milepost.runtime.journal import ending
from milepost.store.records import Claim
from milepost.tools import Registry

PART_S_MAX = 15.0


@dataclass(frozen=True, slots=True)
class ChildOrder:
    """A call of an agent, `tool`, as the run that it becomes."""

    tool: str
    task: str
    run_id: str
    parent: Parent
    bounds: Bounds | None
    deadline_ms: int | None
    trace_parent: str
    user: str | None
    cache: bool


StartChild = Callable[[ChildOrder], Coroutine[None, None, AgentResult]]


class InProcessChildren:
    """The runs that one run's calls of agents became."""

    def __init__(self, start: StartChild, log: RunLog, hub: Hub) -> None:
        self.results: list[AgentResult] = []
        self._start = start
        self._log = log
        self._hub = hub
        self._ordered: dict[str, ChildOrder] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def join(self, tools: Registry, _agent: Agent, _tenant: str) -> Registry:
        """Return the tools: agents are among them from the beginning."""
        return tools

    async def start(
        self, effect: CallTool, seq: int, claim: Claim, agent: Agent, state: State
    ) -> Event:
        """Order the run that the call becomes; it begins once the log says so."""
        call_id = effect.call.id
        parent = below(claim, call_id, state)
        if isinstance(parent, Failure):
            return ToolCallFailed(call_id, parent)
        run_id = child_run_id(claim.run_id, call_id)
        self._ordered[run_id] = ChildOrder(
            tool=effect.call.name,
            task=str(effect.arguments["input"]),
            run_id=run_id,
            parent=parent,
            bounds=left_of(agent, state),
            deadline_ms=state.deadline_ms,
            trace_parent=trace_below(claim, seq),
            user=claim.user,
            cache=state.cache,
        )
        return ChildRunStarted(call_id, run_id, effect.call.name.removeprefix(AGENT_PREFIX))

    def see(self, happened: Sequence[Event]) -> None:
        """Begin what the log tells of: an answer before that would find nobody who awaits it."""
        for event in happened:
            if isinstance(event, ChildRunStarted):
                order = self._ordered.pop(event.run_id)
                task = asyncio.create_task(self._run(order), name=order.run_id)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def call_off(self, _claim: Claim, state: State, _within_s: float) -> frozenset[str]:
        """Cancel what runs still; return the runs that are over."""
        await self.stop()
        going_on = {task.get_name() for task in self._tasks}
        return state.open_children - going_on

    async def part(self, _claim: Claim, _state: State) -> None:
        """Stop the runs that nobody waits for any more."""
        await self.stop()

    async def stop(self) -> None:
        """Cancel what runs still, and let it come to its end."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=PART_S_MAX)

    async def _run(self, order: ChildOrder) -> None:
        """Run it, and tell the parent by letter; what it raises is its failure."""
        try:
            result = await self._start(order)
        except Exception as error:
            failed: Json = {"code": "internal", "message": repr(error)}
            self._tell(order, "failed", {"error": failed})
            return
        self.results.append(result)
        self._tell(order, result.status, _outcome(result))

    def _tell(self, order: ChildOrder, status: str, outcome: Json) -> None:
        said: dict[str, Json] = {
            "call_id": order.parent.call_id,
            "run_id": order.run_id,
            "status": status,
            "outcome": outcome,
        }
        self._log.deliver(LETTER, said)
        self._hub.ring(inbox_bell(order.parent.run_id))


def _outcome(result: AgentResult) -> Json:
    told = ending(result.last, fold(result.record.events), 0).outcome
    assert told is not None, "a terminal event has an outcome"
    outcome: Json = orjson.loads(told)
    return outcome
