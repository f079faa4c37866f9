"""Agents from files, applied at start: `[[agents]]` tables in TOML, or a list in YAML."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from milepost.core.agents import Agent
from milepost.core.errors import ConfigurationError
from milepost.runtime.agent_spec import AgentSpec, agent_of
from milepost.runtime.definitions import encode_definition
from milepost.runtime.journal import Ports
from milepost.runtime.spec import first_fault
from milepost.store import agents
from milepost.telemetry.logs import logger

MERGE = "<<"


class _Loader(yaml.SafeLoader):
    """Refuses a name that stands twice in a mapping, as TOML does: the first would count nothing.

    Of two policies of an agent, say, it would be the one that denies.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        names: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != MERGE:
                if key.value in names:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value!r} stands there twice", problem_mark=key.start_mark
                    )
                names.add(key.value)
        return node


def read_agents(path: Path) -> list[Agent]:
    """Return the agents that a file describes; raise `ConfigurationError` for one that it can't."""
    is_toml = path.suffix == ".toml"
    try:
        text = path.read_text(encoding="utf-8")
        document: Any = tomllib.loads(text) if is_toml else yaml.load(text, _Loader)  # noqa: S506 - a safe one
    except OSError as error:
        raise ConfigurationError(
            f"agents file {path} cannot be read: {error.strerror}; name it with --agents"
        ) from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigurationError(f"agents file {path}: {error}") from error
    described = document.get("agents") if isinstance(document, dict) else None
    if not isinstance(described, list):
        how = "begin each agent with [[agents]]" if is_toml else "write each agent below `agents:`"
        raise ConfigurationError(f"agents file {path} has no list `agents`; {how}")
    return [_agent(path, number, each) for number, each in enumerate(described, start=1)]


def _agent(path: Path, number: int, described: object) -> Agent:
    try:
        return agent_of(AgentSpec.model_validate(described))
    except ValidationError as error:
        where, why = first_fault(error)
        place = ".".join(["agents", str(number), *where])
        raise ConfigurationError(f"agents file {path}: {place}: {why}") from error


async def apply_agents(tenant: str, wanted: Mapping[str, Iterable[Agent]], ports: Ports) -> None:
    """Make the tenant's agents as described: new ones, and new versions of those that differ.

    `wanted` has them by the file that describes them, which the log names with each new version:
    it may undo what somebody changed over the API.
    """
    log = logger("agents")
    for source, described in wanted.items():
        for agent in described:
            now = ports.clock()
            row = await ports.store.write(
                agents.apply(
                    tenant,
                    agent.name,
                    encode_definition(agent),
                    agent_id=ports.new_id("agt"),
                    now_ms=now,
                )
            )
            if row.changed_ms == now:
                log.info(f"agent {agent.name}: version {row.version} from {source}")
