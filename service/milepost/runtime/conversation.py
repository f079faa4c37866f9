"""What a session's people, models and tools said, message by message."""

import re
from dataclasses import dataclass, replace

from milepost.core.errors import InvalidError
from milepost.core.messages import Message
from milepost.runtime.history import History, folded
from milepost.store import log, sessions
from milepost.store.records import Page
from milepost.store.sessions import Turn
from milepost.store.store import Store

TURNS_READ = 20

_PLACE = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Said:
    """A message and where it stands: the session's turn, and which message of that turn."""

    turn: int
    index: int
    run_id: str
    message: Message

    @property
    def place(self) -> str:
        """The message's cursor. It is the same for as long as the session is there."""
        return f"{self.turn}.{self.index}"


class Conversation:
    """Reads sessions' messages out of the logs of their runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._history = History(store)

    async def page(self, tenant: str, session_id: str, wanted: Page) -> list[Said]:
        """Return the page's messages, and one more if there are more.

        Ended runs come in the order that models are shown, then the run under way with all but its
        present step's results. A run that waits for its turn has said nothing yet.
        """
        behind = _place(wanted.after) if wanted.after is not None else None
        turns = replace(wanted, limit=TURNS_READ, after=_before(behind, wanted))
        found: list[Said] = []
        while len(found) <= wanted.limit:
            read = await self._store.read(sessions.turns(tenant, session_id, turns))
            messages = await self._messages(tenant, read, ascending=wanted.ascending)
            found += [said for said in messages if _lies_behind(said, behind, wanted)]
            if len(read) <= TURNS_READ:
                break
            turns = replace(turns, after=str(read[-1].number))
        return found[: wanted.limit + 1]

    async def _messages(self, tenant: str, turns: list[Turn], *, ascending: bool) -> list[Said]:
        said = await self._history.of([turn.run_id for turn in turns if turn.ended])
        found: list[Said] = []
        for turn in turns:
            if turn.ended:
                messages = said[turn.run_id]
            else:
                entries = await self._store.read(log.read_all(tenant, turn.run_id))
                messages = folded(entries).messages
            placed = [
                Said(turn.number, index, turn.run_id, message)
                for index, message in enumerate(messages)
            ]
            found += placed if ascending else reversed(placed)
        return found


def _place(cursor: str) -> tuple[int, int]:
    matched = _PLACE.fullmatch(cursor)
    if matched is None:
        raise InvalidError(f"{cursor!r} is no cursor of this list", code="bad_cursor")
    return int(matched[1]), int(matched[2])


def _before(behind: tuple[int, int] | None, wanted: Page) -> str | None:
    """Return the turn just before the one that the cursor is in, which is to be read again."""
    if behind is None:
        return None
    return str(behind[0] - 1 if wanted.ascending else behind[0] + 1)


def _lies_behind(said: Said, behind: tuple[int, int] | None, wanted: Page) -> bool:
    if behind is None:
        return True
    here = (said.turn, said.index)
    return here > behind if wanted.ascending else here < behind
