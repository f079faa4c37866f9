"""A session from elsewhere: its past becomes runs that are over, and whose logs say so."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import orjson

from milepost.core.codec import encode
from milepost.core.errors import InvalidError
from milepost.core.events import Event, Output, RunCompleted, RunImported, RunQueued
from milepost.core.messages import NOT_RUN, Image, Message, ToolCall
from milepost.core.state import State
from milepost.core.usage import Usage
from milepost.core.window import Place
from milepost.memory.sight import can_be_pinned
from milepost.runtime.clock import NewId
from milepost.runtime.journal import ending
from milepost.runtime.session_spec import MessageSpec, RunSpec, SessionSpec
from milepost.store.records import Entry
from milepost.store.session_imports import NO_AGENT, Imported, ImportedRun, ImportedSummary
from milepost.store.sessions import NewSession

_Said = Mapping[int, tuple[Message, ...]]


def imported(spec: SessionSpec, session: NewSession, new_id: NewId) -> Imported:
    """Return what is to be made of an exported session. Raises `InvalidError` for what is none."""
    for before, after in pairwise(run.turn for run in spec.runs):
        if before >= after:
            raise _invalid(f"turn {after} comes behind turn {before}", "/runs")
    said = {
        run.turn: _conversation(run.messages, f"/runs/{at}/messages")
        for at, run in enumerate(spec.runs)
    }
    return Imported(
        session,
        tuple(_run(run, said[run.turn], session, new_id) for run in spec.runs),
        _summaries(spec, said, new_id),
        _pins(spec, said),
    )


def _run(
    run: RunSpec, said: tuple[Message, ...], session: NewSession, new_id: NewId
) -> ImportedRun:
    answer = next((each.content for each in reversed(said) if each.role == "assistant"), "")
    completed = RunCompleted(Output(answer), Usage())
    events: tuple[Event, ...] = (
        RunQueued(run.agent, NO_AGENT, run.agent_version, session.id, (), "imported", run.user),
        RunImported(run.run_id, run.status, run.ended_at, said),
        completed,
    )
    now = session.created_ms
    return ImportedRun(
        id=new_id("run"),
        turn=run.turn,
        agent=run.agent,
        agent_version=run.agent_version,
        user=run.user,
        metadata=orjson.dumps(run.metadata).decode(),
        outcome=ending(completed, State(), now).outcome or "{}",
        entries=tuple(Entry(event.type, now, encode(event).decode()) for event in events),
    )


def _conversation(messages: Sequence[MessageSpec], pointer: str) -> tuple[Message, ...]:
    """Return what was said. Results stand behind their calls, and each call has one."""
    said: list[Message] = []
    open_ids: list[str] = []
    for at, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in open_ids:
                raise _invalid(
                    f"the call {message.tool_call_id!r} is not open", f"{pointer}/{at}/tool_call_id"
                )
            open_ids.remove(message.tool_call_id)
        else:
            said += _closing(open_ids)
            open_ids = [call.id for call in message.tool_calls]
            _require_fits(message, open_ids, f"{pointer}/{at}")
        said.append(_message(message))
    return (*said, *_closing(open_ids))


def _require_fits(message: MessageSpec, call_ids: Sequence[str], pointer: str) -> None:
    if call_ids and message.role != "assistant":
        raise _invalid(f"a {message.role} asks for no calls", f"{pointer}/tool_calls")
    if len(set(call_ids)) < len(call_ids):
        raise _invalid("two calls of a message have the same id", f"{pointer}/tool_calls")
    if message.images and message.role != "user":
        raise _invalid(f"images are a user's to show, and no {message.role}'s", f"{pointer}/images")
    if message.tool_call_id is not None:
        raise _invalid("only a tool answers a call", f"{pointer}/tool_call_id")


def _closing(open_ids: Sequence[str]) -> list[Message]:
    return [Message("tool", NOT_RUN, call_id=call_id) for call_id in open_ids]


def _message(message: MessageSpec) -> Message:
    return Message(
        message.role,
        message.content,
        calls=tuple(ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls),
        call_id=message.tool_call_id,
        images=tuple(map(Image, message.images)),
    )


def _summaries(spec: SessionSpec, said: _Said, new_id: NewId) -> tuple[ImportedSummary, ...]:
    """Return the summaries, whose stretches must lie one behind the other."""
    found = tuple(
        ImportedSummary(new_id("sum"), Place.of(each.first), Place.of(each.last), each.content)
        for each in spec.summaries
    )
    places = [place for each in found for place in (each.first, each.last)]
    if places != sorted(places):
        raise _invalid("a stretch of a summary begins before the last one ends", "/summaries")
    if places and (not spec.runs or places[-1].turn > spec.runs[-1].turn):
        raise _invalid(f"there is nothing at {places[-1]}", "/summaries")
    for at, each in enumerate(found):
        following = _at(said, Place(each.last.turn, each.last.at + 1))
        if following is not None and following.role == "tool":
            raise _invalid(
                f"the stretch that ends at {each.last} parts a result from its call",
                f"/summaries/{at}/last",
            )
    return found


def _pins(spec: SessionSpec, said: _Said) -> tuple[Place, ...]:
    """Return what is pinned, without what is there no more."""
    pins: set[Place] = set()
    for at, pin in enumerate(map(Place.of, spec.pins)):
        if (message := _at(said, pin)) is None:
            continue
        if not can_be_pinned(message):
            raise _invalid(
                f"message {pin} is of no use without the others of its step", f"/pins/{at}"
            )
        pins.add(pin)
    return tuple(sorted(pins))


def _at(said: _Said, place: Place) -> Message | None:
    messages = said.get(place.turn, ())
    return messages[place.at] if place.at < len(messages) else None


def _invalid(why: str, pointer: str) -> InvalidError:
    return InvalidError(
        f"that is no session as an export has it: {why}", code="invalid_export", pointer=pointer
    )
