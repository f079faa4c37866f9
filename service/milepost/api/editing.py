"""Calls that a person has edited before approving them: judged as a worker would judge them now."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson

from milepost.core.canonical import call_digest
from milepost.core.codec import decode
from milepost.core.errors import ConflictError, InvalidError
from milepost.core.events import ToolCallCounted
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.policy import Counted, are_named
from milepost.core.rulings import Ask, Count, Refuse, Reject, Run
from milepost.runtime.definitions import Definitions
from milepost.runtime.judging import Judging
from milepost.runtime.permits import Identity
from milepost.runtime.stored_rates import StoredRates
from milepost.store import log, runs
from milepost.store.approvals import ApprovalRow, Edit
from milepost.store.records import LogEntry
from milepost.store.runs import RunRow
from milepost.store.store import Store
from milepost.tools import preview


@dataclass(frozen=True, slots=True)
class _Caller:
    """For whom an edited call would be made."""

    agent_id: str
    session_id: str
    user: str | None
    run_id: str


class Editing:
    """Judges edited calls by the rules that their runs are under."""

    def __init__(self, store: Store, judging: Judging) -> None:
        self._store = store
        self._judging = judging
        self._rates = StoredRates(store)
        self._definitions = Definitions(store)

    async def edit(self, row: ApprovalRow, arguments: Mapping[str, Json]) -> Edit:
        """Return the edited call, if the tool takes it and the agent's rules don't forbid it."""
        run = await self._store.read(runs.find(row.tenant, row.run_id))
        agent = await self._definitions.get(row.tenant, run.agent_id, run.agent_version)
        tools = await self._judging.tools(row.tenant, agent)
        if row.tool not in tools:
            raise ConflictError(
                f"tool {row.tool!r} is not loaded in this process, so the edited arguments cannot"
                " be checked; approve the call as it is, or ask a server that has the tool",
                code="tool_not_loaded",
            )
        call = ToolCall(id=row.call_id, name=row.tool, arguments=dict(arguments))
        identity = Identity.of(run.user, run.scopes, row.made_by)
        rules = await self._judging.rules(row.tenant, agent, identity, row.session_id, tools)
        ruling = rules.judge(call)
        if isinstance(ruling, Count):
            ruling = rules.judge(call, await self._counts(run, call, ruling.wanted))
        match ruling:
            case Run(fitting) | Ask(fitting) | Count(fitting):
                edit = Edit(
                    orjson.dumps(fitting).decode(),
                    call_digest(row.tool, fitting),
                    preview(row.tool, fitting),
                )
                if isinstance(ruling, Ask) and edit.digest != row.digest:
                    _require_met(ruling, row)
                return edit
            case Refuse(_, reason):
                raise ConflictError(f"{row.tool} is denied: {reason}", code="policy_denied")
            case Reject(failure):
                raise InvalidError(failure.message, code=failure.code, pointer="/arguments")

    async def _counts(
        self, run: RunRow, call: ToolCall, wanted: Iterable[Counted]
    ) -> dict[str, int]:
        """Return how often such calls were made: as its run has counted it, or would count it."""
        entries = await self._store.read(log.read_all(run.tenant, run.id))
        known = await asyncio.to_thread(_counted_in, entries, call.id)
        unknown = [each for each in wanted if each.key not in known]
        whose = _Caller(run.agent_id, run.session_id, run.user, run.id)
        return {**known, **await self._rates.foretell(run.tenant, whose, unknown)}


def _counted_in(entries: Iterable[LogEntry], call_id: str) -> dict[str, int]:
    """Return what a run has counted of its call."""
    counts: dict[str, int] = {}
    for entry in entries:
        match decode(entry.type, entry.data):
            case ToolCallCounted(counted, found) if counted == call_id:
                counts |= found
    return counts


def _require_met(ruling: Ask, row: ApprovalRow) -> None:
    """Raise where whoever answers this question might not answer one about the edited call."""
    terms, said = ruling.terms, row.terms_shown()
    theirs = are_named(said.get("approvers", ()), terms)
    foreign = terms.self_approval or not said.get("self_approval", True)
    if theirs and foreign and terms.required <= row.required:
        return
    raise ConflictError(
        f"{row.tool} with these arguments is for others to approve, or for more of them, than"
        f" approval {row.id} asks: {ruling.reason}; deny it, and have that call asked for",
        code="policy_denied",
    )
