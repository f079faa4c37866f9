"""The bound of a transaction whose locks many may wait for: who is frozen in one soon loses it."""

from milepost.store.dialect import idle_bound
from milepost.store.work import Call, Statement

IDLE_MS = 1_000

_HURRY = Statement(idle_bound(IDLE_MS))


def hurrying() -> Call:
    """Return the statement that such a transaction begins with. Groups are begun with it anyway."""
    return _HURRY()
