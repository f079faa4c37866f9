"""Whatever a client asks, it notices that what answers is no Milepost server."""

import inspect
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from milepost.client import Milepost
from milepost.core.errors import ApiError
from tests.client.conftest import EAGER
from tests.client.scripted_server import answer, scripted, stream

GIVEN: dict[str, Any] = {
    "items": ["hello"],
    "decisions": [],
    "run": {},
    "policy": {},
    "at_seq": 1,
    "exported": {},
}
STREAMS = {
    ("runs", "stream"),
    ("sessions", "stream"),
    ("approvals", "follow"),
    ("batches", "stream"),
    ("batches", "wait"),
}
METHODS = [
    (resource, method)
    for resource, offers in vars(Milepost()).items()
    for method in dir(offers)
    if not resource.startswith("_") and not method.startswith("_")
]


async def asked(client: Milepost, resource: str, method: str) -> None:
    """Ask for something, whatever that is, to its end."""
    call = getattr(getattr(client, resource), method)
    required = (
        name
        for name, each in inspect.signature(call).parameters.items()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    )
    answered = call(*(GIVEN.get(name, "x") for name in required))
    if isinstance(answered, AsyncIterator):
        async for _ in answered:
            pass
    else:
        await answered


@pytest.mark.parametrize(("resource", "method"), METHODS)
async def test_every_method_notices_json_of_somebody_else(resource: str, method: str) -> None:
    for body in (b"{}", b"[]", b'{"a":1}', b'{"data":1}'):
        page = answer("200 OK", orjson.loads(body))
        frames = stream(b"id: 1\ndata: " + body + b"\n\n")
        async with (
            scripted([frames if (resource, method) in STREAMS else page]) as server,
            Milepost(server.base_url, patience=EAGER) as client,
        ):
            with pytest.raises(ApiError, match="is no Milepost server") as caught:
                await asked(client, resource, method)

        assert caught.value.code == "not_milepost"
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "members", [{"outcome": "started"}, {"pending": {}}, {"data": [{}]}, {"data": [1]}]
)
async def test_a_part_of_what_is_ours_is_not_taken_for_it(members: dict[str, object]) -> None:
    async with (
        scripted([answer("200 OK", members)] * 4) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        for ask in (
            client.channels.send("web", "c1", "m1"),
            client.channels.pending("web", "c1"),
            client.approvals.decide_all([]),
            client.approvals.list(),
        ):
            with pytest.raises(ApiError, match="is no Milepost server"):
                await ask


@pytest.mark.parametrize(
    "member",
    [
        {"id": "batch_1", "object": "batch", "status": "completed", "metadata": {}},
        {"id": "batch_1", "status": "running", "counts": {}},
        {"id": "batch_1", "status": "running", "counts": 5},
        {"id": 7, "status": "running", "counts": {"total": 1}},
    ],
)
async def test_things_of_somebody_else_are_none_of_ours_though_they_have_ids(
    member: dict[str, object],
) -> None:
    async with (
        scripted([answer("200 OK", {"data": [member]}), answer("200 OK", member)]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        with pytest.raises(ApiError, match="is no Milepost server"):
            await client.batches.list()
        with pytest.raises(ApiError, match="is no Milepost server"):
            await client.batches.get("batch_1")
