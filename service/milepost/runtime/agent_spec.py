"""An agent as people write it: in a request, or in a file that is applied at start."""

import re
from dataclasses import asdict, fields
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from milepost.core.agents import Agent, Compression, Limits
from milepost.core.errors import InvalidError
from milepost.core.policy import Policy
from milepost.providers.catalog import Catalog
from milepost.tools import Registry

TTL_S_MAX = 30 * 86_400

Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")]
Glob = Annotated[str, Field(min_length=1, max_length=200)]
Globs = Annotated[list[Glob], Field(max_length=200)]
Metadata = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=64, pattern=r'^[^"\]]*$')],
        Annotated[str, Field(max_length=500)],
    ],
    Field(max_length=32),
]
_MODEL = re.compile(r"[a-z0-9][a-z0-9_-]*/[\x21-\x7e]{1,200}")


class Spec(BaseModel):
    """Known fields of exactly their types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PolicySpec(Spec):
    """Globs over tool names; what no list names is asked."""

    deny: Globs = []
    ask: Globs = []
    allow: Globs = []


class CacheSpec(Spec):
    """Whether the model's replies are cached, and for how long (seconds)."""

    ttl_s: Annotated[float, Field(gt=0, le=TTL_S_MAX)]


class CompressionSpec(Spec):
    """Which model makes tool results shorter, the agent's own unless named, and beyond what length.

    The length is in characters.
    """

    model: str | None = None
    threshold_chars: Annotated[int, Field(ge=1, le=1_000_000)] = 2_000

    @field_validator("model")
    @classmethod
    def _has_provider(cls, model: str | None) -> str | None:
        return None if model is None else _checked_model(model)


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


class AgentSpec(Spec):
    """Everything that one version of an agent says."""

    name: Name
    model: str
    instructions: Annotated[str, Field(max_length=200_000)] = ""
    tools: Annotated[list[Name], Field(max_length=500)] = []
    policy: PolicySpec | None = None
    cache: CacheSpec | None = None
    compression: CompressionSpec | None = None
    limits: LimitsSpec = LimitsSpec()
    metadata: Metadata = {}

    @field_validator("model")
    @classmethod
    def _has_provider(cls, model: str) -> str:
        return _checked_model(model)

    @field_validator("tools")
    @classmethod
    def _are_distinct(cls, tools: list[str]) -> list[str]:
        if len(set(tools)) != len(tools):
            raise ValueError("a tool is named twice")
        return tools


def _checked_model(model: str) -> str:
    if not _MODEL.fullmatch(model):
        raise ValueError("a model is <provider>/<model>, such as openai/gpt-5-mini")
    return model


def agent_of(spec: AgentSpec) -> Agent:
    """Return the agent that the spec describes, without an id or a version yet."""
    given = {name: value for name, value in spec.limits.model_dump().items() if value is not None}
    policy, compression = spec.policy, spec.compression
    return Agent(
        id="",
        version=0,
        name=spec.name,
        model=spec.model,
        instructions=spec.instructions,
        tools=tuple(spec.tools),
        policy=Policy(tuple(policy.deny), tuple(policy.ask), tuple(policy.allow))
        if policy
        else None,
        limits=Limits(**given),
        cache_ttl_s=spec.cache.ttl_s if spec.cache else None,
        compression=Compression(compression.model or spec.model, compression.threshold_chars)
        if compression
        else None,
        metadata=spec.metadata,
    )


def require_known(agent: Agent, tools: Registry, providers: Catalog) -> Agent:
    """Return the agent; raise `InvalidError` if it names what this installation lacks."""
    _require_provider(agent.model, providers, "/model")
    if agent.compression:
        _require_provider(agent.compression.model, providers, "/compression/model")
    unknown = [name for name in agent.tools if name not in tools]
    if unknown:
        raise InvalidError(
            f"there is no tool {', '.join(map(repr, unknown))}; the tools are:"
            f" {', '.join(tools.names) or 'none'}",
            code="unknown_tool",
            pointer=f"/tools/{agent.tools.index(unknown[0])}",
        )
    return agent


def _require_provider(model: str, providers: Catalog, pointer: str) -> None:
    provider = model.partition("/")[0]
    if provider not in providers.names:
        raise InvalidError(
            f"there is no provider {provider!r}; a model begins with one of:"
            f" {', '.join(providers.names)}",
            code="unknown_provider",
            pointer=pointer,
        )


def show_spec(agent: Agent) -> dict[str, Any]:
    """Return the agent in the words of a spec, its limits in full."""
    policy, compression = agent.policy, agent.compression
    return {
        "name": agent.name,
        "model": agent.model,
        "instructions": agent.instructions,
        "tools": list(agent.tools),
        "policy": None
        if policy is None
        else {"deny": list(policy.deny), "ask": list(policy.ask), "allow": list(policy.allow)},
        "cache": None if agent.cache_ttl_s is None else {"ttl_s": agent.cache_ttl_s},
        "compression": None if compression is None else asdict(compression),
        "limits": {field.name: getattr(agent.limits, field.name) for field in fields(agent.limits)},
        "metadata": dict(agent.metadata),
    }
