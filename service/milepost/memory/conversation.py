"""A conversation in one's own process: what was said in it, and what is in sight of it."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import Any

import orjson

from milepost.core.agents import Memory
from milepost.core.codec import message_read
from milepost.core.context import Seen
from milepost.core.errors import InvalidError, NotFoundError
from milepost.core.events import Event, MemorySummarized, MemoryTrimmed
from milepost.core.messages import Message
from milepost.core.window import Place, Placed, Trimmed, cut, window_of
from milepost.memory.line import Line
from milepost.memory.sight import Sight, can_be_pinned, seen
from milepost.memory.transcript import Told, told_in

VERSION = 1


class Conversation:
    """Runs that come one after the other, each shown what the earlier ones said.

    Handed to a run as `conversation=`, it has what was said from then on; runs that are handed the
    same one wait for each other. What of it a run is shown, its agent's `memory` says.
    """

    def __init__(self) -> None:
        self._turns: list[Told] = []
        self._trimmed: list[Trimmed] = []
        self._pins: set[Place] = set()
        self._line = Line()

    def __len__(self) -> int:
        """Return how many messages there are, in sight or not."""
        return sum(len(told.messages) for told in self._turns)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that was said."""
        return tuple(message for told in self._turns for message in told.messages)

    @property
    def summary(self) -> str:
        """What is told of what fell out of sight."""
        return "\n".join(each.content for each in self._trimmed if each.content)

    @property
    def in_sight(self) -> tuple[Message, ...]:
        """What was said, as far as it has not fallen out of sight."""
        return tuple(each.message for each in self._placed() if each.place > self._last_trimmed)

    # --- Shaping it ---

    def pin(self, index: int) -> None:
        """Have a message, by its number in `messages`, shown to every run."""
        place = self._place(index)
        message = self._turns[place.turn - 1].messages[place.at]
        if not can_be_pinned(message):
            raise InvalidError(
                f"message {index} is of no use without the others of its step; pin one in which"
                " the user or the model says something"
            )
        self._pins.add(place)

    def unpin(self, index: int) -> None:
        """Leave a message to the window again."""
        self._pins.discard(self._place(index))

    def revert(self) -> None:
        """Have shown again what fell out of sight last, to runs whose window has room for it."""
        if self._trimmed:
            self._trimmed.pop()

    def clear(self) -> None:
        """Forget all that was said."""
        self._turns.clear()
        self._trimmed.clear()
        self._pins.clear()

    # --- Keeping it elsewhere ---

    def to_json(self) -> str:
        """Return all of it as JSON, to be kept wherever one likes."""
        kept = {
            "version": VERSION,
            "turns": [asdict(told) for told in self._turns],
            "trimmed": [
                {"id": t.id, "first": str(t.first), "last": str(t.last), "content": t.content}
                for t in self._trimmed
            ],
            "pins": [str(place) for place in sorted(self._pins)],
        }
        return orjson.dumps(kept).decode()

    @classmethod
    def from_json(cls, kept: str | bytes) -> "Conversation":
        """Return the conversation that `to_json` has written; raise `InvalidError` for no such."""
        try:
            return cls._read(orjson.loads(kept))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidError(
                f"that is no conversation as `to_json` writes one: {error!r}"
            ) from error

    @classmethod
    def _read(cls, said: Mapping[str, Any]) -> "Conversation":
        if said["version"] != VERSION:
            raise InvalidError(
                f"the conversation is of version {said['version']}, and this reads {VERSION}"
            )
        made = cls()
        made._turns = [
            Told(
                tuple(map(message_read, turn["messages"])),
                tuple(turn["tokens"]),
                turn["begun"],
                turn["vetted"],
            )
            for turn in said["turns"]
        ]
        made._trimmed = [
            Trimmed(t["id"], Place.of(t["first"]), Place.of(t["last"]), t["content"])
            for t in said["trimmed"]
        ]
        made._pins = {Place.of(place) for place in said["pins"]}
        return made

    # --- What runs do with it ---

    @property
    def turns(self) -> int:
        """How many runs are in it."""
        return len(self._turns)

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Wait for one's turn, and have it within."""
        return self._line.turn()

    def seen(self, memory: Memory | None, summary_id: str, *, begun_only: bool = False) -> Seen:
        """Return what a run of an agent with this memory sees of it."""
        told = self._placed(begun_only=begun_only)
        placed = [each for each in told if each.place > self._last_trimmed]
        sight = Sight(self.turns, placed, cut(placed, window_of(memory)))
        known = {each.place: each.message for each in told}
        pins = sorted(pin for pin in self._pins if pin < sight.begins and pin in known)
        pinned = {pin: known[pin] for pin in pins}
        return seen(sight, summary_id, self._trimmed, pinned)

    def keep(self, events: Sequence[Event]) -> None:
        """Take in what was said in a run that is over, and what fell out of sight with it."""
        self._turns.append(told_in(events))
        for event in events:
            if isinstance(event, MemorySummarized | MemoryTrimmed):
                content = event.content if isinstance(event, MemorySummarized) else ""
                first, last = Place.of(event.first), Place.of(event.last)
                self._trimmed.append(Trimmed(event.id, first, last, content))

    @property
    def _last_trimmed(self) -> Place:
        return self._trimmed[-1].last if self._trimmed else Place(0, 0)

    def _placed(self, *, begun_only: bool = False) -> list[Placed]:
        return [
            placed
            for turn, told in enumerate(self._turns, start=1)
            for placed in placed_in(turn, told, begun_only=begun_only)
        ]

    def _place(self, index: int) -> Place:
        places = [each.place for each in self._placed()]
        if not 0 <= index < len(places):
            raise NotFoundError(f"there is no message {index}; there are {len(places)}")
        return places[index]


def placed_in(turn: int, told: Told, *, begun_only: bool = False) -> list[Placed]:
    """Return what was said in a turn, each message in its place.

    With `begun_only` it is without the input that no model ever read, which no guardrail has seen.
    """
    if begun_only and not told.begun:
        return []
    messages: Iterable[Message] = told.messages[: told.vetted] if begun_only else told.messages
    return [
        Placed(Place(turn, at), message, told.tokens[at]) for at, message in enumerate(messages)
    ]
