"""Artifacts from another process: what makes none is refused, and nothing is without a bound."""

import base64
from dataclasses import asdict
from typing import Any

import pytest

from milepost.core.errors import ToolError
from milepost.tools import arrivals as module
from milepost.tools import emit_artifact
from milepost.tools.arrivals import Arrivals
from milepost.tools.artifacts import ARTIFACTS_MAX, collecting


def told_of(content: bytes = b"hello", **changes: Any) -> dict[str, Any]:
    """Return how a process tells of an artifact."""
    return {**asdict(emit_artifact(content=content, filename="a.txt")), **changes}


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def test_contents_that_come_at_once_are_put_together_each() -> None:
    arrivals, one, other = Arrivals(), told_of(b"hello"), told_of(b"world")

    with collecting() as emissions:
        await arrivals.tell(one, 5)
        await arrivals.tell(other, 5)
        for part in (b"wo", b"rld"):
            await arrivals.take(other["id"], encoded(part))
        await arrivals.take(one["id"], encoded(b"hello"))

    assert [(artifact.id, content) for artifact, content in emissions.close()] == [
        (other["id"], b"world"), (one["id"], b"hello"),
    ]  # fmt: skip


async def test_what_does_not_come_whole_is_not_left_behind() -> None:
    arrivals, told = Arrivals(), told_of(b"hello")

    with collecting() as emissions:
        await arrivals.tell(told, 5)
        await arrivals.take(told["id"], encoded(b"hell"))

    assert emissions.close() == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "art_1"},
        {"id": 7},
        {"id": None},
        {"sha256": "0" * 64},
        {"size": 4},
        {"size": "5"},
        {"mime_type": "text"},
        {"filename": 1},
        {"role": "x" * 1_000},
        {"url": "https://example.com"},
    ],
)
async def test_what_can_be_no_artifact_is_refused(changes: dict[str, Any]) -> None:
    arrivals, told = Arrivals(), told_of(b"hello", **changes)
    await arrivals.tell(told, 5)

    with collecting() as emissions, pytest.raises(ToolError):
        await arrivals.take(str(told["id"]), encoded(b"hello"))

    assert emissions.close() == ()


async def test_a_piece_of_nothing_and_one_that_is_none_are_refused() -> None:
    arrivals, told = Arrivals(), told_of()
    await arrivals.tell(told, 5)

    with pytest.raises(ToolError, match="nothing was told of"):
        await arrivals.take("art_1", encoded(b"hello"))
    with pytest.raises(ToolError, match="comes in base64"):
        await arrivals.take(told["id"], "*")


async def test_so_many_are_on_their_way_and_no_more() -> None:
    arrivals = Arrivals()
    for _ in range(ARTIFACTS_MAX):
        await arrivals.tell(told_of(), 5)

    with pytest.raises(ToolError, match="too many artifacts"):
        await arrivals.tell(told_of(), 5)


async def test_so_much_comes_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONTENTS_BYTES_MAX", 9)
    arrivals, told = Arrivals(), told_of(b"x" * 100)
    await arrivals.tell(told, 100)
    await arrivals.take(told["id"], encoded(b"x" * 9))

    with pytest.raises(ToolError, match="more than 9 bytes came"):
        await arrivals.take(told["id"], encoded(b"x"))
