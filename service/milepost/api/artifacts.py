"""`/v1/artifacts` and those of a run: what tools left behind, and its content in stretches."""

import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.gradual import GradualResponse
from milepost.api.paging import allow, json_response, listed, page
from milepost.api.problems import RangeError
from milepost.api.requests import caller
from milepost.core.errors import NotFoundError
from milepost.live.frames import rfc3339
from milepost.runtime.journal import Ports
from milepost.store import artifacts, runs
from milepost.store.artifacts import ArtifactRow

CHUNK_BYTES = 262_144

_RANGE = re.compile(r"bytes=(?P<first>[0-9]{0,18})-(?P<last>[0-9]{0,18})")
_UNSAFE = re.compile(r"[^A-Za-z0-9 ._()+-]")
_TAG = re.compile(r'(?:W/)?("[^"]*")')


class Artifacts:
    """What tools left behind, over a store."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/runs/{run_id}/artifacts", self.of_run, methods=["GET"]),
            Route("/v1/artifacts/{artifact_id}", self.get, methods=["GET"]),
            Route("/v1/artifacts/{artifact_id}/content", self.content, methods=["GET"]),
        ]

    async def of_run(self, request: Request) -> Response:
        """List what the run's tools have left behind, in the order in which they did."""
        allow(request, "limit", "after", "order")
        principal = caller(request, "runs:read")
        run_id = request.path_params["run_id"]
        stretch = page(request, of="art", order="asc")
        store = self._ports.store
        await store.read(runs.find(principal.tenant, run_id))
        found = await store.read(artifacts.of_run(principal.tenant, run_id, stretch))
        return listed(found, stretch, show_artifact, lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show one artifact."""
        allow(request)
        _, row = await self._find(request)
        return json_response(show_artifact(row))

    async def content(self, request: Request) -> Response:
        """Send an artifact's content, or the one stretch of it that `Range` asks for."""
        allow(request)
        tenant, row = await self._find(request)
        if row.url is not None or row.size is None:
            raise NotFoundError(
                f"the content of artifact {row.id} is not here; it lies at {row.url}",
                code="content_elsewhere",
            )
        tag = f'"{row.sha256}"'
        known = request.headers.get("if-none-match", "")
        if known.strip() == "*" or tag in _TAG.findall(known):
            return Response(status_code=304, headers={"ETag": tag})
        stretch = _asked(request, tag, row)
        start, end = stretch or (0, row.size)
        headers = {
            "Accept-Ranges": "bytes",
            "Content-Disposition": _disposition(row.filename or row.id),
            "Content-Length": str(end - start),
            "ETag": tag,
            "X-Content-Type-Options": "nosniff",
        }
        if stretch:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{row.size}"
        chunks = self._chunks(tenant, row, start, end)
        status = 206 if stretch else 200
        return GradualResponse(chunks, status, headers, row.mime_type)

    async def _chunks(
        self, tenant: str, row: ArtifactRow, start: int, end: int
    ) -> AsyncIterator[bytes]:
        """Yield the stretch piece by piece, however large it is.

        A content that was erased meanwhile breaks the response off, short of its promised length.
        """
        while start < end:
            length = min(CHUNK_BYTES, end - start)
            chunk = await self._ports.shelf.read(tenant, row, start, length)
            if not chunk:
                raise NotFoundError(f"the content of artifact {row.id} is gone")
            yield chunk
            start += len(chunk)

    async def _find(self, request: Request) -> tuple[str, ArtifactRow]:
        principal = caller(request, "runs:read")
        wanted = artifacts.find(principal.tenant, request.path_params["artifact_id"])
        return principal.tenant, await self._ports.store.read(wanted)


def show_artifact(row: ArtifactRow) -> dict[str, Any]:
    """Return the artifact as clients read it."""
    return {
        "id": row.id,
        "run_id": row.run_id,
        "session_id": row.session_id,
        "call_id": row.call_id,
        "filename": row.filename,
        "mime_type": row.mime_type,
        "size": row.size,
        "sha256": row.sha256,
        "url": row.url,
        "role": row.role,
        "retention": row.retention,
        "created_at": rfc3339(row.created_ms),
    }


def _asked(request: Request, tag: str, row: ArtifactRow) -> tuple[int, int] | None:
    """Return where the stretch that is asked for begins and ends; None where all of it is.

    A range of another unit, several at once, and one on the condition of another content are as
    if they were not there, as RFC 9110 lets a server have it. Raises `InvalidError` for a stretch
    that has no byte of the content.
    """
    size = row.size or 0
    matched = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if matched is None or request.headers.get("if-range", tag).strip() != tag:
        return None
    first, last = matched["first"], matched["last"]
    if (not first and not last) or (first and last and int(last) < int(first)):
        return None
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end:
        raise RangeError(f"artifact {row.id} has {size} bytes; ask for some of these", size)
    return start, end


def _disposition(filename: str) -> str:
    """Have a browser save the file, by a name that is no path and leaves no header."""
    name = filename.replace("\\", "/").rpartition("/")[2].strip(". ") or "artifact"
    plain = _UNSAFE.sub("_", name)
    if plain == name:
        return f'attachment; filename="{plain}"'
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
