"""What an agent is: a versioned definition that says how its runs behave."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from milepost.core.guardrails import Guardrails
from milepost.core.json import Json
from milepost.core.memories import SCOPES, MemoryScope
from milepost.core.policy import Policy

LoopAction = Literal["warn", "stop"]
StructureMode = Literal["auto", "native", "instructed"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a run. Durations are in seconds.

    A failed model call is made again after `retry_backoff_s`, twice that, and so on; one that was
    limited in its rate waits as many times `rate_limit_cooldown_s` on top.

    `max_tokens` counts what went in and came out, `active_s` the time in a worker's hands: waiting
    for a person costs none. At `warn_at`, a share of a bound, the log says so once. None: no bound.
    """

    max_steps: int = 6
    model_retries: int = 2
    retry_backoff_s: float = 1.0
    rate_limit_cooldown_s: float = 5.0
    tool_timeout_s: float = 60.0
    approval_ttl_s: float = 86_400.0
    temperature: float | None = None
    max_output_tokens: int | None = None
    top_p: float | None = None
    stop_sequences: tuple[str, ...] = ()
    reasoning_effort: str | None = None
    model_timeout_s: float | None = None
    max_model_calls: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd_micros: int | None = None
    active_s: float | None = None
    warn_at: float = 0.8


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a run may take besides its agent's own limits; None: no more bound than theirs."""

    max_model_calls: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd_micros: int | None = None


@dataclass(frozen=True, slots=True)
class Compression:
    """Tool results of more than `threshold_chars` characters are made shorter by `model`."""

    model: str
    threshold_chars: int = 2_000


@dataclass(frozen=True, slots=True)
class StructuredOutput:
    """Answers fit a JSON Schema (2020-12), or are asked for again, `retries` times at most.

    `native`: the vendor is told the schema; `instructed`: the model is; `auto`: as the provider
    can.
    """

    schema: Mapping[str, Json]
    name: str = "answer"
    retries: int = 2
    mode: StructureMode = "auto"


@dataclass(frozen=True, slots=True)
class LoopDetection:
    """When a run turns in a circle: so many calls in a row that are the same (`repeat`), that bring
    the same (`stall`), or so many turns of two calls that take turns (`ping_pong`).
    """

    repeat: int = 3
    stall: int = 3
    ping_pong: int = 3
    action: LoopAction = "warn"


@dataclass(frozen=True, slots=True)
class StopRule:
    """A result that ends the run: of a tool whose name fits the glob `tool`.

    `contains` is what its text must hold; None: any result does.
    """

    tool: str
    contains: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """How much of a session a run is shown: so many messages, so many tokens, or what comes first.

    None: no bound of that kind.
    """

    messages: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Summarize:
    """What falls out of the window is told in a few sentences by `model`."""

    model: str


@dataclass(frozen=True, slots=True)
class Extract:
    """What is learned of each run once it is over, by which model, and whose memory it becomes."""

    model: str
    entities: bool = True
    relations: bool = True
    facts: bool = True
    scope: MemoryScope = "session"


@dataclass(frozen=True, slots=True)
class Remembered:
    """Of whose memories a run is told, and of how many days the log: today is one."""

    scopes: tuple[MemoryScope, ...] = SCOPES
    recent_days: int = 2


@dataclass(frozen=True, slots=True)
class Memory:
    """What an agent's runs know of what was said before them, and what is learned of them.

    `recall` is None where runs are told of nothing.
    """

    window: Window | None = None
    summarize: Summarize | None = None
    extract: Extract | None = None
    recall: Remembered | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    """One version of an agent. It never changes: a change makes the next version.

    `model` is `<provider>/<model>`; `policy` is None where the tools' own gates are all there is.
    `cache_ttl_s` is None unless the agent asks for its model's replies to be cached, `compression`
    unless it asks for long tool results to be made shorter. `fallbacks` are models to be asked, one
    after the other, when `model` gives no reply. Without `parallel_tools` the calls of a step are
    made one after the other; with `routing_only` none is made: to choose is all.
    """

    id: str
    version: int
    name: str
    model: str
    instructions: str = ""
    tools: tuple[str, ...] = ()
    policy: Policy | None = None
    limits: Limits = field(default_factory=Limits)
    cache_ttl_s: float | None = None
    compression: Compression | None = None
    fallbacks: tuple[str, ...] = ()
    parallel_tools: bool = True
    routing_only: bool = False
    response_format: StructuredOutput | None = None
    loop_detection: LoopDetection | None = None
    stop_when: tuple[StopRule, ...] = ()
    guardrails: Guardrails | None = None
    memory: Memory | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def provider(self) -> str:
        """The part of `model` that names the provider."""
        return self.model.partition("/")[0]

    @property
    def model_name(self) -> str:
        """The part of `model` that the provider knows."""
        return self.model.partition("/")[2]
