"""`client.agents`."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from milepost.client.shapes import Agent, Page, paged, shaped
from milepost.client.transport import Transport, if_version, quoted


class AgentFields(TypedDict, total=False):
    """What an agent is made of."""

    name: str
    model: str
    instructions: str
    tools: Sequence[str]
    policy: Mapping[str, Any] | None
    limits: Mapping[str, Any]
    cache: Mapping[str, Any] | None
    memory: Mapping[str, Any] | None
    metadata: Mapping[str, str]


class Agents:
    """Versioned definitions."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(self, **fields: Unpack[AgentFields]) -> Agent:
        """Define an agent."""
        return shaped(Agent, await self._transport.post("/v1/agents", fields))

    async def get(self, agent_id: str) -> Agent:
        """Return an agent's newest version."""
        return shaped(Agent, await self._transport.get(f"/v1/agents/{quoted(agent_id)}"))

    async def list(self, *, limit: int | None = None, after: str | None = None) -> Page[Agent]:
        """Return agents."""
        params = {"limit": limit, "after": after}
        return paged(Agent, await self._transport.get("/v1/agents", params))

    async def versions(
        self, agent_id: str, *, limit: int | None = None, after: str | None = None
    ) -> Page[Agent]:
        """Return an agent's versions."""
        params = {"limit": limit, "after": after}
        path = f"/v1/agents/{quoted(agent_id)}/versions"
        return paged(Agent, await self._transport.get(path, params))

    async def update(
        self, agent_id: str, *, if_still: int | None = None, **changes: Unpack[AgentFields]
    ) -> Agent:
        """Make a new version; with `if_still`, only if that is still the newest one."""
        answer = await self._transport.request(
            "PATCH", f"/v1/agents/{quoted(agent_id)}", body=changes, headers=if_version(if_still)
        )
        return shaped(Agent, answer)

    async def delete(self, agent_id: str, *, if_still: int | None = None) -> None:
        """Take an agent away; the runs that it has go on with the version they began with."""
        path = f"/v1/agents/{quoted(agent_id)}"
        await self._transport.change("DELETE", path, headers=if_version(if_still))
