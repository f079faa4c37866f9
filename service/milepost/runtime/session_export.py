"""A session written down to be taken elsewhere, a run at a time, however long it is."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import orjson

from milepost.core.errors import NotFoundError
from milepost.live.frames import rfc3339
from milepost.runtime.conversation import Conversation, Said
from milepost.runtime.messages_shown import show_message
from milepost.runtime.session_spec import FORMAT
from milepost.store import runs, session_past
from milepost.store.records import Page
from milepost.store.sessions import SessionRow
from milepost.store.store import Store


class SessionExport:
    """Writes sessions as `SessionSpec` reads them: what was said in the runs that are over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._conversation = Conversation(store)

    async def pieces(self, row: SessionRow) -> AsyncGenerator[bytes, None]:
        """Yield the session as JSON, piece by piece. Of a fork it is also what that shares."""
        past = await self._store.read(session_past.past(row.tenant, row.id, row.turns, limit=1))
        yield b'{"format":%b,"session":%b,"runs":[' % (_json(FORMAT), _json(_terms(row)))
        separator, last = b"", 0
        async with aclosing(self._runs(row)) as found:
            async for run in found:
                yield separator + _json(run)
                separator, last = b",", run["turn"]
        # A log goes before its run does: of what is not in here nothing can be told.
        summaries = [
            {"first": str(each.first), "last": str(each.last), "content": each.content}
            for each in past.trimmed
            if each.last.turn <= last
        ]
        yield b'],"summaries":%b,"pins":%b}' % (_json(summaries), _json(list(map(str, past.pins))))

    async def _runs(self, row: SessionRow) -> AsyncGenerator[dict[str, Any], None]:
        said: list[Said] = []
        async with aclosing(self._conversation.said(row, Page(1, ascending=True))) as messages:
            async for each in messages:
                if said and each.run_id != said[-1].run_id:
                    if run := await self._run(row, said):
                        yield run
                    said = []
                if each.turn > row.turns:
                    return
                said.append(each)
        if said and (run := await self._run(row, said)):
            yield run

    async def _run(self, row: SessionRow, said: list[Said]) -> dict[str, Any] | None:
        """Return a run with what was said in it; None if it was erased meanwhile."""
        try:
            run = await self._store.read(runs.find(row.tenant, said[0].run_id))
        except NotFoundError:
            return None
        return {
            "turn": said[0].turn,
            "run_id": run.id,
            "agent": run.agent,
            "agent_version": run.agent_version,
            "status": run.status,
            "user": run.user,
            "metadata": orjson.loads(run.metadata),
            "ended_at": rfc3339(run.ended_ms) if run.ended_ms is not None else "",
            "messages": [show_message(each.message) for each in said],
        }


def _terms(row: SessionRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "user": row.user,
        "title": row.title,
        "metadata": orjson.loads(row.metadata),
        "ttl_s": row.ttl_ms // 1000 if row.ttl_ms is not None else None,
        "keep_s": row.keep_ms // 1000 if row.keep_ms is not None else None,
    }


def _json(value: object) -> bytes:
    return orjson.dumps(value)
