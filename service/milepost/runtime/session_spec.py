"""A session as it is written down to be taken elsewhere, and read there."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from milepost.runtime.agent_spec import Metadata, Spec
from milepost.runtime.images import ImageUrl

FORMAT: Literal["milepost.session/1"] = "milepost.session/1"
RUNS_MAX = 10_000
MESSAGES_MAX = 10_000
CALLS_MAX = 1_000
IMAGES_MAX = 100
SUMMARIES_MAX = 20
SUMMARY_CHARS_MAX = 100_000
PINS_MAX = 50
TURN_MAX = 99_999_999
"""The session goes on from there, and a place has up to nine digits for its turn."""
SPAN_S_MIN = 60
SPAN_S_MAX = 315_360_000

_PLACE = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")


def _checked_place(place: str) -> str:
    if not _PLACE.fullmatch(place):
        raise ValueError(
            "a message's place is <turn>.<index>, such as 2.0; the session's messages show theirs"
        )
    return place


Title = Annotated[str, Field(min_length=1, max_length=500)]
Span = Annotated[int, Field(ge=SPAN_S_MIN, le=SPAN_S_MAX)]
PlaceText = Annotated[str, AfterValidator(_checked_place)]
Status = Literal["completed", "incomplete", "failed", "cancelled", "expired"]
_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Id = Annotated[str, Field(max_length=64)]


class CallSpec(Spec):
    """A call that a model asked for."""

    id: _Name
    name: _Name
    arguments: dict[str, Any]


class MessageSpec(Spec):
    """A message; `tool_call_id` is what a tool's message answers."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: Annotated[list[CallSpec], Field(max_length=CALLS_MAX)] = Field(default_factory=list)
    tool_call_id: _Name | None = None
    images: Annotated[list[ImageUrl], Field(max_length=IMAGES_MAX)] = Field(default_factory=list)


class RunSpec(Spec):
    """A run that is over, and what was said in it."""

    turn: Annotated[int, Field(ge=1, le=TURN_MAX)]
    run_id: _Id = ""
    agent: _Name
    agent_version: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    status: Status = "completed"
    user: _Name | None = None
    metadata: Metadata = Field(default_factory=dict)
    ended_at: _Id = ""
    messages: Annotated[list[MessageSpec], Field(max_length=MESSAGES_MAX)]


class TermsSpec(Spec):
    """What a session is besides what was said; `id` is what it was called where it comes from."""

    id: _Id | None = None
    user: _Name | None = None
    title: Title | None = None
    metadata: Metadata = Field(default_factory=dict)
    ttl_s: Span | None = None
    keep_s: Span | None = None


class SummarySpec(Spec):
    """What is told of a stretch that is out of sight."""

    first: PlaceText
    last: PlaceText
    content: Annotated[str, Field(max_length=SUMMARY_CHARS_MAX)]


class SessionSpec(Spec):
    """A session with its past."""

    format: Literal["milepost.session/1"]
    session: TermsSpec
    runs: Annotated[list[RunSpec], Field(max_length=RUNS_MAX)]
    summaries: Annotated[list[SummarySpec], Field(max_length=SUMMARIES_MAX)] = Field(
        default_factory=list
    )
    pins: Annotated[list[PlaceText], Field(max_length=PINS_MAX)] = Field(default_factory=list)
