"""Trace context: what a header means, and what is handed on."""

import pytest

from milepost.telemetry.context import TraceContext, request_context, span_id_of, trace_id_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("flags", "kept"), [("00", 0), ("01", 1), ("02", 2), ("03", 3), ("ff", 3), ("f9", 1)]
)
def test_flags_are_bits_and_those_without_a_name_are_dropped(flags: str, kept: int) -> None:
    context = TraceContext.parse(f"00-{TRACE}-{SPAN}-{flags}")

    assert context == TraceContext(TRACE, SPAN, kept)
    assert context.sampled is bool(kept & 1)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "garbage",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-0\u0661",
        f"cc-{TRACE}-{SPAN}-01.more",
    ],
)
def test_a_header_that_is_not_valid_is_no_context(header: str | None) -> None:
    assert TraceContext.parse(header) is None


@pytest.mark.parametrize("rest", ["", "-", "-what the future brings"])
def test_a_later_version_is_read_as_far_as_it_is_known(rest: str) -> None:
    context = TraceContext.parse(f"cc-{TRACE}-{SPAN}-01{rest}")

    assert context == TraceContext(TRACE, SPAN)


def test_what_is_handed_on_is_read_back() -> None:
    context = TraceContext(TRACE, SPAN, flags=3)

    assert context.header() == f"00-{TRACE}-{SPAN}-03"
    assert TraceContext.parse(context.header()) == context


def test_a_child_stays_in_the_trace_below_its_parent() -> None:
    child = TraceContext(TRACE, SPAN, flags=0).child("00f067aa0ba902b7")

    assert child == TraceContext(TRACE, "00f067aa0ba902b7", flags=0, parent_id=SPAN)


def test_a_request_stands_between_its_caller_and_its_run() -> None:
    caller = TraceContext(TRACE, SPAN)

    place = request_context("run_1", caller)

    assert (place.trace_id, place.parent_id) == (TRACE, SPAN)
    assert place.span_id == span_id_of("run_1", 0)


def test_a_request_without_a_caller_begins_the_runs_own_trace() -> None:
    place = request_context("run_1", None)

    assert place == TraceContext(trace_id_of("run_1"), span_id_of("run_1", 0))
    assert place.sampled
