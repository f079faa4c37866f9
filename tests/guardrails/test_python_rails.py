"""Rails in Python: plain functions, async ones, and objects of a module."""

import asyncio
import threading
from types import ModuleType

import pytest

from milepost.core.errors import ConfigurationError
from milepost.core.guardrails import OnError
from milepost.guardrails import PASS, Block, Subject, Verdict, Warn, rail
from milepost.guardrails.python_rails import FunctionRail, rails_in

SUBJECT = Subject("input", "hello")


@rail
def plain(subject: Subject) -> Verdict | None:
    return Block(threading.current_thread().name) if subject.text == "hello" else None


@rail(name="slow", on_error="pass", timeout_s=0.05)
async def late(_: Subject) -> Verdict:
    await asyncio.Event().wait()
    return PASS


class Moody:
    """A rail that is an object."""

    name = "moody"
    on_error: OnError = "block"

    async def check(self, subject: Subject) -> Verdict:
        return Warn(subject.place)


def module(**members: object) -> ModuleType:
    made = ModuleType("shop.rails")
    vars(made).update(members)
    return made


async def test_a_plain_function_is_asked_in_a_thread_and_none_is_a_pass() -> None:
    verdict = await plain.check(SUBJECT)

    assert isinstance(verdict, Block)
    assert verdict.reason != threading.current_thread().name
    assert await plain.check(Subject("input", "bye")) == PASS


async def test_an_async_function_is_awaited_and_one_that_is_late_fails() -> None:
    assert (late.name, late.on_error) == ("slow", "pass")
    with pytest.raises(TimeoutError):
        await late.check(SUBJECT)


async def test_a_plain_function_may_return_what_is_to_be_awaited() -> None:
    async def later() -> Verdict:
        return Warn("later")

    assert await rail(lambda _: later()).check(SUBJECT) == Warn("later")


async def test_an_answer_that_is_no_verdict_is_an_error() -> None:
    wrong = FunctionRail("wrong", lambda asked: asked.text)  # type: ignore[arg-type,return-value]  # the point

    with pytest.raises(TypeError, match=r"^rail 'wrong' answered a str, which is no verdict$"):
        await wrong.check(SUBJECT)


def test_a_function_that_takes_no_subject_is_refused() -> None:
    def forgetful() -> None:
        """Be asked of nothing."""

    with pytest.raises(ConfigurationError, match="'forgetful' must take one argument, the Subject"):
        rail(forgetful)  # type: ignore[arg-type]  # that is the point


def test_a_fate_on_errors_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="on_error of guardrail 'mine' is 'allow'; it is"):
        rail(name="mine", on_error="allow")(lambda _: None)  # type: ignore[call-overload]


def test_a_module_s_rails_are_found_by_their_names() -> None:
    moody = Moody()

    found = rails_in([module(plain=plain, again=plain, late=late, moody=moody, Moody=Moody, n=1)])

    assert found == {"plain": plain, "slow": late, "moody": moody}


def test_what_will_not_be_looked_at_is_no_rail() -> None:
    class Proxy:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError(f"there is no request that has {name}")

    assert rails_in([module(plain=plain, request=Proxy())]) == {"plain": plain}


def test_two_rails_of_one_name_are_refused() -> None:
    other = rail(name="plain")(lambda _: None)

    with pytest.raises(ConfigurationError, match="there is a guardrail 'plain' already"):
        rails_in([module(plain=plain, other=other)])
