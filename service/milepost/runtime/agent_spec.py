"""An agent as people write it: in a request, or in a file that is applied at start."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from milepost.core.agents import (
    Agent,
    Compression,
    Extract,
    Limits,
    LoopAction,
    LoopDetection,
    Memory,
    Remembered,
    StopRule,
    StructuredOutput,
    StructureMode,
    Summarize,
    Window,
)
from milepost.core.errors import InvalidError
from milepost.core.guardrails import Guardrails
from milepost.core.memories import SCOPES, MemoryScope
from milepost.providers.catalog import Catalog
from milepost.runtime.guardrail_spec import GuardrailsSpec, require_rails, show_guardrails
from milepost.runtime.policy_spec import PolicySpec, show_policy
from milepost.runtime.spec import EXACT, Glob, ModelName
from milepost.runtime.structured import require_judged
from milepost.tools import Registry

TTL_S_MAX = 30 * 86_400
COUNT_MAX = 2**53 - 1
WINDOW_MESSAGES_MAX = 1_000
AGENT_PREFIX = "agent:"

Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")]
Metadata = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=64, pattern=r'^[^"\]]*$')],
        Annotated[str, Field(max_length=500)],
    ],
    Field(max_length=32),
]


class Spec(BaseModel):
    """Known fields of exactly their types."""

    model_config = EXACT


class CacheSpec(Spec):
    """Whether the model's replies are cached, and for how long (seconds)."""

    ttl_s: Annotated[float, Field(gt=0, le=TTL_S_MAX)]


class CompressionSpec(Spec):
    """Which model makes tool results shorter, the agent's own unless named, and beyond what length.

    The length is in characters.
    """

    model: ModelName | None = None
    threshold_chars: Annotated[int, Field(ge=1, le=1_000_000)] = 2_000


class ResponseFormatSpec(Spec):
    """The JSON Schema that answers must fit."""

    type: Literal["json_schema"] = "json_schema"
    fits: Annotated[dict[str, Any], Field(alias="schema")]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "answer"
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    mode: StructureMode = "auto"

    @model_validator(mode="before")
    @classmethod
    def _has_its_schema_below(cls, said: Any) -> Any:
        if isinstance(said, dict) and "schema" not in said:
            raise ValueError("the JSON Schema stands under `schema`")
        return said

    @field_validator("fits")
    @classmethod
    def _can_be_judged(cls, schema: dict[str, Any]) -> dict[str, Any]:
        try:
            require_judged(schema)
        except InvalidError as error:
            raise ValueError(str(error)) from error
        return schema


Turns = Annotated[int, Field(ge=2, le=30)]


class LoopDetectionSpec(Spec):
    """After how many rounds a run turns in a circle, and what is done then."""

    repeat: Turns = 3
    stall: Turns = 3
    ping_pong: Turns = 3
    action: LoopAction = "warn"


class StopRuleSpec(Spec):
    """A tool result that ends the run: of which tools, and with what text in it."""

    tool: Glob
    contains: Annotated[str, Field(min_length=1, max_length=1_000)] | None = None


class WindowSpec(Spec):
    """How much of its session a run is shown."""

    messages: Annotated[int, Field(ge=1, le=WINDOW_MESSAGES_MAX)] | None = None
    tokens: Annotated[int, Field(ge=1, le=COUNT_MAX)] | None = None

    @model_validator(mode="after")
    def _bounds_something(self) -> "WindowSpec":
        if self.messages is None and self.tokens is None:
            raise ValueError("a window has a bound on `messages`, on `tokens`, or on both")
        return self


class SummarizeSpec(Spec):
    """Which model tells what fell out of the window, the agent's own unless named."""

    model: ModelName | None = None


class ExtractSpec(Spec):
    """What is learned of each run, by which model (the agent's own unless named), and for whom."""

    entities: bool = True
    relations: bool = True
    facts: bool = True
    model: ModelName | None = None
    scope: MemoryScope = "session"

    @model_validator(mode="after")
    def _learns_something(self) -> "ExtractSpec":
        if not (self.entities or self.relations or self.facts):
            raise ValueError("name something to be learned: entities, relations or facts")
        return self


class RecallSpec(Spec):
    """Of whose memories runs are told, and of how many days the log."""

    scopes: Annotated[list[MemoryScope], Field(max_length=4)] = [*SCOPES]
    recent_days: Annotated[int, Field(ge=1, le=366)] = 2


