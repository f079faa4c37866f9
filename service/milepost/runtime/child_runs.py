"""The runs that calls of agents become, where a store keeps them."""

import orjson

from milepost.core.agents import Agent
from milepost.core.codec import encode
from milepost.core.effects import CallTool
from milepost.core.errors import NotFoundError
from milepost.core.events import Failure, InputMessage, RunQueued
from milepost.core.ids import child_run_id
from milepost.core.state import State
from milepost.live.hub import QUEUE_BELL, inbox_bell
from milepost.runtime.agent_spec import AGENT_PREFIX as PREFIX
from milepost.runtime.children import agent_tool, below, left_of, trace_below
from milepost.runtime.journal import Ports
from milepost.store import agents, children
from milepost.store.agents import AgentRow
from milepost.store.records import Claim, Entry, NewRun
from milepost.store.runs import RunRow
from milepost.store.store import Store
from milepost.tools import Registry, Tool

DESCRIPTION_KEY = "description"


async def with_agents(tools: Registry, agent: Agent, tenant: str, store: Store) -> Registry:
    """Return the tools with those that other agents are, as far as `agent` names them.

    One that is not there is no tool: the model learns so if it asks for it.
    """
    named = [name for name in agent.tools if name.startswith(PREFIX) and name not in tools]
    if not named:
        return tools
    joined = Registry(tools)
    for name in named:
        try:
            row = await store.read(agents.find(tenant, name.removeprefix(PREFIX)))
        except NotFoundError:
            continue
        joined.add(_tool(name, row))
    return joined


def _tool(name: str, row: AgentRow) -> Tool:
    described = orjson.loads(row.definition).get("metadata", {}).get(DESCRIPTION_KEY)
    return agent_tool(name, row.name, described)


async def child_of(
    effect: CallTool, seq: int, claim: Claim, agent: Agent, state: State, ports: Ports
) -> NewRun | Failure:
    """Return the run that the call becomes, the same however often it is asked for.

    `seq` is the event that says that the call is begun: the child's trace hangs on its span.
    """
    parent = below(claim, effect.call.id, state)
    if isinstance(parent, Failure):
        return parent
    try:
        row = await ports.store.read(
            agents.find(claim.tenant, effect.call.name.removeprefix(PREFIX))
        )
    except NotFoundError as error:
        return Failure(error.code, str(error))
    now, run_id = ports.clock(), child_run_id(claim.run_id, effect.call.id)
    session_id = ports.new_id("ses")
    queued = RunQueued(
        agent=row.name,
        agent_id=row.id,
        agent_version=row.version,
        session_id=session_id,
        input=(InputMessage("user", str(effect.arguments["input"])),),
        user=claim.user,
        deadline_ms=state.deadline_ms,
        cache=state.cache,
        parent=parent,
        bounds=left_of(agent, state),
        channel=state.channel,
        speakers=tuple(sorted(state.speakers)),
    )
    return NewRun(
        id=run_id,
        tenant=claim.tenant,
        session_id=session_id,
        session_is_new=True,
        agent_id=row.id,
        agent=row.name,
        agent_version=row.version,
        user=claim.user,
        metadata=claim.metadata,
        lane=claim.lane,
        created_ms=now,
        scheduled_ms=None,
        deadline_ms=state.deadline_ms,
        trace_parent=trace_below(claim, seq),
        queued=Entry(queued.type, now, encode(queued).decode()),
        scopes=claim.scopes,
        made_by=claim.made_by,
        parent_run_id=claim.run_id,
        parent_call_id=effect.call.id,
    )


async def tell(ports: Ports, child: RunRow) -> None:
    """Let the parent know that its child is over, once."""
    told = await ports.store.write(children.tell(child, ports.clock()))
    if told is None or told.status is None:
        return
    if told.status == "queued":
        ports.hub.ring(QUEUE_BELL)
    ports.hub.ring(inbox_bell(told.parent_run_id))
