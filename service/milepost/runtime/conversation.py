"""What a session's people, models and tools said, message by message."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from milepost.core.errors import InvalidError
from milepost.core.messages import Message
from milepost.core.window import Place
from milepost.runtime.history import History, folded
from milepost.store import log, session_forks, sessions
from milepost.store.records import Page
from milepost.store.sessions import SessionRow, Stretch, Turn
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
        """The message's cursor: the same for as long as the session is there, once the run is over.

        A run that is cancelled while it waits for its turn ends before the one under way.
        """
        return f"{self.turn}.{self.index}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages are wanted: of all runs or of one, and of those that were rolled back."""

    run_id: str | None = None
    rolled_back: bool = False


class Conversation:
    """Reads sessions' messages out of the logs of their runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._history = History(store)

    async def page(self, row: SessionRow, wanted: Page, choice: Choice = Choice()) -> list[Said]:
        """Return the page's messages, and one more if there are more.

        Ended runs come in the order that models are shown, then the run under way with all but its
        present step's results. A run that waits for its turn has said nothing yet, and what was
        rolled back is left out unless it is asked for. What a fork shares is read where it was
        said.
        """
        found: list[Said] = []
        async with aclosing(self.said(row, wanted, choice)) as said:
            async for each in said:
                found.append(each)
                if len(found) > wanted.limit:
                    break
        return found

    async def last(self, row: SessionRow) -> Place | None:
        """Return the last message of the runs that are over, None if there is none."""
        found = await self.page(row, Page(1, f"{row.turns + 1}.0"))
        return Place(found[0].turn, found[0].index) if found else None

    async def at(self, row: SessionRow, place: Place) -> Said | None:
        """Return the message at that place, None if there is none."""
        found = await self.page(row, Page(1, f"{place.turn}.{place.at + 1}"))
        is_there = bool(found) and (found[0].turn, found[0].index) == place
        return found[0] if is_there else None

    async def said(
        self, row: SessionRow, wanted: Page, choice: Choice = Choice()
    ) -> AsyncGenerator[Said, None]:
        """Yield the messages behind the page's cursor, in its order, however many there are."""
        behind = place_of(wanted.after) if wanted.after is not None else None
        stretches = await self._store.read(session_forks.lineage(row))
        for stretch in stretches if wanted.ascending else reversed(stretches):
            turns = replace(wanted, limit=TURNS_READ, after=_before(behind, wanted))
            while True:
                read = await self._store.read(
                    sessions.turns(
                        row.tenant,
                        stretch.session_id,
                        turns,
                        run_id=choice.run_id,
                        rolled_back=choice.rolled_back,
                        stretch=stretch,
                    )
                )
                for said in await self._messages(row.tenant, read, stretch, wanted):
                    if _lies_behind(said, behind, wanted):
                        yield said
                if len(read) <= TURNS_READ:
                    break
                turns = replace(turns, after=str(read[-1].number))

    async def _messages(
        self, tenant: str, turns: list[Turn], stretch: Stretch, wanted: Page
    ) -> list[Said]:
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
                if not stretch.ends_before(turn.number, index)
            ]
            found += placed if wanted.ascending else reversed(placed)
        return found


def place_of(cursor: str) -> Place:
    """Return the place that a message's cursor is. Raises `InvalidError` for anything else."""
    matched = _PLACE.fullmatch(cursor)
    if matched is None:
        raise InvalidError(f"{cursor!r} is no cursor of this list", code="bad_cursor")
    return Place(int(matched[1]), int(matched[2]))


def _before(behind: Place | None, wanted: Page) -> str | None:
    """Return the turn just before the one that the cursor is in, which is to be read again."""
    if behind is None:
        return None
    return str(behind.turn - 1 if wanted.ascending else behind.turn + 1)


def _lies_behind(said: Said, behind: Place | None, wanted: Page) -> bool:
    if behind is None:
        return True
    here = Place(said.turn, said.index)
    return here > behind if wanted.ascending else here < behind
