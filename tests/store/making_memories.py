"""What the store's tests of memories put into it."""

from typing import Any

from milepost.core.memories import Finding, Owner
from milepost.store import memories
from milepost.store.memories import MemoryRow, NewMemory, Source
from milepost.store.store import Store
from tests.store.making import NOW_MS, TENANT, an_id

ANN = Owner("user", "ann")


def a_fact(content: str = "Ann likes green tea") -> Finding:
    """Return something that was said."""
    return Finding("fact", content)


def a_memory(finding: Finding | None = None, owner: Owner = ANN, **changes: Any) -> NewMemory:
    """Return something to be kept, which another run has said each time."""
    origin, run_id = changes.pop("origin", "run"), changes.pop("run_id", None) or an_id("run")
    source = Source(origin, changes.pop("user", None), run_id, "ses_1", "1.0")
    tenant, now_ms = changes.pop("tenant", TENANT), changes.pop("now_ms", NOW_MS)
    assert not changes, changes
    return NewMemory(an_id("mem"), tenant, owner, finding or a_fact(), source, now_ms)


async def remembered(
    store: Store, finding: Finding | None = None, owner: Owner = ANN, **changes: Any
) -> MemoryRow:
    """Keep something."""
    return await store.write(memories.keep(a_memory(finding, owner, **changes)))
