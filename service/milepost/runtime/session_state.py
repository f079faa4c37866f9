"""What a model was shown at a message of a session, or would be shown next: the prompt itself.

Made by the code that makes prompts, out of what the logs say that runs have seen.
"""

from dataclasses import dataclass, replace

from milepost.core.agents import Agent
from milepost.core.context import NOTHING_SEEN, Earlier, Seen, summary_block
from milepost.core.errors import NotFoundError
from milepost.core.messages import Message
from milepost.core.prompt import prompt
from milepost.core.state import State, transcript
from milepost.core.window import estimated
from milepost.runtime.claims import claim_of
from milepost.runtime.conversation import Said
from milepost.runtime.definitions import Definitions
from milepost.runtime.history import History, folded
from milepost.store import log, runs
from milepost.store.records import Claim
from milepost.store.runs import RunRow
from milepost.store.sessions import SessionRow
from milepost.store.store import Store

NOBODY = "nobody/unknown"
NO_SUMMARY = ""  # What falls out of sight for who only looks is told of nowhere.


@dataclass(frozen=True, slots=True)
class Shown:
    """A prompt, and what it is made of. `kept_from` is where the session begins to be in sight.

    `agent` is None where its definition is not here: its instructions are missing then. `tokens` is
    an estimate.
    """

    agent: Agent | None
    messages: tuple[Message, ...]
    summary: str
    context: str
    kept_from: str | None

    @property
    def tokens(self) -> int:
        """About how many tokens the messages take."""
        return sum(map(estimated, self.messages))


class SessionState:
    """Makes the prompts of sessions for who looks at them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._history = History(store)
        self._definitions = Definitions(store)

    async def at(self, said: Said, row: SessionRow) -> Shown:
        """Return the prompt that ends with this message, as its run made it or is about to."""
        run = await self._store.read(runs.find(row.tenant, said.run_id))
        state = folded(await self._store.read(log.read_all(row.tenant, run.id)))
        agent = await self._agent(run)
        if state.loaded is None and not state.step and run.ended_ms is None:
            seen = await self._before(row, claim_of(run), agent)
        else:
            seen = await self._history.again(claim_of(run), state, begun_only=_guarded(agent))
        loaded = state.loaded or seen.loaded
        kept_from = loaded.kept_from if loaded else None
        until = replace(
            state, messages=transcript(state)[: said.index + 1], calls={}, steers=(), ended=False
        )
        return _shown(agent, seen.earlier, until, kept_from)

    async def next(self, row: SessionRow, agent: Agent) -> Shown:
        """Return what a run of this agent would be shown before what it is itself asked.

        What is remembered for it hangs on what it is asked, and is no part of this.
        """
        seen = await self._before(row, _newcomer(row, agent), agent)
        kept_from = seen.loaded.kept_from if seen.loaded else None
        return _shown(agent, seen.earlier, State(), kept_from)

    async def _before(self, row: SessionRow, claim: Claim, agent: Agent | None) -> Seen:
        """Return what a run that has not begun would see of the session as it is now."""
        if not row.turns:
            return NOTHING_SEEN
        memory = agent.memory if agent else None
        return await self._history.before(
            replace(claim, turns=row.turns), memory, NO_SUMMARY, begun_only=_guarded(agent)
        )

    async def _agent(self, run: RunRow) -> Agent | None:
        """Return the very version that the run has; None of a run that was done elsewhere."""
        try:
            return await self._definitions.get(run.tenant, run.agent_id, run.agent_version)
        except NotFoundError:
            return None


def _guarded(agent: Agent | None) -> bool:
    return bool(agent and agent.guardrails and agent.guardrails.input)


def _shown(agent: Agent | None, earlier: Earlier, state: State, kept_from: str | None) -> Shown:
    whoever = agent or Agent("", 0, "", NOBODY)
    return Shown(
        agent,
        prompt(whoever, earlier, state),
        summary_block((*earlier.summaries, state.summary)),
        earlier.context,
        kept_from,
    )


def _newcomer(row: SessionRow, agent: Agent) -> Claim:
    """Return a run of this agent that would begin now, as far as its past is concerned."""
    return Claim(
        run_id="",
        tenant=row.tenant,
        session_id=row.id,
        agent_id=agent.id,
        agent_version=agent.version,
        user=row.user,
        epoch=0,
        head=0,
        inbox_seq=0,
        turns=row.turns,
        metadata="{}",
        trace_parent=None,
        entries=None,
    )
