"""Artifacts: what tools left behind, and the contents that are small enough for the database.

A content is kept under its session: no other session refers to it, so that it goes with its own,
and nobody has to look whether it is still needed.
"""

from dataclasses import dataclass

from sqlalchemy import Integer, LargeBinary, bindparam, cast, func, select

from milepost.core.errors import NotFoundError
from milepost.store import schema
from milepost.store.dialect import insert_new, number, text
from milepost.store.listing import paged
from milepost.store.records import Page
from milepost.store.work import Statement, Work

_A = schema.artifacts.c
_C = schema.artifact_contents.c
_COLUMNS = (
    _A.id, _A.run_id, _A.session_id, _A.call_id, _A.filename, _A.mime_type, _A.size, _A.sha256,
    _A.url, _A.role, _A.retention, _A.created_ms,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    """A file that a tool left behind; `url` is None where its content is kept here."""

    id: str
    run_id: str
    session_id: str
    call_id: str
    filename: str | None
    mime_type: str
    size: int | None
    sha256: str | None
    url: str | None
    role: str | None
    retention: str | None
    created_ms: int


_KEEP = Statement(
    insert_new(schema.artifact_contents).values(
        tenant=text("tenant"),
        session_id=text("session_id"),
        sha256=text("sha256"),
        content=bindparam("content", type_=LargeBinary, required=False),
    )
)
_FIND = Statement(
    select(*_COLUMNS).where(_A.tenant == text("tenant"), _A.id == text("artifact_id"))
)
# Both databases count a content's bytes from 1, and Postgres in no wider number than this.
_START, _LENGTH = cast(number("start") + 1, Integer), cast(number("length"), Integer)
_CONTENT = Statement(
    select(func.substr(_C.content, _START, _LENGTH)).where(
        _C.tenant == text("tenant"),
        _C.session_id == text("session_id"),
        _C.sha256 == text("sha256"),
    )
)


def keep(tenant: str, session_id: str, sha256: str, content: bytes) -> Work[None]:
    """Keep a content, once however often it comes."""
    yield _KEEP(tenant=tenant, session_id=session_id, sha256=sha256, content=content)


def find(tenant: str, artifact_id: str) -> Work[ArtifactRow]:
    """Return the artifact; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, artifact_id=artifact_id)
    if not found:
        raise NotFoundError(f"there is no artifact {artifact_id}", code="artifact_not_found")
    return ArtifactRow(*found[0])


def of_run(tenant: str, run_id: str, page: Page) -> Work[list[ArtifactRow]]:
    """Return a page of what the run left behind, and one more."""
    query = select(*_COLUMNS).where(_A.tenant == tenant, _A.run_id == run_id)
    found = yield Statement(paged(query, _A.id, page))()
    return [ArtifactRow(*row) for row in found]


def content(tenant: str, row: ArtifactRow, start: int, length: int) -> Work[bytes | None]:
    """Return a stretch of a content; None where the database does not have it."""
    found = yield _CONTENT(
        tenant=tenant, session_id=row.session_id, sha256=row.sha256, start=start, length=length
    )
    return bytes(found[0][0]) if found else None