class MemorySpec(Spec):
    """What runs know of what was said before them, and what is learned of them."""

    window: WindowSpec | None = None
    summarize: SummarizeSpec | None = None
    extract: ExtractSpec | None = None
    recall: RecallSpec | None = None

    def memory(self, model: str) -> Memory:
        """Return it, for an agent of this model."""
        window, summarize, extract = self.window, self.summarize, self.extract
        # Who learns is told of it, unless somebody says of what else.
        recall = self.recall or (RecallSpec() if extract else None)
        return Memory(
            window=Window(window.messages, window.tokens) if window else None,
            summarize=Summarize(summarize.model or model) if summarize else None,
            extract=Extract(**{**extract.model_dump(), "model": extract.model or model})
            if extract
            else None,
            recall=Remembered(tuple(recall.scopes), recall.recent_days) if recall else None,
        )


class LimitsSpec(Spec):
    """The bounds of a run; what is not named keeps its default. Durations are in seconds."""

    max_steps: Annotated[int, Field(ge=1, le=1_000)] | None = None
    model_retries: Annotated[int, Field(ge=0, le=10)] | None = None
    retry_backoff_s: Annotated[float, Field(ge=0, le=600)] | None = None
    rate_limit_cooldown_s: Annotated[float, Field(ge=0, le=600)] | None = None
    tool_timeout_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    approval_ttl_s: Annotated[float, Field(gt=0, le=366 * 86_400)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stop_sequences: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=16)]
        | None
    ) = None
    reasoning_effort: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,40}$")] | None = None
    model_timeout_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    max_model_calls: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_tool_calls: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=COUNT_MAX)] | None = None
    max_cost_usd_micros: Annotated[int, Field(ge=1, le=COUNT_MAX)] | None = None
    active_s: Annotated[float, Field(gt=0, le=366 * 86_400)] | None = None
    warn_at: Annotated[float, Field(gt=0, le=1)] | None = None


class AgentSpec(Spec):
    """Everything that one version of an agent says."""

    name: Name
    model: ModelName
    instructions: Annotated[str, Field(max_length=200_000)] = ""
    tools: Annotated[list[Name], Field(max_length=500)] = []
    policy: PolicySpec | None = None
    cache: CacheSpec | None = None
    compression: CompressionSpec | None = None
    fallbacks: Annotated[list[ModelName], Field(max_length=10)] = []
    parallel_tools: bool = True
    routing_only: bool = False
    response_format: ResponseFormatSpec | None = None
    loop_detection: LoopDetectionSpec | None = None
    stop_when: Annotated[list[StopRuleSpec], Field(max_length=50)] = []
    guardrails: GuardrailsSpec | None = None
    memory: MemorySpec | None = None
    limits: LimitsSpec = LimitsSpec()
    metadata: Metadata = {}

    @field_validator("tools")
    @classmethod
    def _are_distinct(cls, tools: list[str]) -> list[str]:
        if len(set(tools)) != len(tools):
            raise ValueError("a tool is named twice")
        return tools


def agent_of(spec: AgentSpec) -> Agent:
    """Return the agent that the spec describes, without an id or a version yet."""
    compression = spec.compression
    return Agent(
        id="",
        version=0,
        name=spec.name,
        model=spec.model,
        instructions=spec.instructions,
        tools=tuple(spec.tools),
        policy=spec.policy.policy() if spec.policy else None,
        limits=limits_of(spec.limits),
        cache_ttl_s=spec.cache.ttl_s if spec.cache else None,
        compression=Compression(compression.model or spec.model, compression.threshold_chars)
        if compression
        else None,
        fallbacks=tuple(spec.fallbacks),
        parallel_tools=spec.parallel_tools,
        routing_only=spec.routing_only,
        response_format=structured_of(spec.response_format),
        loop_detection=LoopDetection(**spec.loop_detection.model_dump())
        if spec.loop_detection
        else None,
        stop_when=tuple(StopRule(rule.tool, rule.contains) for rule in spec.stop_when),
        guardrails=spec.guardrails.guardrails(spec.model) if spec.guardrails else None,
        memory=spec.memory.memory(spec.model) if spec.memory else None,
        metadata=spec.metadata,
    )


def limits_of(spec: LimitsSpec) -> Limits:
    """Return the limits that the spec names, with the defaults of the others."""
    given = {name: value for name, value in spec.model_dump().items() if value is not None}
    if "stop_sequences" in given:
        given["stop_sequences"] = tuple(given["stop_sequences"])
    return Limits(**given)


def structured_of(spec: ResponseFormatSpec | None) -> StructuredOutput | None:
    """Return what the spec says of answers."""
    if spec is None:
        return None
    return StructuredOutput(spec.fits, spec.name, spec.retries, spec.mode)


