"""Which messages of a session a run is shown, and which fall out of sight.

Pure. What is out of sight stays so: as long as nothing more falls out, the next run's prompt begins
with the same bytes as this one's, which vendors' caches know again.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from milepost.core.agents import Memory, Window
from milepost.core.frozen import dataclass
from milepost.core.messages import Message

MESSAGES = 200
"""How many messages a run is shown at most where its agent says nothing of it."""

BYTES_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4
TOKENS_PER_IMAGE = 1_000
PLAUSIBLE = 4
"""What a vendor has counted may be so many times more than the estimate, or less."""

PLAIN = Window(messages=MESSAGES)


class Place(NamedTuple):
    """Where a message stands in its session: in which turn, and as which message of that turn."""

    turn: int
    at: int

    def __str__(self) -> str:
        """Return it as clients read it, `<turn>.<index>`."""
        return f"{self.turn}.{self.at}"

    @classmethod
    def of(cls, written: str) -> "Place":
        """Return the place that was written so."""
        turn, _, at = written.partition(".")
        return cls(int(turn), int(at))


@dataclass(frozen=True, slots=True)
class Placed:
    """A message of a session, and how many tokens it takes."""

    place: Place
    message: Message
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A stretch of a session that is out of sight, and what is told of it, maybe nothing."""

    id: str
    first: Place
    last: Place
    content: str


@dataclass(frozen=True, slots=True)
class Counted:
    """What a model was given and gave, as its vendor counted; what it thought is not given back."""

    given: int
    said: int


def window_of(memory: Memory | None) -> Window:
    """Return what holds for an agent."""
    return memory.window if memory and memory.window else PLAIN


def estimated(message: Message) -> int:
    """Return about how many tokens a message takes: a token is some four bytes of text."""
    told = [message.content]
    for call in message.calls:
        told += (call.name, str(call.arguments))
    size = sum(len(text.encode(errors="replace")) for text in told)
    return TOKENS_PER_MESSAGE + -(-size // BYTES_PER_TOKEN) + TOKENS_PER_IMAGE * len(message.images)


def weighed(messages: Sequence[Message], counted: Sequence[Counted | None]) -> tuple[int, ...]:
    """Return how many tokens each of a run's messages takes.

    `counted` is what vendors said of the calls that brought its replies, in their order. A reply is
    what was counted for it; what was said between two calls is what the second was given on top.
    What is out of all proportion, since something else was shown as well, is estimated.
    """
    tokens = [estimated(message) for message in messages]
    replies = [at for at, message in enumerate(messages) if message.role == "assistant"]
    known = dict(zip(reversed(replies), reversed(counted), strict=False))
    before: tuple[int, Counted] | None = None
    for at in replies:
        here = known.get(at)
        if here is None:
            before = None
            continue
        if before is not None:
            was, there = before
            _share(tokens, was + 1, at, here.given - there.given - there.said)
        _share(tokens, at, at + 1, here.said)
        before = (at, here)
    return tuple(tokens)


def _share(tokens: list[int], start: int, end: int, total: int) -> None:
    """Have the messages from `start` up to `end` take `total` together, if that is plausible."""
    guessed = sum(tokens[start:end])
    if not guessed or not guessed <= total * PLAUSIBLE <= guessed * PLAUSIBLE**2:
        return
    ends = [shared * total // guessed for shared in accumulate(tokens[start:end])]
    for at, (low, high) in enumerate(zip([0, *ends], ends, strict=False), start):
        tokens[at] = high - low


def holds(messages: Sequence[Placed], window: Window) -> bool:
    """Say whether the window has room for all of these."""
    if window.messages is not None and len(messages) > window.messages:
        return False
    return window.tokens is None or sum(each.tokens for each in messages) <= window.tokens


def cut(messages: Sequence[Placed], window: Window) -> int:
    """Return with which message what is shown begins; 0 as long as all has room.

    Once it has not, half of the window is made free at once, or what is shown would begin elsewhere
    with every turn. Turns are kept or dropped whole; only one that is alone too much for the window
    is cut, and never between a call and its result.
    """
    if holds(messages, window):
        return 0
    half = Window(
        None if window.messages is None else window.messages // 2,
        None if window.tokens is None else window.tokens // 2,
    )
    for bound, begins, first in (
        (half, _begins_turn, True),
        (window, _begins_turn, False),
        (half, _may_begin, True),
        (window, _may_begin, False),
    ):
        fitting = _fitting(messages, bound, begins)
        if fitting:
            return fitting[0] if first else fitting[-1]
    return len(messages)


def _fitting(
    messages: Sequence[Placed],
    bound: Window,
    begins: Callable[[Sequence[Placed], int], bool],
) -> list[int]:
    """Return where what is shown could begin, and be within the bound, the most of it first."""
    tokens, fitting = 0, []
    for at in range(len(messages) - 1, -1, -1):
        tokens += messages[at].tokens
        if bound.messages is not None and len(messages) - at > bound.messages:
            break
        if bound.tokens is not None and tokens > bound.tokens:
            break
        if begins(messages, at):
            fitting.append(at)
    return fitting[::-1]


def _begins_turn(messages: Sequence[Placed], at: int) -> bool:
    before = messages[at - 1].place.turn if at else None
    return messages[at].place.turn != before and _may_begin(messages, at)


def _may_begin(messages: Sequence[Placed], at: int) -> bool:
    """A result without its call is refused by vendors, and no use to anybody."""
    return messages[at].message.role != "tool"
