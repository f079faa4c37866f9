"""What a call that was given secrets says, leaves behind, returns and raises: never the secrets."""

import logging
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pytest

from milepost.core.errors import ToolError
from milepost.telemetry.logs import logger
from milepost.tools import Outcome, Secret, ToolContext, aexecute, emit_artifact, tool, tool_of
from milepost.tools.artifacts import Artifact, collecting
from milepost.tools.pending import Stash, Stashed, stash_pending, stashing
from milepost.tools.results import RESULT_CHARS_MAX
from tests.telemetry.spoken import spoken

VALUE = "s3cret/7d1f"
Token = Annotated[str, Secret("SHOP_TOKEN")]


async def outcome_of(
    function: Any, context: ToolContext, heard: Callable[[object], None] = print
) -> Outcome:
    """Return what comes of calling a function that is given the secret."""
    return await aexecute(
        function, {}, heard, context=context, secrets={"SHOP_TOKEN": VALUE}, timeout_s=20
    )


@dataclass
class Receipt:
    """Something that repeats a secret."""

    token: str
    path: Path


RETURNED: list[tuple[Callable[[str], object], object]] = [
    (lambda token: token, "[secret]"),
    (lambda token: f"Bearer {token}!", "Bearer [secret]!"),
    (lambda _: "https://shop/?t=s3cret%2F7d1f", "https://shop/?t=[secret]"),
    (lambda token: {token: [token, 1, None]}, {"[secret]": ["[secret]", 1, None]}),
    (
        lambda token: Receipt(token, Path(token)),
        {"token": "[secret]", "path": "[secret]"},
    ),
    (lambda token: token.encode(), {"base64": "W3NlY3JldF0=", "bytes": 8}),
]


@pytest.mark.parametrize(("made", "shown"), RETURNED)
async def test_what_a_function_returns_is_told_without_its_secrets(
    made: Callable[[str], object], shown: object, context: ToolContext
) -> None:
    @tool
    def threaded(token: Token) -> object:
        """Return something."""
        return made(token)

    @tool
    async def awaited(token: Token) -> object:
        """Return something."""
        return made(token)

    for function in (threaded, awaited):
        assert (await outcome_of(function, context)).content == shown


@pytest.mark.parametrize("as_item", [False, True])
async def test_where_a_result_is_cut_no_beginning_of_a_secret_is_left(
    as_item: bool, context: ToolContext
) -> None:
    @tool
    def much(token: Token) -> object:
        """Return much."""
        said = "." * (RESULT_CHARS_MAX - 4 - as_item) + token + token
        return [said] if as_item else said

    told = str((await outcome_of(much, context)).content)

    assert "[cut" in told
    assert VALUE[:2] not in told


async def test_a_generator_s_pieces_hide_what_lies_across_them(context: ToolContext) -> None:
    @tool
    def threaded(token: Token) -> Iterator[str]:
        """Spell the token."""
        yield from ("It is ", *token, ", s")

    @tool
    async def looped(token: Token) -> AsyncIterator[str]:
        """Spell the token."""
        for piece in ("It is ", *token, ", s"):
            yield piece

    for function in (threaded, looped):
        heard: list[object] = []
        outcome = await outcome_of(function, context, heard.append)

        assert outcome.content == "It is [secret], s"
        assert "".join(map(str, heard)) == "It is [secret], s"


