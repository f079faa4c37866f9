"""Knowledge in process: what agents learn of their runs, keep with tools, and are told of later."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from milepost.agent.agent import Agent
from milepost.agent.observations import EntityExtraction, KgExtraction
from milepost.agent.result import AgentResult
from milepost.agent.telling import Telling
from milepost.core.agents import Agent as Definition
from milepost.core.agents import Extract
from milepost.core.errors import InvalidError
from milepost.core.memories import CONTENT_CHARS_MAX, Finding, line
from milepost.memory import extraction
from milepost.memory.entities import ENTITIES_MAX
from milepost.memory.knowledge import RECENT_DAYS
from milepost.memory.notebook import Notebook
from milepost.runtime.clock import now_ms
from milepost.store.records import Claim
from milepost.telemetry.logs import logger
from milepost.tools import Tool, ToolContext
from milepost.tools.toolbox.remembering import memory_tools

_log = logger("agent")


class Knowledge:
    """What is known: entities, how they hang together, facts, and the log of the last days.

    Handed to a run as `knowledge=`, the run is told what fits it. `tools` let a model keep and look
    up things itself, and `learn` has a reader find what a run teaches. With a `directory` it is
    kept there, facts and logs as lists that people can read and write; it is for one process.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        recent_days: int = RECENT_DAYS,
        entities_max: int = ENTITIES_MAX,
    ) -> None:
        folder = None if directory is None else Path(directory)
        self._notebook = Notebook(
            folder, now_ms, recent_days=recent_days, entities_max=entities_max
        )

    # --- What is known ---

    @property
    def entities(self) -> tuple[Finding, ...]:
        """Who and what there is, those mentioned last coming last."""
        return tuple(self._notebook.of("entity"))

    @property
    def relations(self) -> tuple[Finding, ...]:
        """How they hang together."""
        return tuple(self._notebook.of("relation"))

    @property
    def facts(self) -> tuple[str, ...]:
        """What stays true."""
        return tuple(finding.content for finding in self._notebook.of("fact"))

    @property
    def logs(self) -> tuple[str, ...]:
        """What was of the last days."""
        return tuple(finding.content for finding in self._notebook.of("log"))

    def add(self, *findings: Finding) -> None:
        """Note what was found; what is known already was mentioned once more."""
        self._notebook.add(findings)

    def forget(self, finding: Finding) -> bool:
        """Forget it; say whether it was known."""
        return self._notebook.forget(finding)

    def remember(self, fact: str, *, lasting: bool = True) -> None:
        """Note a fact, or a line of today's log, as one line. Raises `InvalidError` for a long one.

        What is noted is what its file has, so that all of it is known at the next opening, too.
        """
        said = line(fact, len(fact))
        if not 0 < len(said) <= CONTENT_CHARS_MAX:
            raise InvalidError(
                f"what is remembered has 1 to {CONTENT_CHARS_MAX:,} characters,"
                f" and this {len(said):,}"
            )
        self.add(Finding("fact" if lasting else "log", said))

    def recall(self, query: str) -> Sequence[str]:
        """Return what is known about it, the best first, a line each."""
        return self._notebook.found(query)

    # --- What agents make of it ---

    @property
    def tools(self) -> list[Tool]:
        """The tools `remember` and `recall`, for agents that are to keep and find things."""
        return memory_tools(_Notes(self._notebook))

    async def context(self, claim: Claim, agent: Definition, query: str) -> str:
        """Return what a run is told that is asked this."""
        del claim, agent  # Whoever has the object may know what is in it.
        return self._notebook.told(query)

    @staticmethod
    def reader(model: str, **fields: Any) -> Agent:
        """Return an agent that finds what a conversation teaches; `fields` are those of `Agent`.

        `entities`, `relations` and `facts` may be False: then it looks for the others alone.
        """
        entities, relations, facts = (
            bool(fields.pop(name, True)) for name in ("entities", "relations", "facts")
        )
        extract = Extract(model, entities, relations, facts)
        given: dict[str, Any] = {
            "name": "reader",
            "instructions": extraction.instructions(extract),
            "response_format": extraction.schema(extract),
            **fields,
        }
        return Agent(model, **given)

    def learn(self, result: AgentResult, reader: Agent) -> Sequence[Finding]:
        """Do as `alearn`, and wait for it."""
        return reader._runner.workplace.run(self.alearn(result, reader))  # noqa: SLF001 - its loop

    async def alearn(self, result: AgentResult, reader: Agent) -> Sequence[Finding]:
        """Note what a run teaches, as a `reader` finds it, and return that.

        A reader that fails teaches nothing, and says so in the log of the process.
        """
        said = extraction.conversation(result.messages)
        if not said:
            return ()
        read = await reader.arun(said)
        if read.status != "completed":
            _log.warning("nothing was learned of a run", run=result.run_id, status=read.status)
            return ()
        found = [each.finding for each in extraction.learned(read.parsed, _ALL)]
        self._notebook.add(found)
        await self._tell(result, reader, found)
        return found

    async def _tell(self, result: AgentResult, reader: Agent, found: Sequence[Finding]) -> None:
        telling = Telling(reader.observers, reader.name)
        entities = tuple(each.subject for each in found if each.kind == "entity")
        triples = tuple(
            (each.subject, each.predicate, each.object) for each in found if each.kind == "relation"
        )
        if entities:
            turns = sum(message.role == "user" for message in result.messages)
            await telling.tell([EntityExtraction(result.run_id, entities, turns)])
        if triples:
            await telling.tell([KgExtraction(result.run_id, triples)])
        await telling.end()


_ALL = Extract("")


class _Notes:
    """What the tools work on."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook

    async def keep(self, _context: ToolContext, finding: Finding) -> str:
        """Keep it, once; say whose memory it is in."""
        self._notebook.add([finding])
        return "agent"

    async def look(self, _context: ToolContext, query: str) -> Sequence[str]:
        """Return what is known about it, the best first, a line each."""
        return self._notebook.found(query)