def require_known(
    agent: Agent, tools: Registry, providers: Catalog, rails: Collection[str] = ()
) -> Agent:
    """Return the agent; raise `InvalidError` if it names what this installation lacks."""
    _require_provider(agent.model, providers, "/model")
    if agent.compression:
        _require_provider(agent.compression.model, providers, "/compression/model")
    if agent.memory and agent.memory.summarize:
        _require_provider(agent.memory.summarize.model, providers, "/memory/summarize/model")
    if agent.memory and agent.memory.extract:
        _require_provider(agent.memory.extract.model, providers, "/memory/extract/model")
    for index, model in enumerate(agent.fallbacks):
        _require_provider(model, providers, f"/fallbacks/{index}")
    if agent.guardrails:
        _require_rails(agent.guardrails, providers, rails)
    unknown = [name for name in agent.tools if name not in tools and not _is_agent(name)]
    if unknown:
        raise InvalidError(
            f"there is no tool {', '.join(map(repr, unknown))}; the tools are:"
            f" {', '.join(tools.names) or 'none'}",
            code="unknown_tool",
            pointer=f"/tools/{agent.tools.index(unknown[0])}",
        )
    for index, name in enumerate(agent.tools):
        if (tool := tools.get(name)) and tool.executes:
            raise InvalidError(
                f"{name!r} executes what users have confirmed, and no model may call it; name the"
                " tool that puts it off",
                code="executor_tool",
                pointer=f"/tools/{index}",
            )
    return agent


def _require_rails(guardrails: Guardrails, providers: Catalog, rails: Collection[str]) -> None:
    if guardrails.coherence:
        _require_provider(guardrails.coherence.model, providers, "/guardrails/coherence/model")
    require_rails(guardrails, rails)


def _is_agent(name: str) -> bool:
    """Agents may name one another, so whether they are there shows when they are called."""
    return name.startswith(AGENT_PREFIX) and len(name) > len(AGENT_PREFIX)


def _require_provider(model: str, providers: Catalog, pointer: str) -> None:
    provider = model.partition("/")[0]
    if provider not in providers.names:
        raise InvalidError(
            f"there is no provider {provider!r}; a model begins with one of:"
            f" {', '.join(providers.names)}. Others come with their vendor's key, or are declared"
            " in milepost.toml",
            code="unknown_provider",
            pointer=pointer,
        )


def show_spec(agent: Agent) -> dict[str, Any]:
    """Return the agent in the words of a spec, its limits in full."""
    compression = agent.compression
    return {
        "name": agent.name,
        "model": agent.model,
        "instructions": agent.instructions,
        "tools": list(agent.tools),
        "policy": show_policy(agent.policy),
        "cache": None if agent.cache_ttl_s is None else {"ttl_s": agent.cache_ttl_s},
        "compression": None if compression is None else asdict(compression),
        "fallbacks": list(agent.fallbacks),
        "parallel_tools": agent.parallel_tools,
        "routing_only": agent.routing_only,
        "response_format": show_format(agent.response_format),
        "loop_detection": asdict(agent.loop_detection) if agent.loop_detection else None,
        "stop_when": [asdict(rule) for rule in agent.stop_when],
        "guardrails": show_guardrails(agent.guardrails),
        "memory": _show_memory(agent.memory),
        "limits": {**asdict(agent.limits), "stop_sequences": list(agent.limits.stop_sequences)},
        "metadata": dict(agent.metadata),
    }


def revisable_spec(agent: Agent) -> dict[str, Any]:
    """Return the agent in the words of a spec to be changed: of its own model it names no part.

    So what is asked of that is asked of the one that it gets.
    """
    shown = show_spec(agent)
    memory, guardrails = shown["memory"] or {}, shown["guardrails"] or {}
    for part in (
        shown["compression"],
        memory.get("summarize"),
        memory.get("extract"),
        guardrails.get("coherence"),
    ):
        if part and part["model"] == agent.model:
            part["model"] = None
    return shown


def _show_memory(memory: Memory | None) -> dict[str, Any] | None:
    if memory is None:
        return None
    recall = memory.recall and {**asdict(memory.recall), "scopes": [*memory.recall.scopes]}
    return {**asdict(memory), "recall": recall}


def show_format(wanted: StructuredOutput | None) -> dict[str, Any] | None:
    """Return a response format in the words of its spec."""
    return {"type": "json_schema", **asdict(wanted)} if wanted else None
