"""What a caller asks of an agent: what is said to it, and how this one run shall go."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, TypedDict

from pydantic import TypeAdapter, ValidationError

from milepost.agent.answer_format import ResponseFormat
from milepost.agent.steering import Steering
from milepost.core.errors import InvalidError
from milepost.core.events import InputMessage
from milepost.core.json import clean_text
from milepost.core.messages import Image, Message
from milepost.memory.conversation import Conversation
from milepost.runtime.images import ImageUrl
from milepost.runtime.means import Recall
from milepost.runtime.spec import first_fault

URL_SHOWN_CHARS_MAX = 60
DEADLINE_S_MAX = 366 * 86_400

_URLS = TypeAdapter(list[ImageUrl])


class Said(TypedDict, total=False):
    """A message, as people write it; `images` are https addresses or `data:` URLs."""

    role: Literal["user", "assistant", "system"]
    content: str
    images: Sequence[str]


Messages = str | Sequence[str | Said | Mapping[str, object] | Message]
"""A text, or a conversation: texts are the user's, and the last words must be."""

StreamHandler = Callable[[str], object]


class RunOptions(TypedDict, total=False):
    """How one run shall go.

    `response_format` takes the place of the agent's own. `stream_handler` is called with the pieces
    of the answer as they come. `parent_run_id` and `trace_metadata` go into the trace, and tools
    know for which `user` they act. The run ends after `deadline_s`; without `cache` no reply is
    looked up. It goes on in a `conversation`, if one is given, and waits for its turn there. What
    is in `knowledge` and fits it is told to it, and what is said by `steering` while it runs.
    """

    response_format: ResponseFormat | None
    stream_handler: StreamHandler | None
    parent_run_id: str | None
    user: str | None
    deadline_s: float | None
    cache: bool
    trace_metadata: Mapping[str, str]
    conversation: Conversation | None
    knowledge: Recall | None
    steering: Steering | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The same, with what is not said."""

    response_format: ResponseFormat | None = None
    stream_handler: StreamHandler | None = None
    parent_run_id: str | None = None
    user: str | None = None
    deadline_s: float | None = None
    cache: bool = True
    trace_metadata: Mapping[str, str] = field(default_factory=dict)
    conversation: Conversation | None = None
    knowledge: Recall | None = None
    steering: Steering | None = None

    def __post_init__(self) -> None:
        if self.deadline_s is not None and not 0 < self.deadline_s <= DEADLINE_S_MAX:
            raise InvalidError(
                f"deadline_s is {self.deadline_s}; give it more than 0 seconds, and at most"
                f" {DEADLINE_S_MAX:,}"
            )
        texts = {"user": self.user, "parent_run_id": self.parent_run_id}
        given = {name: text for name, text in texts.items() if text is not None}
        if fault := _untold(given) or metadata_fault(self.trace_metadata):
            raise InvalidError(fault)
        if self.conversation is not None and not isinstance(self.conversation, Conversation):
            raise TypeError(f"{self.conversation!r} is no Conversation; make one, and hand it in")
        if self.knowledge is not None and not callable(getattr(self.knowledge, "context", None)):
            raise TypeError(f"{self.knowledge!r} is no Knowledge; make one, and hand it in")
        if self.steering is not None and not isinstance(self.steering, Steering):
            raise TypeError(f"{self.steering!r} is no Steering; make one, and hand it in")


def metadata_fault(given: object) -> str | None:
    """Return what is wrong with `trace_metadata`."""
    if not isinstance(given, Mapping):
        return f"trace_metadata is {given!r}; give a dict of texts"
    named = {f"trace_metadata[{name!r}]": text for name, text in given.items()}
    names = {f"the name {name!r} in trace_metadata": name for name in given}
    return _untold(names) or _untold(named)


def _untold(given: Mapping[str, object]) -> str | None:
    """Return what is wrong with the first of these that no log could tell."""
    for name, text in given.items():
        if not isinstance(text, str) or clean_text(text) != text:
            return f"{name} is {text!r}; give a text without NUL or half a surrogate pair"
    return None


def options_of(given: RunOptions) -> Options:
    """Return the options; raise `TypeError` for one that there is not."""
    known = [each.name for each in fields(Options)]
    if unknown := sorted(given.keys() - set(known)):
        raise TypeError(f"{unknown[0]} is no option of a run; there are {', '.join(known)}")
    return Options(**given)


@dataclass(frozen=True, slots=True)
class Spoken:
    """What was said before, and what is said now."""

    before: tuple[Message, ...]
    now: tuple[InputMessage, ...]


def conversation(said: Messages) -> Spoken:
    """Return the conversation; raise `InvalidError` for one that the agent cannot answer.

    What came before is all up to the last answer.
    """
    if not isinstance(said, Sequence):
        raise InvalidError(f"{said!r} is no conversation; write a text, or a list of messages")
    turns = [Message("user", clean_text(said))] if isinstance(said, str) else [*map(_message, said)]
    if not turns or turns[-1].role != "user":
        raise InvalidError(
            "the last message is the user's; there is "
            + (f"one of the {turns[-1].role}'s" if turns else "none")
        )
    answers = (at for at in range(len(turns), 0, -1) if turns[at - 1].role in {"assistant", "tool"})
    cut = next(answers, 0)
    now = tuple(InputMessage(turn.role, turn.content, turn.images) for turn in turns[cut:])
    return Spoken(_answered(turns[:cut]), now)


def _message(said: str | Said | Mapping[str, object] | Message) -> Message:
    match said:
        case Message():
            return said
        case str():
            return Message("user", clean_text(said))
        case {"role": "user" | "assistant" | "system" as role, "content": str(content)}:
            if said.keys() <= Said.__annotations__.keys():
                images = _images(said.get("images", ()))
                if images and role != "user":
                    raise InvalidError(f"images are a user's to show, and no {role}'s")
                return Message(role, clean_text(content), images=images)
        case _:
            pass  # Nothing that is known.
    raise InvalidError(
        f"{said!r} is no message; write a text, or {{'role': 'user', 'content': ...}}, or hand in"
        " the messages of a result"
    )


def _images(urls: object) -> tuple[Image, ...]:
    if isinstance(urls, str) or not isinstance(urls, Sequence):
        raise InvalidError(f"images is {urls!r}; give a list of addresses")
    try:
        return tuple(Image(url) for url in _URLS.validate_python(list(urls)))
    except ValidationError as error:
        where, fault = first_fault(error)
        said = str(urls[int(where[0])])[:URL_SHOWN_CHARS_MAX]
        raise InvalidError(f"images.{where[0]} is {said!r}: {fault}") from error


def _answered(turns: Sequence[Message]) -> tuple[Message, ...]:
    """Return the turns; raise `InvalidError` for a call without a result, which vendors refuse."""
    asked = {call.id for turn in turns for call in turn.calls}
    told = {turn.call_id for turn in turns if turn.role == "tool"}
    if missing := sorted(asked - told):
        raise InvalidError(f"call {missing[0]} has no result in the messages; hand in all of them")
    return tuple(turns)
