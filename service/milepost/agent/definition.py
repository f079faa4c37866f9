"""An agent as it is written in Python, as the definition that the loop goes by.

It passes the very checks of the service: what could not be created there is refused here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from pydantic import ValidationError

from milepost.core.agents import Agent, Memory
from milepost.core.errors import ConfigurationError, InvalidError, ToolValidationError
from milepost.core.guardrails import Guardrails
from milepost.guardrails.verdicts import Rail
from milepost.runtime.agent_spec import AgentSpec, agent_of
from milepost.runtime.guardrail_spec import PLACES, python_rails, require_rails
from milepost.runtime.spec import first_fault
from milepost.tools import Registry, Tool, tool_of


@dataclass(frozen=True, slots=True)
class Written:
    """A definition, and what in it is Python: its tools, and its rails by name."""

    agent: Agent
    tools: Registry
    rails: Mapping[str, Rail]


def written(described: Mapping[str, object], tools: Iterable[Tool]) -> Written:
    """Return the definition that `described` is, in the words of a spec, over these tools.

    Raises `ConfigurationError` with the place of what cannot be.
    """
    name = described["name"]
    registry = _registry(tools)
    guardrails, rails = _guardrails(described.get("guardrails"))
    said = {key: plain(value) for key, value in described.items() if key != "guardrails"}
    said |= {"tools": [*registry.names], "guardrails": guardrails}
    try:
        agent = agent_of(AgentSpec.model_validate(said))
    except ValidationError as error:
        where, why = first_fault(error)
        raise ConfigurationError(f"agent {name!r}: {'.'.join(where)}: {why}") from error
    _check_memory(agent.memory, f"agent {name!r}")
    if agent.guardrails:
        _check_rails(agent.guardrails, rails, f"agent {name!r}")
    return Written(agent, registry, rails)


def models_of(agent: Agent) -> tuple[str, ...]:
    """Return all models that the agent may ask, each `provider/model`."""
    coherence = agent.guardrails.coherence if agent.guardrails else None
    summarize = agent.memory.summarize if agent.memory else None
    others = (agent.compression, summarize, coherence)
    return (agent.model, *agent.fallbacks, *(each.model for each in others if each))


def plain(value: object) -> Any:
    """Return what a spec takes: records and mappings as dicts, sequences as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value


def as_tool(given: Callable[..., Any] | Tool) -> Tool:
    """Return the tool; `ConfigurationError` for one that somebody elsewhere would have to run."""
    found = given if isinstance(given, Tool) else tool_of(given)
    if found.kind == "client":
        raise ConfigurationError(
            f"tool {found.name!r} is run by clients of the service, and here is none; give it a"
            " function"
        )
    if found.executes:
        raise ConfigurationError(
            f"tool {found.name!r} executes what users have confirmed, and no model may call it; in"
            " process there is no chat to confirm it in: decorate the function with @tool, and say"
            " requires_approval=True"
        )
    if found.effect == "transactional":
        raise ConfigurationError(
            f"tool {found.name!r} is transactional, and a run in process has no database to commit"
            ' with; have the service run it, or declare effect="idempotent" and write by its key'
        )
    return found


def _registry(tools: Iterable[Tool]) -> Registry:
    try:
        return Registry(tools)
    except ToolValidationError as error:
        raise ConfigurationError(str(error)) from error


def _check_memory(memory: Memory | None, whose: str) -> None:
    """What is learned of conversations is kept in the service's database, and here is none."""
    for name in ("extract", "recall"):
        if memory is not None and getattr(memory, name) is not None:
            raise ConfigurationError(
                f"{whose}: memory.{name}: only agents of the service learn by themselves; in"
                " process hand a Knowledge to its runs: run(..., knowledge=known)"
            )


def _check_rails(guardrails: Guardrails, rails: Mapping[str, Rail], whose: str) -> None:
    for _, rail in python_rails(guardrails):
        if rail.name not in rails:
            raise ConfigurationError(
                f"{whose}: there is no guardrail {rail.name!r}; put the rail itself in its place"
            )
    try:
        require_rails(guardrails, rails)
    except InvalidError as error:
        place = (error.pointer or "")[1:].replace("/", ".")
        raise ConfigurationError(f"{whose}: {place}: {error}") from error


def _guardrails(described: object) -> tuple[object, dict[str, Rail]]:
    """Return the spec, with the name of each rail in Python in its place, and those rails."""
    rails: dict[str, Rail] = {}
    if not isinstance(described, Mapping):
        return plain(described), rails

    def named(rail: object) -> object:
        if not isinstance(rail, Rail) or isinstance(rail, type):
            if callable(rail):
                said = getattr(rail, "__qualname__", repr(rail))
                raise ConfigurationError(f"{said} is no guardrail; decorate it with @rail")
            return plain(rail)
        if rails.setdefault(rail.name, rail) is not rail:
            raise ConfigurationError(
                f"there are two guardrails {rail.name!r}; rename one: @rail(name=...)"
            )
        return {"type": "python", "name": rail.name}

    said = {
        place: [named(rail) for rail in given]
        if place in PLACES and isinstance(given, Sequence) and not isinstance(given, str)
        else plain(given)
        for place, given in described.items()
    }
    return said, rails
