"""Rails as they are declared, at their places."""

import asyncio

from milepost.core.guardrails import OnError, PythonRail
from milepost.guardrails import PASS, Subject, Verdict
from milepost.guardrails.passage import passage
from milepost.runtime.posts import posts


class Hanging:
    """A rail that is an object, and never answers."""

    name = "hanging"
    on_error: OnError = "block"
    timeout_s = 0.01

    async def check(self, _: Subject) -> Verdict:
        """Wait for nothing."""
        await asyncio.Event().wait()
        return PASS


async def test_a_rail_that_is_an_object_fails_as_well_when_its_time_is_up() -> None:
    failed: list[tuple[str, str]] = []
    seen = posts([PythonRail(name="hanging")], {"hanging": Hanging()})

    taken = await passage(
        seen,
        Subject("input", "hello"),
        lambda rail, error: failed.append((rail, type(error).__name__)),
    )

    assert taken.blocked is not None
    assert failed == [("hanging", "TimeoutError")]
