"""Sessions and what was said in them, as clients read and write them."""

from typing import Any

import orjson

from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.runtime.conversation import Said
from milepost.runtime.messages_shown import show_words
from milepost.store.sessions import SessionRow


def ms(span_s: int | None) -> int | None:
    """Return a span of a body as the store has it."""
    return None if span_s is None else span_s * 1000


def show_session(row: SessionRow) -> dict[str, Any]:
    """Return the session as clients read it; its version counts the changes made by them."""
    return {
        "id": row.id,
        "kind": row.kind,
        "user": row.user,
        "title": row.title,
        "version": row.version,
        "runs_ended": row.turns,
        "created_at": rfc3339(row.created_ms),
        "updated_at": rfc3339(row.updated_ms),
        "archived": row.archived_ms is not None,
        "archived_at": rfc3339_or_none(row.archived_ms),
        "ttl_s": _s(row.ttl_ms),
        "expires_at": rfc3339_or_none(row.expires_ms),
        "keep_s": _s(row.keep_ms),
        "forked_from": _origin(row),
        "metadata": orjson.loads(row.metadata),
    }


def _origin(row: SessionRow) -> dict[str, Any] | None:
    """Return what a fork shares of which session: what was said up to and with `at`."""
    if row.forked_from is None:
        return None
    at = None if row.forked_index is None else f"{row.forked_turn}.{row.forked_index}"
    return {"session_id": row.forked_from, "at": at}


def _s(span_ms: int | None) -> int | None:
    return None if span_ms is None else span_ms // 1000


def show_said(said: Said) -> dict[str, Any]:
    """Return a message as clients read it, and where it stands."""
    return {"place": said.place, "run_id": said.run_id, **show_words(said.message)}
