"""Rails in a row: what each of them sees, which one is the last, and what failing means."""

import asyncio

import pytest

from milepost.core.guardrails import OnError, Place
from milepost.core.json import Json
from milepost.guardrails.passage import Passage, Post, Trigger, passage
from milepost.guardrails.python_rails import rail
from milepost.guardrails.verdicts import PASS, Block, Rewrite, Subject, Verdict, Warn


class Answering:
    """A rail that gives an answer, and keeps what it was asked."""

    def __init__(
        self, answer: Verdict | BaseException, name: str = "one", on_error: OnError = "block"
    ) -> None:
        self.name = name
        self.on_error: OnError = on_error
        self.seen: list[Json] = []
        self._answer = answer

    async def check(self, subject: Subject) -> Verdict:
        self.seen.append(subject.value)
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


async def taken(
    *posts: Post, value: Json = "hello", place: Place = "input", tool: str | None = None
) -> tuple[Passage, list[str]]:
    failed: list[str] = []
    past = await passage(
        posts, Subject(place, value, tool), lambda rail, error: failed.append(f"{rail}: {error}")
    )
    return past, failed


async def test_each_rail_sees_what_the_one_before_it_made_of_the_subject() -> None:
    first, second = Answering(Rewrite("bye", "rude")), Answering(Warn("odd"), "two")

    past, _ = await taken(Post(first), Post(Answering(PASS)), Post(second))

    assert (first.seen, second.seen) == (["hello"], ["bye"])
    assert past == Passage(
        "bye", None, [Trigger("one", "rewritten", "rude"), Trigger("two", "warned", "odd")]
    )


async def test_the_first_that_blocks_is_the_last_that_looks() -> None:
    second = Answering(PASS)

    past, _ = await taken(Post(Answering(Block("no"))), Post(second))

    assert past.blocked == Trigger("one", "blocked", "no")
    assert past.triggers == [past.blocked]
    assert second.seen == []


@pytest.mark.parametrize(
    ("own", "declared", "blocks"),
    [("block", None, True), ("pass", None, False), ("block", "pass", False),
     ("pass", "block", True)],
)  # fmt: skip
async def test_a_rail_that_fails_blocks_unless_it_is_to_be_passed_over(
    own: OnError, declared: OnError | None, *, blocks: bool
) -> None:
    broken = Answering(ZeroDivisionError("a bug"), on_error=own)

    past, failed = await taken(Post(broken, on_error=declared))

    assert (past.blocked is not None) is blocks
    assert [trigger.action for trigger in past.triggers] == ["blocked" if blocks else "warned"]
    assert failed == ["one: a bug"]


@pytest.mark.parametrize(
    "error",
    [SystemExit(2), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_rail_raises_is_its_failure_alone(error: BaseException) -> None:
    past, failed = await taken(Post(Answering(error)))

    assert past.blocked == Trigger("one", "blocked", "it failed, so nobody knows")
    assert failed == [f"one: {error}"]


async def test_what_is_no_verdict_is_a_failure() -> None:
    silent = Answering(None)  # type: ignore[arg-type]  # that is the point

    past, failed = await taken(Post(silent))

    assert past.blocked is not None
    assert failed == ["one: it answered a NoneType, which is no verdict"]


async def test_a_cancellation_of_whoever_asks_is_no_failure() -> None:
    @rail(on_error="pass")
    async def slow(_: Subject) -> Verdict:
        await asyncio.Event().wait()
        return PASS

    asking = asyncio.create_task(taken(Post(slow)))
    await asyncio.sleep(0)
    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.parametrize("verdict", [Block("\udc80\0"), Warn("\udc80\0"), Rewrite("", "\udc80\0")])
async def test_a_reason_can_be_stored_whatever_stands_in_it(verdict: Verdict) -> None:
    past, _ = await taken(Post(Answering(verdict)))

    assert [trigger.reason for trigger in past.triggers] == ["\N{REPLACEMENT CHARACTER}" * 2]


@pytest.mark.parametrize(
    ("tools", "tool", "sees"),
    [((), "send", True), (("send*",), "send_mail", True), (("send*",), "add", False),
     (("a", "b"), "b", True)],
)  # fmt: skip
async def test_a_rail_looks_at_the_tools_that_it_names(
    tools: tuple[str, ...], tool: str, *, sees: bool
) -> None:
    rail = Answering(PASS)

    await taken(Post(rail, tools), place="tool_results", tool=tool)

    assert bool(rail.seen) is sees


@pytest.mark.parametrize(
    ("place", "value", "instead"),
    [("input", "hello", 7), ("output", "hello", None), ("tool_arguments", {"a": 1}, [1]),
     ("tool_results", 1, object())],
)  # fmt: skip
async def test_a_value_that_cannot_stand_in_the_place_of_another_is_a_failure(
    place: Place, value: Json, instead: Json
) -> None:
    past, failed = await taken(Post(Answering(Rewrite(instead, "x"))), value=value, place=place)

    assert past.blocked is not None
    assert past.value == value
    assert len(failed) == 1


async def test_a_result_may_become_any_json() -> None:
    past, _ = await taken(Post(Answering(Rewrite((1, 2), "x"))), value="s", place="tool_results")  # type: ignore[arg-type]  # a tuple is JSON's array

    assert past.value == [1, 2]
