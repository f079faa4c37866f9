"""What of a session is in a run's sight: the same for a service's sessions and in process."""

from collections.abc import Mapping, Sequence

from milepost.core.context import NOTHING_SEEN, Earlier, Seen
from milepost.core.events import SessionLoaded, Stretch
from milepost.core.frozen import dataclass
from milepost.core.messages import Message
from milepost.core.window import Place, Placed, Trimmed


@dataclass(frozen=True, slots=True)
class Sight:
    """The messages of a session of `turns` runs that are in sight, but for the first `trimmed`."""

    turns: int
    messages: Sequence[Placed]
    trimmed: int

    @property
    def begins(self) -> Place:
        """The first message that is in sight."""
        kept = self.messages[self.trimmed :]
        return kept[0].place if kept else Place(self.turns + 1, 0)


def seen(
    sight: Sight, summary_id: str, told: Sequence[Trimmed], pinned: Mapping[Place, Message]
) -> Seen:
    """Return what a run sees. What falls out of its sight is known as `summary_id`.

    `told` is what did so before, and `pinned` are messages that are shown all the same.
    """
    dropped, kept = sight.messages[: sight.trimmed], sight.messages[sight.trimmed :]
    words = [each for each in told if each.content]
    if not (kept or dropped or words or pinned):
        return NOTHING_SEEN
    loaded = SessionLoaded(
        sight.turns,
        len(kept),
        kept_from=str(sight.begins),
        summaries=tuple(each.id for each in words),
        pins=tuple(str(place) for place in pinned),
        trimmed=_stretch(summary_id, dropped),
    )
    earlier = Earlier(
        messages=tuple(each.message for each in kept),
        summaries=tuple(each.content for each in words),
        pinned=tuple(map(as_pinned, pinned.values())),
    )
    return Seen(earlier, loaded, tuple(each.message for each in dropped))


def can_be_pinned(message: Message) -> bool:
    """Say whether the message says something that can stand alone."""
    return message.role != "tool" and bool(message.content or message.images)


def as_pinned(message: Message) -> Message:
    """Return what is shown of a pinned message: what it says, without the calls that it asks for.

    Their results would have to stand behind it.
    """
    return Message(message.role, message.content, images=message.images)


def _stretch(summary_id: str, dropped: Sequence[Placed]) -> Stretch | None:
    if not dropped:
        return None
    return Stretch(summary_id, str(dropped[0].place), str(dropped[-1].place), len(dropped))
