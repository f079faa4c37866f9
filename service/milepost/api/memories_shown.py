"""Memories as clients read them."""

from typing import Any

import orjson

from milepost.live.frames import rfc3339
from milepost.store.memories import MemoryRow


def show_memory(row: MemoryRow) -> dict[str, Any]:
    """Return the memory with where it came from; its version counts the changes made to it."""
    return {
        "id": row.id,
        "scope": row.scope,
        "owner": row.owner or None,
        "kind": row.kind,
        "subject": row.subject or None,
        "predicate": row.predicate or None,
        "object": row.object or None,
        "content": row.content or None,
        "attributes": orjson.loads(row.attributes),
        "mentions": row.mentions,
        "user": row.user,
        "source": {
            "origin": row.origin,
            "run_id": row.run_id,
            "session_id": row.session_id,
            "message": row.place,
        },
        "version": row.version,
        "created_at": rfc3339(row.created_ms),
        "updated_at": rfc3339(row.updated_ms),
        "mentioned_at": rfc3339(row.seen_ms),
    }
