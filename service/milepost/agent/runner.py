"""What makes runs of one agent, in the place that they share."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from milepost.agent.answer_format import AnswerFormat, answer_format
from milepost.agent.asking import Options, Spoken
from milepost.agent.children import ChildOrder
from milepost.agent.ledger import Ledger
from milepost.agent.observer import Observer
from milepost.agent.result import AgentResult
from milepost.agent.running import Order, Plan, Running
from milepost.agent.stream import OnChunk
from milepost.agent.telling import Telling
from milepost.agent.workplace import Workplace
from milepost.core.errors import InvalidError
from milepost.core.events import InputMessage


@dataclass(frozen=True, slots=True)
class Runner:
    """One agent's. `agents` are those that it may call, by the names of their tools."""

    plan: Plan
    answer: AnswerFormat | None
    workplace: Workplace
    ledger: Ledger
    observers: Sequence[Observer]
    metadata: Mapping[str, str]
    agents: Mapping[str, "Runner"]

    @property
    def name(self) -> str:
        """What the agent is called."""
        return self.plan.written.agent.name

    async def run(
        self,
        said: Spoken,
        options: Options,
        *,
        batch_id: str | None = None,
        child: ChildOrder | None = None,
        on_chunk: OnChunk | None = None,
    ) -> AgentResult:
        """Run to the end, and count what it took, however it ended.

        A run of a conversation waits until those before it are over.
        """
        talk = options.conversation
        if talk is not None and said.before:
            raise InvalidError(
                "what was said before is in the conversation; hand in what is said now alone"
            )
        async with talk.turn() if talk is not None else nullcontext():
            return await self._run(said, options, batch_id, child, on_chunk)

    async def _run(
        self,
        said: Spoken,
        options: Options,
        batch_id: str | None,
        child: ChildOrder | None,
        on_chunk: OnChunk | None,
    ) -> AgentResult:
        wanted = options.response_format
        order = Order(
            options=replace(options, trace_metadata={**self.metadata, **options.trace_metadata}),
            answer=self.answer if wanted is None else answer_format(wanted),
            start_child=self._start_child,
            batch_id=batch_id,
            child=child,
            on_chunk=on_chunk,
        )
        async with self.workplace.held() as equipment:
            telling = Telling(self.observers, self.name)
            running = Running(self.plan, said, order, equipment, telling)
            hearing = options.steering.heard_by(running.hear) if options.steering else nullcontext()
            try:
                with hearing:
                    return await running.result()
            finally:
                self.ledger.add(running.log.usage, running.log.events)

    async def _start_child(self, order: ChildOrder) -> AgentResult:
        said = Spoken((), (InputMessage("user", order.task),))
        options = Options(user=order.user, cache=order.cache)
        return await self.agents[order.tool].run(said, options, child=order)
