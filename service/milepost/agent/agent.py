"""`Agent`: agents in one's own process, with no server and no database."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Never, Self, TypeVar, Unpack

from milepost.agent.answer_format import AnswerFormat, ResponseFormat, answer_format
from milepost.agent.approval import ApprovalHandler, ConfirmAction
from milepost.agent.approver import TIMEOUT_S
from milepost.agent.asking import Messages, RunOptions, conversation, metadata_fault, options_of
from milepost.agent.batch import Batch, OnProgress
from milepost.agent.definition import Written, as_tool, models_of, written
from milepost.agent.gate import RequireApproval, gate_of
from milepost.agent.ledger import Ledger
from milepost.agent.observer import Observer
from milepost.agent.providers import Providers
from milepost.agent.result import AgentResult
from milepost.agent.runner import Runner
from milepost.agent.running import Plan
from milepost.agent.stream import Pending, StreamChunk
from milepost.agent.telling import require_known_methods
from milepost.agent.workplace import Workplace
from milepost.core.agents import Compression, Limits, LoopDetection, Memory, StopRule
from milepost.core.codec import NANOS_PER_DOLLAR
from milepost.core.errors import ConfigurationError, InvalidError
from milepost.core.guardrails import Guardrails
from milepost.core.model import Provider
from milepost.core.policy import Policy
from milepost.core.usage import Usage
from milepost.providers.function import Answer
from milepost.runtime.agent_spec import AGENT_PREFIX
from milepost.runtime.children import agent_tool
from milepost.tools import Tool

CONCURRENCY = 5
CONCURRENCY_ASYNC = 10

T = TypeVar("T")

AnyTool = Tool | Callable[..., Any]
"""A tool, a function decorated with `@tool`, or another agent."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agent:
    """An agent. It never changes, and its runs share nothing but what `providers` keep open.

    `model` is `<provider>/<model>`; who the provider is, `Providers` says. Among the `tools` may be
    other agents, which then answer in runs of their own: `description` tells their callers what
    they are for. `limits`, `policy`, `guardrails`, `compression`, `memory`, `loop_detection` and
    `stop_when` are records, or dicts in the words of the service; rails in Python may stand in
    `guardrails` themselves. `stop_condition` is asked of every result as its tool brought it, and
    ends the run with it; if it raises, the run fails.

    Calls that `require_approval` names, or the policy or their tool does, are put to
    `approval_handler`, or else to `confirm_action`: only True, or a `Decision`, lets them be made.
    Without either they are denied.

    `secrets` are what its tools get where a parameter is marked with a `Secret`, by their names.

    `run` and its like wait for the run, wherever they are called; `arun` and its like are awaited.
    A run's failure is a result, too: `raise_for_status` raises it. Within `with` or `async with`,
    connections stay open from run to run.
    """

    model: str = field(kw_only=False)
    instructions: str = ""
    tools: Sequence[AnyTool] = ()
    name: str = "agent"
    description: str = ""
    providers: Providers | Mapping[str, Provider | Answer] | None = None
    fallbacks: Sequence[str] = ()
    limits: Limits | Mapping[str, object] = field(default_factory=dict)
    response_format: ResponseFormat | None = None
    policy: Policy | Mapping[str, object] | None = None
    require_approval: RequireApproval = ()
    approval_handler: ApprovalHandler | None = None
    confirm_action: ConfirmAction | None = None
    approval_timeout_s: float = TIMEOUT_S
    guardrails: Guardrails | Mapping[str, object] | None = None
    compression: Compression | Mapping[str, object] | None = None
    memory: Memory | Mapping[str, object] | None = None
    loop_detection: LoopDetection | Mapping[str, object] | None = None
    stop_when: Sequence[StopRule | Mapping[str, object]] = ()
    stop_condition: Callable[[str, Any], bool] | None = None
    parallel_tools: bool = True
    routing_only: bool = False
    cache_ttl_s: float | None = None
    observers: Sequence[Observer] = ()
    trace_metadata: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    _runner: Runner = field(init=False, repr=False)

    def __post_init__(self) -> None:
        tools = _listed("tools", self.tools)
        agents = {AGENT_PREFIX + each.name: each for each in tools if isinstance(each, Agent)}
        gate = gate_of(
            self.require_approval,
            self.approval_handler,
            self.confirm_action,
            self.approval_timeout_s,
        )
        found = gate.around(self._written(tools))
        observers = _listed("observers", self.observers)
        if fault := metadata_fault(self.trace_metadata):
            raise ConfigurationError(f"agent {self.name!r}: {fault}")
        if not isinstance(self.secrets, Mapping):
            raise ConfigurationError(f"agent {self.name!r}: secrets is no dict of texts by name")
        given = self.providers
        providers = given if isinstance(given, Providers) else Providers(given)
        providers.require(models_of(found.agent))
        runner = Runner(
            plan=Plan(found, self.stop_condition, gate.approver, has_agents=bool(agents)),
            answer=self._answer_format(),
            workplace=Workplace(providers, self.secrets),
            ledger=Ledger(),
            observers=tuple(require_known_methods(each) for each in observers),
            metadata=dict(self.trace_metadata),
            agents={name: each._runner for name, each in agents.items()},  # noqa: SLF001 - its own
        )
        object.__setattr__(self, "tools", tools)
        object.__setattr__(self, "providers", providers)
        object.__setattr__(self, "_runner", runner)

    def __reduce__(self) -> Never:
        """Refuse to be copied or pickled."""
        raise TypeError(
            f"agent {self.name!r} holds connections and threads, and cannot be copied or pickled;"
            " make such an agent with dataclasses.replace(agent), and in another process from its"
            " parts"
        )

    def _written(self, tools: Sequence[AnyTool]) -> Written:
        described = {
            "name": self.name,
            "model": self.model,
            "instructions": self.instructions,
            "fallbacks": self.fallbacks,
            "limits": self.limits,
            "policy": self.policy,
            "guardrails": self.guardrails,
            "compression": self.compression,
            "memory": self.memory,
            "loop_detection": self.loop_detection,
            "stop_when": self.stop_when,
            "parallel_tools": self.parallel_tools,
            "routing_only": self.routing_only,
            "cache": None if self.cache_ttl_s is None else {"ttl_s": self.cache_ttl_s},
        }
        return written(described, map(_tool, tools))

    def _answer_format(self) -> AnswerFormat | None:
        try:
            return answer_format(self.response_format)
        except InvalidError as error:
            raise ConfigurationError(f"agent {self.name!r}: {error}") from error

    # --- Running ---

    def run(self, messages: Messages, **options: Unpack[RunOptions]) -> AgentResult:
        """Run, and wait for the result. On a loop that runs already, better await `arun`."""
        return self._runner.workplace.run(self.arun(messages, **options))

    async def arun(self, messages: Messages, **options: Unpack[RunOptions]) -> AgentResult:
        """Run. Whoever cancels this ends the run."""
        return await self._runner.run(conversation(messages), options_of(options))

    async def astream(
        self, messages: Messages, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[StreamChunk | AgentResult, None]:
        """Run, and yield what is new as it comes; the result is the last. Leaving ends the run."""
        said, asked, pending = conversation(messages), options_of(options), Pending()
        run = asyncio.create_task(self._runner.run(said, asked, on_chunk=pending.put))
        run.add_done_callback(lambda _: pending.close())
        try:
            while (chunk := await pending.take()) is not None:
                yield chunk
            yield await run
        finally:
            if not run.done():
                run.cancel()
                await asyncio.wait({run})
            if not run.cancelled():
                run.exception()  # Else asyncio would print what a run raised that somebody left.

    def ask(self, prompt: str, **options: Unpack[RunOptions]) -> AgentResult:
        """Run with one text."""
        return self.run(prompt, **options)

    async def aask(self, prompt: str, **options: Unpack[RunOptions]) -> AgentResult:
        """Run with one text."""
        return await self.arun(prompt, **options)

    def __call__(self, messages: Messages, **options: Unpack[RunOptions]) -> AgentResult:
        """Run, and wait for the result."""
        return self.run(messages, **options)

    def batch(
        self,
        inputs: Sequence[Messages],
        *,
        max_concurrency: int = CONCURRENCY,
        on_progress: OnProgress | None = None,
        **options: Unpack[RunOptions],
    ) -> list[AgentResult]:
        """Run once for each input, so many at a time; results are in the order of the inputs."""
        work = self.abatch(
            inputs, max_concurrency=max_concurrency, on_progress=on_progress, **options
        )
        return self._runner.workplace.run(work)

    async def abatch(
        self,
        inputs: Sequence[Messages],
        *,
        max_concurrency: int = CONCURRENCY_ASYNC,
        on_progress: OnProgress | None = None,
        **options: Unpack[RunOptions],
    ) -> list[AgentResult]:
        """Run once for each input, as `batch` does."""
        batch = Batch(self._runner, inputs, options_of(options), max_concurrency)
        return await batch.results(on_progress)

    # --- Other agents like this one ---

    def with_tools(self, *tools: AnyTool, replacing: bool = False) -> "Agent":
        """Return such an agent with these tools as well, in the place of any of the same name."""
        names = {_tool(each).name for each in tools} if replacing else set()
        kept = [each for each in self.tools if _tool(each).name not in names]
        return replace(self, tools=(*kept, *tools))

    def without_tools(self, *names: str) -> "Agent":
        """Return such an agent without the tools of these names."""
        return replace(self, tools=[each for each in self.tools if _tool(each).name not in names])

    # --- What its runs have taken ---

    @property
    def usage(self) -> Usage:
        """What all runs so far have taken."""
        return self._runner.ledger.usage

    @property
    def total_cost(self) -> float:
        """Their cost in dollars; `usage.cost_nanos` has it exactly."""
        return self.usage.cost_nanos / NANOS_PER_DOLLAR

    @property
    def total_tokens(self) -> int:
        """Their tokens, in and out."""
        return self.usage.input_tokens + self.usage.output_tokens

    @property
    def tool_usage(self) -> Mapping[str, int]:
        """How often each tool was run."""
        return self._runner.ledger.tools

    def usage_summary(self) -> str:
        """Return all that for people."""
        return self._runner.ledger.summary()

    def reset_usage(self) -> None:
        """Count from zero. There is nothing else to reset: no run leaves anything to the next."""
        self._runner.ledger.reset()

    # --- Keeping connections open ---

    def __enter__(self) -> Self:
        """Keep connections, and a loop in a thread of its own, from run to run."""
        self._runner.workplace.keep_thread()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close them."""
        self._runner.workplace.leave_thread()

    async def __aenter__(self) -> Self:
        """Keep connections from run to run, on this loop."""
        await self._runner.workplace.keep()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close them."""
        await self._runner.workplace.leave()


def _listed(name: str, given: Sequence[T]) -> tuple[T, ...]:
    if isinstance(given, str | Mapping) or not hasattr(given, "__iter__"):
        raise TypeError(f"{name} is {given!r}, and no list; write {name}=[...]")
    return tuple(given)


def _tool(given: AnyTool) -> Tool:
    if isinstance(given, Agent):
        return agent_tool(AGENT_PREFIX + given.name, given.name, given.description or None)
    return as_tool(given)
