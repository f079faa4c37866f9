"""What Anthropic's official client knows of its wire: an oracle of requests, events and replies."""

from collections.abc import Iterable, Mapping
from typing import Any

from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message as OfficialMessage
from anthropic.types import RawMessageStreamEvent, message_create_params
from pydantic import BaseModel, TypeAdapter

from tests.stubs.anthropic_events import PING, Event

_BODY: TypeAdapter[Any] = TypeAdapter(message_create_params.MessageCreateParamsStreaming)
_EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


def check_request(body: Mapping[str, Any]) -> None:
    """Raise where `body` is no request by the client's types, or says more than they know."""
    known = _whole(_BODY.validate_python(body))
    assert known == body


def accumulated(events: Iterable[Event]) -> OfficialMessage:
    """Return what the client makes of a stream, each event of which its types accept."""
    message: Any = None
    arguments: dict[int, bytes] = {}
    for event in events:
        if event != PING:
            parsed = _EVENT.validate_python(event)
            message = accumulate_event(event=parsed, current_snapshot=message, json_bufs=arguments)
    assert isinstance(message, OfficialMessage)
    return message


def _whole(value: object) -> object:
    """Return what was validated, all of it: what is only iterable is checked on the way."""
    match value:
        case BaseModel():
            return value.model_dump(exclude_unset=True)
        case Mapping():
            return {key: _whole(item) for key, item in value.items()}
        case str() | bytes():
            return value
        case Iterable():
            return [_whole(item) for item in value]
        case _:
            return value
