"""Agents from files, applied at start: `[[agents]]` tables in TOML, or a list in YAML."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from milepost.core.agents import Agent
from milepost.core.errors import ConfigurationError
from milepost.runtime.agent_spec import AgentSpec, agent_of
from milepost.runtime.definitions import encode_definition
from milepost.runtime.journal import Ports
from milepost.store import agents


def read_agents(path: Path) -> list[Agent]:
    """Return the agents that a file describes; raise `ConfigurationError` for one that it can't."""
    try:
        text = path.read_text(encoding="utf-8")
        document: Any = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"agents file {path}: {error}") from error
    described = document.get("agents") if isinstance(document, dict) else None
    if not isinstance(described, list):
        raise ConfigurationError(f"agents file {path} has no list `agents`")
    try:
        return [agent_of(AgentSpec.model_validate(each)) for each in described]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"agents file {path}: {place}: {first['msg']}") from error


async def apply_agents(tenant: str, wanted: Iterable[Agent], ports: Ports) -> None:
    """Make the tenant's agents as described: new ones, and new versions of those that differ."""
    for agent in wanted:
        await ports.store.write(
            agents.apply(
                tenant,
                agent.name,
                encode_definition(agent),
                agent_id=ports.new_id("agt"),
                now_ms=ports.clock(),
            )
        )
