"""Calls are written down and said again: the same, to the same requests, and to no others."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.errors import ConfigurationError, ProviderError
from milepost.core.messages import Message, Sealed, ToolCall
from milepost.core.model import (
    CacheHit,
    CallDelta,
    Delta,
    FellBack,
    Finished,
    FinishReason,
    ModelRequest,
    Provider,
    ReasoningDelta,
    SealedDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.recorded import RecordedCall, decode_call, encode_call, request_digest
from milepost.providers.recording import Recording
from milepost.providers.replaying import Replaying
from milepost.providers.scripted import Script, Scripted, calling, saying

QUESTION = ModelRequest("tenant", "stub", (Message("user", "My password is sesame"),))
REASONS: list[FinishReason] = ["stop", "tool_calls", "length", "content_filter"]

texts = st.text(st.characters(), max_size=20)
deltas = st.one_of(
    st.builds(TextDelta, texts),
    st.builds(ReasoningDelta, texts),
    st.builds(CallDelta, st.integers(0, 9), texts, texts, texts),
    st.builds(
        SealedDelta,
        st.builds(Sealed, texts, st.dictionaries(texts, texts | st.integers() | st.booleans())),
    ),
    st.builds(Finished, st.sampled_from(REASONS), texts, texts),
    st.builds(Spent, st.builds(Usage, st.integers(0, 2**53), st.integers(0, 2**53))),
    st.builds(CacheHit, st.floats(0, 1e9)),
    st.builds(FellBack, texts, texts, texts, texts),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.ndjson"


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file, none if there is no such file."""
    return path.read_text().splitlines() if path.exists() else []


async def heard(provider: Provider, request: ModelRequest = QUESTION) -> list[Delta]:
    return [delta async for delta in provider.stream(request)]


async def failed(provider: Provider, request: ModelRequest = QUESTION) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await heard(provider, request)
    return caught.value


async def test_what_was_recorded_is_said_again_delta_by_delta(path: Path) -> None:
    script = calling(("add", {"a": 17, "b": 25}))

    recorded = await heard(Recording(Scripted([script]), path))

    assert recorded == script
    assert await heard(Replaying(path)) == recorded


async def test_a_failure_is_said_again_with_what_came_before_it(path: Path) -> None:
    error = ProviderError(
        "slow down", code="provider_rate_limited", retryable=True, retry_after_s=7, status=429
    )
    broken: Script = [TextDelta("Hel"), error]
    await failed(Recording(Scripted([broken]), path))

    stream = Replaying(path).stream(QUESTION)
    first = await anext(stream)
    with pytest.raises(ProviderError, match="slow down") as caught:
        await anext(stream)

    again = caught.value
    assert first == TextDelta("Hel")
    assert (again.code, again.retryable) == ("provider_rate_limited", True)
    assert (again.retry_after_s, again.status) == (7, 429)


async def test_a_request_that_was_not_recorded_is_told_from_the_others(path: Path) -> None:
    await heard(Recording(Scripted([saying("Hello")]), path))

    other = replace(QUESTION, temperature=0.5)
    error = await failed(Replaying(path), other)

    assert f"{path} has no reply to this request of 1 messages to model 'stub'" in str(error)
    assert (error.retryable, "record it again" in str(error)) == (False, True)


async def test_a_request_gets_its_replies_in_order_and_no_more_than_there_were(
    path: Path,
) -> None:
    recording = Recording(Scripted([saying("one"), saying("two")]), path)
    for _ in range(2):
        await heard(recording)
    replaying = Replaying(path)

    replies = [await heard(replaying) for _ in range(2)]

    assert [reply[0] for reply in replies] == [TextDelta("one"), TextDelta("two")]
    assert "asked more often" in str(await failed(replaying))


async def test_whoever_asks_the_same_gets_the_same_whatever_ids_it_has(path: Path) -> None:
    def after_a_call(call_id: str, tenant: str) -> ModelRequest:
        call = ToolCall(call_id, "add", {"a": 1}, provider_id=f"p{call_id}")
        return ModelRequest(
            tenant,
            "stub",
            (Message("assistant", calls=(call,)), Message("tool", "42", call_id=call_id)),
        )

    await heard(Recording(Scripted([saying("Hello")]), path), after_a_call("call_1_0", "one"))

    assert await heard(Replaying(path), after_a_call("call_7_0", "two")) == saying("Hello")


async def test_what_was_asked_is_not_in_the_file(path: Path) -> None:
    await heard(Recording(Scripted([saying("Hello")]), path))

    [line] = lines_of(path)

    assert "sesame" not in line
    assert json.loads(line)["request"] == request_digest(QUESTION)


async def test_a_call_that_was_left_early_is_not_written(path: Path) -> None:
    stream = Recording(Scripted([saying("Hello you")]), path).stream(QUESTION)
    await anext(stream)
    await stream.aclose()

    assert lines_of(path) == []


async def test_a_recording_can_be_recorded_again_to_the_letter(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.ndjson"
    scripted = Scripted([saying("Hello"), calling(("add", {}))])
    recording = Recording(scripted, path)
    await heard(recording)
    await heard(recording)

    again = Recording(Replaying(path), copy)
    await heard(again)
    await heard(again)

    assert lines_of(copy) == lines_of(path) != []


@given(said=st.lists(deltas, max_size=8))
def test_every_delta_comes_back_as_it_was(said: list[Delta]) -> None:
    call = RecordedCall("digest", "stub", tuple(said))

    assert decode_call(encode_call(call)) == call


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"deltas": [{"type": "song"}]},
        {"deltas": [{"type": "text"}]},
        {"deltas": [{"type": "text", "text": 1}]},
        {"deltas": [{"type": "sealed", "wire": "x"}]},
        {"deltas": ["text"]},
        {"error": "no"},
        {"error": {"code": "provider_error"}},
        {"more": 1},
    ],
    ids=str,
)
def test_a_line_that_is_no_call_is_named(path: Path, changes: dict[str, object]) -> None:
    good = encode_call(RecordedCall("digest", "stub", ()))
    bad = json.dumps({**json.loads(good), **changes})
    path.write_text(f"{good}\n{bad}\n")

    with pytest.raises(ConfigurationError, match=r"calls\.ndjson, line 2: "):
        Replaying(path)


@pytest.mark.parametrize("line", ["", "{", "[]"])
def test_a_line_that_is_no_object_is_named(path: Path, line: str) -> None:
    path.write_text(f"{line}\n")

    with pytest.raises(ConfigurationError, match=r"calls\.ndjson, line 1: "):
        Replaying(path)


def test_a_recording_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"calls\.ndjson cannot be read"):
        Replaying(path)
