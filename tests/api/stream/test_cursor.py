"""Where a client was: read from what it sends, and refused with words."""

import httpx2
import pytest

from milepost.api.cursors import Cursor, parse_cursor
from milepost.core.errors import InvalidError
from tests.api.making import an_agent, an_ended_run, made, refusal
from tests.live.client import parsed


@pytest.mark.parametrize(
    ("text", "cursor"),
    [
        (None, Cursor()),
        ("", Cursor()),
        ("0", Cursor()),
        ("41", Cursor(41)),
        ("41~msg_7:136", Cursor(41, "msg_7", 136)),
    ],
)
def test_a_position_is_read(text: str | None, cursor: Cursor) -> None:
    assert parse_cursor(text) == cursor


@pytest.mark.parametrize(
    "text",
    ["x", "-1", "01", "1~", "1~msg_7", "1~msg_7:", "1~msg_7:-1", "1~m g:1", "1" * 30, "\u0661"],
)
def test_anything_else_is_refused_with_words(text: str) -> None:
    with pytest.raises(InvalidError, match="send the id of the last event") as refused:
        parse_cursor(text)

    assert refused.value.code == "bad_cursor"


@pytest.fixture
async def ended(client: httpx2.AsyncClient) -> str:
    """The path of an ended run's events."""
    await made(client, "/v1/agents", an_agent())
    run = await an_ended_run(client)
    return f"/v1/runs/{run['id']}/events"


async def seqs(client: httpx2.AsyncClient, path: str, **headers: str) -> list[int]:
    answer = await client.get(path, headers=headers)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return [sent.seq for sent in parsed(answer.content) if sent.seq]


async def test_the_header_wins_over_the_query(client: httpx2.AsyncClient, ended: str) -> None:
    everything = await seqs(client, ended)

    assert everything == list(range(1, len(everything) + 1))
    assert await seqs(client, f"{ended}?after=2") == everything[2:]
    assert await seqs(client, f"{ended}?after=2", **{"Last-Event-ID": "3"}) == everything[3:]


async def test_a_client_that_has_it_all_is_told_to_stop_asking(
    client: httpx2.AsyncClient, ended: str
) -> None:
    last = (await seqs(client, ended))[-1]

    answer = await client.get(ended, headers={"Last-Event-ID": str(last)})

    assert answer.status_code == 204
    assert answer.content == b""


async def test_a_position_beyond_the_log_is_refused(client: httpx2.AsyncClient, ended: str) -> None:
    assert refusal(await client.get(f"{ended}?after=999")) == (400, "cursor_ahead")
    assert refusal(await client.get(f"{ended}?after=abc")) == (400, "bad_cursor")
