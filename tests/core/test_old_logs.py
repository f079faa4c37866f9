"""Logs that earlier versions wrote: kept as long as their runs, and read for as long.

Each file holds every event that its version knew, as that version encoded it: a run, and behind it
one of each way in which runs may end.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milepost.core.codec import decode, encode
from milepost.core.events import Event, Terminal
from milepost.core.evolve import evolve
from milepost.core.state import State, transcript

LOGS = sorted((Path(__file__).parent / "old_logs").glob("*.ndjson"))
each_log = pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)


def stored(log: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in log.read_text().splitlines():
        kind, data = json.loads(line)
        yield kind, data


def read(log: Path) -> list[Event]:
    events = [decode(kind, json.dumps(data)) for kind, data in stored(log)]
    assert None not in events, "a version never forgets an event"
    return [event for event in events if event]


@each_log
def test_an_event_says_all_that_it_said_when_it_was_written(log: Path) -> None:
    for kind, data in stored(log):
        event = decode(kind, json.dumps(data))
        assert event is not None
        told = json.loads(encode(event))
        assert _kept(data, told), kind


def _kept(before: Any, now: Any) -> bool:
    """Say whether all of `before` is in `now`, which may say more."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(
            name in now and _kept(value, now[name]) for name, value in before.items()
        )
    if isinstance(before, list):
        return len(before) == len(now) and all(map(_kept, before, now))
    return bool(before == now)


@each_log
def test_a_run_leads_to_where_it_led(log: Path) -> None:
    events = read(log)
    state = State()
    for event in events:
        if not isinstance(event, Terminal):
            state = evolve(state, event)

    assert state.step == 1
    assert [call.name for call in state.messages[1].calls] == ["look", "refund", "mail", "close"]
    assert [message.role for message in transcript(state)] == [
        "user", "assistant", "tool", "tool", "tool", "tool",
    ]  # fmt: skip
    assert transcript(state)[2].content == "short"
    assert state.usage.model_calls == 3
    assert state.cancelling is not None
    ends = [event for event in events if isinstance(event, Terminal)]
    assert len(ends) == 5
    assert all(evolve(state, end).ended for end in ends)


def test_there_is_a_log_of_an_earlier_version() -> None:
    assert LOGS
