"""What stands before a run's own messages: what was said earlier, and what is remembered.

Pure. The order is one for all: a summary of what is out of sight, the messages that are pinned, the
session as far as it is in sight, and behind it what is remembered for this very run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from milepost.core.events import SessionLoaded
from milepost.core.frozen import dataclass
from milepost.core.messages import Message

SUMMARY = "Conversation Summary"
SUMMARY_CHARS_MAX = 8_000
SUMMARIES_MAX = 20
CONTEXT_CHARS_MAX = 8_000

Section = Literal["entities", "relationships", "important", "general"]
LABELS: Mapping[Section, str] = {
    "entities": "Known Entities",
    "relationships": "Known Relationships",
    "important": "Important Knowledge",
    "general": "General Knowledge",
}
"""The sections of what is remembered, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a run is shown of all that was before it; `context` is what is remembered for it.

    `summaries` tell what is out of sight, the oldest first; `pinned` is shown although it is.
    """

    messages: tuple[Message, ...] = ()
    summaries: tuple[str, ...] = ()
    pinned: tuple[Message, ...] = ()
    context: str = ""


NOTHING_EARLIER = Earlier()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run sees of its session.

    `loaded` is what its log is to say of that, None if it says so already or there is nothing to
    say. `trimmed` is what falls out of sight with it, for whoever tells of it, and `trimmed_runs`
    are the runs in which that was said, where they have names.
    """

    earlier: Earlier = NOTHING_EARLIER
    loaded: SessionLoaded | None = None
    trimmed: tuple[Message, ...] = ()
    trimmed_runs: tuple[str, ...] = ()


NOTHING_SEEN = Seen()


def with_context(seen: Seen, turns: int, context: str) -> Seen:
    """Return what is seen with what is remembered, for a run of a session of so many turns."""
    if not context:
        return seen
    told = context[:CONTEXT_CHARS_MAX]
    loaded = seen.loaded or SessionLoaded(turns, 0, kept_from=f"{turns + 1}.0")
    earlier = replace(seen.earlier, context=told)
    return replace(seen, earlier=earlier, loaded=replace(loaded, context=told))


def block(sections: Mapping[Section, Iterable[str]]) -> str:
    """Return what is remembered as one text: only sections in which there is something, in order.

    What does not fit is left out, line by line from the end of each section's own; the first
    sections have what room there is.
    """
    parts: list[str] = []
    room = CONTEXT_CHARS_MAX
    for section, label in LABELS.items():
        lines = _within([*sections.get(section, ())], room - len(label) - len("[]\n\n\n"))
        if lines:
            parts.append("\n".join((f"[{label}]", *lines)))
            room -= len(parts[-1]) + len("\n\n")
    return "\n\n".join(parts)


def _within(lines: Sequence[str], room: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept


def summary_block(summaries: Sequence[str]) -> str:
    """Return all summaries as one text, the newest if there are too many; nothing if none."""
    told = _within([text for text in reversed(summaries) if text], SUMMARY_CHARS_MAX)
    return "\n".join((f"[{SUMMARY}]", *reversed(told))) if told else ""


def shown(earlier: Earlier, summarized: str = "") -> tuple[Message, ...]:
    """Return what stands between the instructions and the run's own messages.

    `summarized` is what this very run has been told of what fell out of sight with it.
    """
    summary = summary_block((*earlier.summaries, summarized))
    said = (*earlier.pinned, *earlier.messages)
    return (
        *((Message("system", summary),) if summary else ()),
        *said,
        *((_remembered(earlier.context, begins=not said),) if earlier.context else ()),
    )


def _remembered(context: str, *, begins: bool) -> Message:
    """Where it begins the conversation it is told by the user.

    Some wires have one place for all that the system says first, and what is of one run alone
    would change what stands there.
    """
    return Message("user" if begins else "system", context)
