"""Agents' definitions, from and to JSON; and the versions that runs have pinned."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import orjson

from milepost.core.agents import (
    Agent,
    Compression,
    Extract,
    Limits,
    LoopDetection,
    Memory,
    Remembered,
    StopRule,
    StructuredOutput,
    Summarize,
    Window,
)
from milepost.runtime import direct, memory_runs
from milepost.runtime.guardrail_spec import decode_guardrails
from milepost.runtime.policy_spec import read_policy, show_policy
from milepost.store import agents
from milepost.store.store import Store

CACHED_MAX = 1_000
_LIMITS = frozenset(field.name for field in fields(Limits))


def encode_definition(agent: Agent) -> str:
    """Return what is stored of a version: all but its id and number."""
    shown = asdict(agent)
    shown["policy"] = show_policy(agent.policy)
    del shown["id"], shown["version"]
    return orjson.dumps(shown, option=orjson.OPT_SORT_KEYS).decode()


def decode_definition(agent_id: str, version: int, definition: str) -> Agent:
    """Return the agent that `encode_definition` wrote; what a later version added is dropped."""
    shown: dict[str, Any] = orjson.loads(definition)
    compression, wanted = shown.get("compression"), shown.get("response_format")
    circles = shown.get("loop_detection")
    return Agent(
        id=agent_id,
        version=version,
        name=shown["name"],
        model=shown["model"],
        instructions=shown.get("instructions", ""),
        tools=tuple(shown.get("tools", ())),
        policy=read_policy(shown.get("policy")),
        limits=_limits(shown.get("limits") or {}),
        cache_ttl_s=shown.get("cache_ttl_s"),
        compression=Compression(**compression) if compression else None,
        fallbacks=tuple(shown.get("fallbacks", ())),
        parallel_tools=shown.get("parallel_tools", True),
        routing_only=shown.get("routing_only", False),
        response_format=StructuredOutput(**wanted) if wanted else None,
        loop_detection=LoopDetection(**circles) if circles else None,
        stop_when=tuple(StopRule(**rule) for rule in shown.get("stop_when", ())),
        guardrails=decode_guardrails(shown.get("guardrails")),
        memory=_memory(shown.get("memory")),
        metadata=shown.get("metadata") or {},
    )


def _memory(shown: Mapping[str, Any] | None) -> Memory | None:
    if shown is None:
        return None
    window, summarize = shown.get("window"), shown.get("summarize")
    extract, recall = shown.get("extract"), shown.get("recall")
    return Memory(
        window=Window(**window) if window else None,
        summarize=Summarize(**summarize) if summarize else None,
        extract=Extract(**extract) if extract else None,
        recall=Remembered(tuple(recall["scopes"]), recall["recent_days"]) if recall else None,
    )


def _limits(shown: Mapping[str, Any]) -> Limits:
    known = {name: value for name, value in shown.items() if name in _LIMITS}
    if "stop_sequences" in known:
        known["stop_sequences"] = tuple(known["stop_sequences"])
    return Limits(**known)


class Definitions:
    """The versions of agents, read once: a version never changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: OrderedDict[tuple[str, int], Agent] = OrderedDict()

    async def get(self, tenant: str, agent_id: str, version: int) -> Agent:
        """Return that version, also of an agent that has been deleted since."""
        key = (agent_id, version)
        if (known := self._cached.get(key)) is not None:
            return known
        agent = await self._found(tenant, agent_id, version)
        self._cached[key] = agent
        if len(self._cached) > CACHED_MAX:
            self._cached.popitem(last=False)
        return agent

    async def _found(self, tenant: str, agent_id: str, version: int) -> Agent:
        if agent_id.startswith(direct.ID_PREFIX):
            base_id = direct.base_of(agent_id)
            base = await self.get(tenant, base_id, version) if base_id else None
            return direct.direct_agent(agent_id, version, base)
        if (base_id := memory_runs.base_of(agent_id)) is not None:
            base = await self.get(tenant, base_id, version)
            return memory_runs.memory_agent(agent_id, version, base)
        definition = await self._store.read(agents.definition(tenant, agent_id, version))
        return decode_definition(agent_id, version, definition)
