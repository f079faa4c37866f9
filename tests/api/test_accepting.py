"""In which form an answer comes: what `Accept` says of all forms is weighed, not its first word."""

import httpx2
import pytest
from starlette.requests import Request

from milepost.api.accepting import EVENTS, JSON, LINES, accepted
from milepost.core.errors import InvalidError
from tests.api.making import an_ended_run

HELLO = {"agent": "demo", "input": "hello"}


def asking(*accept: str) -> Request:
    """Return a request with these lines of `Accept`."""
    lines = [(b"accept", line.encode()) for line in accept]
    return Request({"type": "http", "method": "GET", "headers": lines})


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ((), EVENTS),
        (("",), EVENTS),
        (("*/*",), EVENTS),
        ((JSON,), JSON),
        (("Application/JSON; charset=utf-8",), JSON),
        ((f"{JSON}, {EVENTS}",), JSON),
        ((f"{JSON};q=0, {EVENTS}",), EVENTS),
        ((f"{EVENTS};q=0.1, {JSON}",), JSON),
        ((f"{EVENTS};q=0.1, {JSON};Q=0.2, {LINES};q=0.15",), JSON),
        ((f"text/html, {LINES};q=0.9, */*;q=0.8",), LINES),
        ((f"{EVENTS};q=0, */*;q=0.1",), JSON),
        (("application/*",), JSON),
        ((f"application/*;q=0.5, {JSON};q=0.1",), LINES),
        (("text/*;q=0.5, application/*",), JSON),
        (("text/html", JSON), JSON),
        ((f"{JSON};q=high",), JSON),
    ],
)
def test_the_form_that_is_wanted_most_is_given(accept: tuple[str, ...], form: str) -> None:
    assert accepted(asking(*accept), EVENTS, JSON, LINES) == form


@pytest.mark.parametrize("accept", ["text/html", f"{JSON};q=0", "*/*;q=0", "text/html, */*;q=0.0"])
def test_a_form_that_is_not_wanted_is_not_given(accept: str) -> None:
    with pytest.raises(InvalidError) as refused:
        accepted(asking(accept), JSON, LINES)

    assert refused.value.code == "not_acceptable"
    assert accept in str(refused.value)


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ([EVENTS], EVENTS),
        ([EVENTS.upper()], EVENTS),
        ([f"{JSON}, {EVENTS}"], EVENTS),
        ([JSON, EVENTS], EVENTS),
        ([f"{EVENTS};q=0"], JSON),
        ([f"{EVENTS};q=0.5, {JSON}"], JSON),
        (["text/html, */*"], JSON),
    ],
)
async def test_a_new_run_is_streamed_to_those_who_want_nothing_more(
    client: httpx2.AsyncClient, accept: list[str], media: str
) -> None:
    headers = [("accept", line) for line in accept]

    answer = await client.post("/v1/runs", json=HELLO, headers=headers)

    assert answer.headers["content-type"].partition(";")[0] == media


async def test_a_log_comes_in_the_form_that_is_wanted_most(client: httpx2.AsyncClient) -> None:
    run = await an_ended_run(client, agent="demo")

    page = await client.get(
        f"/v1/runs/{run['id']}/events", headers={"accept": f"{EVENTS};q=0.5, {JSON}"}
    )

    assert page.json()["has_more"] is False