async def test_progress_events_and_log_lines_hide_it(
    context: ToolContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    @tool
    def speak(token: Token, context: ToolContext) -> None:
        """Speak."""
        context.progress(token[:5])
        context.progress(token[5:] + " s")
        context.emit("seen", {"token": token, "at": ("x", token)})
        context.logger.warning("it is %s", token, field=token, thing=Path(token))
        try:
            int(token)
        except ValueError:
            context.logger.exception("failed")

    progress: list[object] = []
    told: list[object] = []
    hearing = replace(context, emit=lambda *event: told.append(event), log=logger("tool"))
    outcome = await outcome_of(speak, hearing, progress.append)

    assert outcome.status == "ok"
    assert "".join(map(str, progress)) == "[secret] s"
    assert told == [("seen", {"token": "[secret]", "at": ["x", "[secret]"]})]
    lines = spoken(caplog, "tool")
    assert [line["event"] for line in lines] == ["it is [secret]", "failed"]
    assert (lines[0]["run"], lines[0]["field"]) == ("run_1", "[secret]")
    assert "'[secret]'" in str(lines[1]["exception"])
    assert VALUE not in str(lines)


@pytest.mark.parametrize("fails", [False, True])
async def test_who_cannot_be_told_what_was_held_back_has_the_call_fail_and_nothing_else(
    fails: bool, context: ToolContext
) -> None:
    @tool
    def speak(token: Token, context: ToolContext) -> None:
        """Speak."""
        context.progress(token[:5])
        if fails:
            raise ValueError(token)

    def hear(text: object) -> None:
        raise OSError(f"nobody hears {text}")

    outcome = await outcome_of(speak, context, hear)

    assert outcome.error is not None
    assert outcome.error.message == f"speak failed: OSError: nobody hears {VALUE[:5]}"


async def test_what_it_emits_that_is_no_json_is_refused_as_ever(context: ToolContext) -> None:
    @tool
    def speak(token: Token, context: ToolContext) -> None:
        """Speak."""
        context.emit("seen", {token: object()})

    outcome = await outcome_of(speak, context)

    assert outcome.error is not None
    assert "the value of the event seen is not JSON" in outcome.error.message


@pytest.mark.parametrize("by_context", [False, True])
async def test_artifacts_are_not_named_after_it(
    by_context: bool, context: ToolContext, tmp_path: Path
) -> None:
    @tool
    def leave(token: Token, context: ToolContext) -> None:
        """Leave files behind."""
        emit = context.emit_artifact if by_context else emit_artifact
        named = tmp_path / token.replace("/", "%2F")
        named.write_text("content")
        emit(f"https://shop/{token}", role=token, retention=token, filename=f"{token}.txt")
        emit(content=named)

    left: list[Artifact] = []
    with collecting(lambda artifact, _: left.append(artifact)):
        outcome = await outcome_of(leave, context)

    assert outcome.status == "ok"
    assert [artifact.filename for artifact in left] == ["[secret].txt", "[secret]"]
    assert left[0].url == "https://shop/[secret]"
    assert VALUE not in str(left)


@pytest.mark.parametrize("by_context", [False, True])
async def test_what_is_put_off_is_put_off_without_it(
    by_context: bool, context: ToolContext
) -> None:
    @tool
    def put_off(token: Token, context: ToolContext) -> object:
        """Put it off."""
        put = context.stash_pending if by_context else stash_pending
        return put("send", f"Send {token}?", {"token": token})

    stashed: list[Stashed] = []
    with stashing(Stash(room=True, pass_on=stashed.append)):
        outcome = await outcome_of(put_off, context)

    assert [(each.preview, each.args) for each in stashed] == [
        ("Send [secret]?", {"token": "[secret]"})
    ]
    assert VALUE not in str(outcome)


Said = Callable[[str, ToolContext], object]
REFUSED: list[Said] = [
    lambda token, _: emit_artifact(f"shop/{token}"),
    lambda token, _: emit_artifact(content="", mime_type=token),
    lambda token, _: emit_artifact("https://shop/x", sha256=token),
    lambda token, _: stash_pending(token, "Send?"),
    lambda token, context: context.emit_artifact(url=f"shop/{token}"),
    lambda token, context: context.stash_pending(kind=token, preview="Send?"),
    lambda token, context: context.emit(token),
]


@pytest.mark.parametrize("said", REFUSED)
async def test_what_is_refused_is_not_told_by_the_beginning_of_a_secret(
    said: Said, context: ToolContext
) -> None:
    value = "5e" * 99

    @tool
    def say(token: Token, context: ToolContext) -> object:
        """Say what cannot be said."""
        return said(token, context)

    outcome = await aexecute(say, {}, context=context, secrets={"SHOP_TOKEN": value})

    assert "5e5e" not in str(outcome)


async def test_no_hash_that_is_said_is_a_secret(context: ToolContext) -> None:
    @tool
    def leave(token: Token) -> None:
        """Leave a file behind."""
        emit_artifact("https://shop/x", sha256=token)

    left: list[Artifact] = []
    with collecting(lambda artifact, _: left.append(artifact)):
        await aexecute(leave, {}, context=context, secrets={"SHOP_TOKEN": "5e" * 32})

    assert left == []


async def test_what_a_function_raises_is_told_without_its_secrets_and_where_it_was_raised(
    context: ToolContext,
) -> None:
    @tool
    def fail(token: Token) -> None:
        """Fail."""
        try:
            dict[str, str]()[token]
        except KeyError as error:
            error.add_note(token)
            raise ToolError(f"{token} was refused", retryable=True) from error

    outcome = await outcome_of(fail, context)

    assert outcome.error is not None
    assert outcome.error.message == "fail failed: [secret] was refused"
    assert outcome.error.retryable
    assert outcome.cause is not None
    cause = outcome.cause.__cause__
    assert cause is not None
    assert "in fail" in cause.__notes__[0]
    assert VALUE not in str([cause, cause.__notes__, cause.__cause__, cause.__context__])


def refuse(error: Exception, depth: int) -> None:
    """Raise an error that is in so many groups."""
    for _ in range(depth):
        error = ExceptionGroup("one", [error])
    raise error


@pytest.mark.parametrize("depth", [0, 1, 2, 9, 12])
async def test_of_a_key_of_several_lines_no_traceback_tells_any(
    depth: int, context: ToolContext, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ("BEGIN KEY", "", "s3cret", "END KEY")

    @tool
    def fail(token: Token, context: ToolContext) -> None:
        """Fail."""
        try:
            refuse(ValueError(token), depth)
        except Exception:
            context.logger.exception("failed")
            raise

    outcome = await aexecute(
        fail,
        {},
        context=replace(context, log=logger("tool")),
        secrets={"SHOP_TOKEN": "\n".join(lines)},
    )

    assert outcome.cause is not None
    assert outcome.cause.__cause__ is not None
    shown = "".join(traceback.format_exception(outcome.cause.__cause__))
    assert "in fail" in shown
    assert "in fail" in caplog.text
    assert [line for line in lines if line and line in shown + caplog.text] == []


async def test_an_error_that_cannot_be_told_of_fails_the_call_all_the_same(
    context: ToolContext,
) -> None:
    class OddError(Exception):
        def __getattribute__(self, name: str) -> Any:
            if name == "__notes__":
                raise RuntimeError("nothing to say")
            return super().__getattribute__(name)

    @tool
    def fail(token: Token) -> None:
        """Fail."""
        raise OddError(token)

    outcome = await outcome_of(fail, context)

    assert outcome.error is not None
    assert outcome.error.message == "fail failed: OddError: [secret]"


async def test_an_error_is_hidden_before_it_is_cut(context: ToolContext) -> None:
    @tool
    def fail(token: Token) -> None:
        """Fail."""
        raise ToolError("." * 1_996 + token)

    outcome = await outcome_of(fail, context)

    assert VALUE[:2] not in str(outcome.error)


async def test_an_error_that_repeats_no_secret_keeps_its_cause(context: ToolContext) -> None:
    @tool
    def fail(token: Token) -> None:
        """Fail."""
        raise ValueError("no")

    outcome = await outcome_of(fail, context)

    assert outcome.cause is not None
    assert isinstance(outcome.cause.__cause__, ValueError)


async def test_what_is_injected_beside_a_secret_hears_of_no_call_without_discretion(
    context: ToolContext,
) -> None:
    heard: list[object] = []

    @tool(inject={"say": lambda context: context.progress})
    def speak(token: Token, say: Any) -> None:
        """Speak."""
        say(token)

    assert (await outcome_of(tool_of(speak), context, heard.append)).status == "ok"
    assert heard == ["[secret]"]
