"""What is written for memory beside a run's end: that it is to be read, and what it has learned."""

from collections.abc import Sequence

from sqlalchemy import insert, select

from milepost.store import memories, schema
from milepost.store.dialect import rows, rows_of
from milepost.store.records import NO_LESSON, Append
from milepost.store.work import Call, Statement

_read = rows("read", "run_id", "tenant", numbers=("created_ms",))
_TO_BE_READ = Statement(
    insert(schema.recollections).from_select(
        ["run_id", "tenant", "created_ms"],
        select(_read.c.run_id, _read.c.tenant, _read.c.created_ms),
    )
)


def calls(appends: Sequence[Append]) -> dict[str, Call]:
    """Return the statements by name; of runs that learn nothing there are none."""
    ends = [
        (item, item.change.lesson)
        for item in appends
        if item.change and item.change.lesson is not NO_LESSON
    ]
    if not ends:
        return {}
    found: dict[str, Call] = {}
    if read := [_row(item) for item, lesson in ends if lesson.is_to_be_read]:
        found["recollections"] = _TO_BE_READ(read=rows_of(read))
    if kept := [each for _, lesson in ends for each in lesson.memories]:
        found["memories"] = memories.keeping(kept)
    for item, lesson in ends:
        for owner, kind in {(each.owner, each.finding.kind) for each in lesson.memories}:
            name = f"pruned {item.run_id} {owner} {kind}"
            found[name] = memories.pruning(item.tenant, owner, kind, lesson.kept_max[kind])
    return found


def _row(item: Append) -> dict[str, str | int]:
    ended_ms = item.change.ended_ms if item.change else None
    assert ended_ms is not None, "only what is over is read"
    return {"run_id": item.run_id, "tenant": item.tenant, "created_ms": ended_ms}
