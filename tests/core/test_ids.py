"""Ids: sortable by time, of one form, and never the same for two things."""

import re
import uuid

from hypothesis import given
from hypothesis import strategies as st

from milepost.core import ids

TIMES_MS = st.integers(0, 2**48 - 1)
CHANCES = st.integers(0, 2**80 - 1)


@given(TIMES_MS, CHANCES)
def test_an_id_is_its_prefix_and_a_uuid_of_version_7(time_ms: int, chance: int) -> None:
    prefix, body = ids.format_id("run", time_ms, chance).split("_")

    assert prefix == "run"
    read = uuid.UUID(hex=body)
    assert read.version == 7
    assert read.variant == uuid.RFC_4122
    assert read.int >> 80 == time_ms


@given(TIMES_MS, TIMES_MS, CHANCES, CHANCES)
def test_ids_sort_by_the_time_of_their_making(a_ms: int, b_ms: int, a: int, b: int) -> None:
    if a_ms == b_ms:
        b_ms = a_ms + 1 if a_ms < 2**48 - 1 else a_ms - 1

    assert (ids.format_id("run", a_ms, a) < ids.format_id("run", b_ms, b)) == (a_ms < b_ms)


@given(TIMES_MS, CHANCES, CHANCES)
def test_two_ids_of_one_millisecond_differ_where_their_chance_does(
    time_ms: int, a: int, b: int
) -> None:
    distinct = a & (2**74 - 1) != b & (2**74 - 1)

    assert (ids.format_id("run", time_ms, a) != ids.format_id("run", time_ms, b)) == distinct


def test_calls_and_messages_are_numbered_within_their_run() -> None:
    assert ids.call_id(2, 0) == "call_2_0"
    assert ids.message_id(7) == "msg_7"


def test_an_idempotency_key_is_the_same_for_every_attempt_and_different_for_every_call() -> None:
    key = ids.idempotency_key("run_1", "call_1_0")

    assert key == ids.idempotency_key("run_1", "call_1_0")
    assert re.fullmatch(r"[0-9a-f]{32}", key)
    assert key != ids.idempotency_key("run_1", "call_1_1")
    assert key != ids.idempotency_key("run_2", "call_1_0")
