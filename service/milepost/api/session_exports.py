"""`/v1/sessions/{id}/export` and `/v1/session_imports`: sessions that are taken elsewhere."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.accepting import JSON
from milepost.api.bodies import loads, parse, read_bytes, require_media
from milepost.api.conditions import etag
from milepost.api.gradual import GradualResponse
from milepost.api.new_sessions import created, session_of
from milepost.api.paging import allow
from milepost.api.replays import asked, once
from milepost.api.requests import caller
from milepost.runtime.journal import Ports
from milepost.runtime.session_export import SessionExport
from milepost.runtime.session_import import imported
from milepost.runtime.session_spec import SessionSpec
from milepost.store import session_imports, sessions

IMPORT_BYTES_MAX = 8_388_608
IMPORT_VALUES_MAX = 400_000
ON_LOOP_BYTES_MAX = 65_536
"""Larger bodies are looked through in a thread."""

R = TypeVar("R")


class SessionExports:
    """Sessions as JSON, over a store."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._export = SessionExport(ports.store)

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/sessions/{session_id}/export", self.export, methods=["GET"]),
            Route("/v1/session_imports", self.take_in, methods=["POST"]),
        ]

    async def export(self, request: Request) -> Response:
        """Write the session down: what was said in it, and what it is besides that."""
        allow(request)
        principal = caller(request, "runs:read")
        session_id = request.path_params["session_id"]
        row = await self._ports.store.read(sessions.find(principal.tenant, session_id))
        name = f'attachment; filename="{row.id}.json"'
        return GradualResponse(
            self._export.pieces(row),
            media_type=JSON,
            headers={"Content-Disposition": name, "ETag": etag(row)},
        )

    async def take_in(self, request: Request) -> Response:
        """Make a session out of what was exported, here or elsewhere."""
        allow(request)
        principal = caller(request, "runs:write")
        require_media(request, JSON)
        raw = await read_bytes(request, IMPORT_BYTES_MAX)
        spec = await _looked_through(raw, partial(_spec, raw))
        terms = spec.session
        for user in {run.user for run in spec.runs}:
            principal.acting_as(user)
        session = session_of(
            terms,
            principal.tenant,
            principal.acting_as(terms.user),
            session_id=self._ports.new_id("ses"),
            now_ms=self._ports.clock(),
        )
        found = await _looked_through(raw, partial(imported, spec, session, self._ports.new_id))
        made = await self._ports.store.write(
            once(
                asked(request, raw, session.id, session.created_ms),
                session_imports.create(found),
                lambda earlier: sessions.find(principal.tenant, earlier),
            )
        )
        return created(made)


async def _looked_through(raw: bytes, look: Callable[[], R]) -> R:
    """Do it here if the body is small, else where it keeps nobody waiting."""
    return look() if len(raw) <= ON_LOOP_BYTES_MAX else await asyncio.to_thread(look)


def _spec(raw: bytes) -> SessionSpec:
    return parse(SessionSpec, loads(raw, IMPORT_VALUES_MAX))
