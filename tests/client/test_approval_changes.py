"""Following the inbox: everything once, whatever breaks, repeats itself or does not fit."""

import asyncio
from contextlib import aclosing
from typing import Any

import orjson
import pytest

from milepost.client import ApprovalChange, BlockingMilepost, Milepost, Patience
from milepost.client.approval_changes import KEPT_MS, ChangePlace
from milepost.client.shapes import Approval, shaped
from tests.client.conftest import EAGER
from tests.client.cutting_proxy import cutting
from tests.client.scripted_server import ScriptedServer, answer, scripted, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAIL = "Send a mail to ann@example.com saying hello"
TIME = "2026-11-21T12:00:00.000Z"
ENOUGH_S = 60.0


def approval(name: str, version: int = 1) -> dict[str, Any]:
    return {"id": f"apr_{name}", "status": "pending", "version": version, "changed_at": TIME}


def framed(at_ms: int, kind: str, data: dict[str, Any]) -> bytes:
    body = orjson.dumps({"type": kind, "time": TIME, "data": data})
    return f"id: {at_ms}\nevent: {kind}\ndata: ".encode() + body + b"\n\n"


def snapshot(at_ms: int, *waiting: dict[str, Any], more: str | None = None) -> bytes:
    data = {"approvals": list(waiting), "has_more": more is not None, "next_cursor": more}
    return framed(at_ms, "snapshot", data)


async def followed(
    server: ScriptedServer, count: int, patience: Patience = EAGER, **filters: Any
) -> list[ApprovalChange]:
    async with (
        asyncio.timeout(ENOUGH_S),
        Milepost(server.base_url, patience=patience) as client,
        aclosing(client.approvals.follow(**filters)) as changes,
    ):
        return [await anext(changes) for _ in range(count)]


def told(changes: list[ApprovalChange]) -> list[tuple[str, str, int]]:
    return [(each.type, each.approval.id, each.approval.version) for each in changes]


async def test_what_waits_comes_first_and_what_comes_twice_is_told_once() -> None:
    voted = framed(2_000, "approval.voted", approval("1", 2))
    decided = framed(3_000, "approval.decided", approval("1", 3))
    old = framed(1_500, "approval.requested", approval("1"))

    async with scripted(
        [
            stream(snapshot(1_000, approval("2"), approval("1")), voted),
            stream(old, voted, decided),
        ]
    ) as server:
        changes = await followed(server, 4)

    assert told(changes) == [
        ("snapshot", "apr_2", 1),
        ("snapshot", "apr_1", 1),
        ("approval.voted", "apr_1", 2),
        ("approval.decided", "apr_1", 3),
    ]
    assert [each.id for each in changes] == [None, "1000", "2000", "3000"]
    assert [asked.headers.get("last-event-id") for asked in server.asked] == [None, "2000"]


async def test_what_a_snapshot_does_not_hold_is_read_from_the_list() -> None:
    first, second = approval("9"), approval("8")
    pages = [
        answer("200 OK", {"data": [first, second], "has_more": True, "next_cursor": "apr_8"}),
        answer("200 OK", {"data": [approval("7")], "has_more": False, "next_cursor": None}),
    ]

    async with scripted([stream(snapshot(1_000, first, more="apr_9")), *pages]) as server:
        changes = await followed(server, 3, tool="send_email")

    assert told(changes) == [("snapshot", f"apr_{n}", 1) for n in (9, 8, 7)]
    assert [each.id for each in changes] == [None, None, "1000"]
    assert [asked.line.split(" ")[1] for asked in server.asked] == [
        "/v1/approvals/events?tool=send_email",
        "/v1/approvals?tool=send_email&status=pending&limit=100&after=apr_9",
        "/v1/approvals?tool=send_email&status=pending&limit=100&after=apr_8",
    ]


async def test_hours_in_which_nothing_happens_do_not_wear_its_patience_out() -> None:
    quiet = [stream() for _ in range(5)]
    patience = Patience(tries_max=2, wait_s=0.0, held_s=0.0)

    async with scripted([*quiet, stream(snapshot(1_000, approval("1")))]) as server:
        changes = await followed(server, 1, patience)

    assert told(changes) == [("snapshot", "apr_1", 1)]


async def test_versions_are_forgotten_once_nothing_as_old_is_repeated() -> None:
    place = ChangePlace("1000")
    early, late = shaped(Approval, approval("1")), shaped(Approval, approval("2"))

    assert [place.is_news(early), place.is_news(early)] == [True, False]
    place.id = str(1_001 + KEPT_MS)
    assert [place.is_news(late), place.is_news(late)] == [True, False]
    assert place.is_news(early)


async def test_a_real_inbox_is_followed_through_connections_that_break(
    milepost: Milepost, base_url: str
) -> None:
    cuts = (700, 900, 1_500, 2_500)

    async with (
        asyncio.timeout(ENOUGH_S),
        cutting(base_url, cuts) as proxy,
        Milepost(proxy.base_url, patience=EAGER) as client,
    ):
        run = await milepost.runs.create("demo", MAIL)
        seen = []
        async with aclosing(client.approvals.follow(tool="send_email", run_id=run.id)) as changes:
            async for change in changes:
                seen.append((change.type, change.approval.version))
                if change.approval.status == "pending":
                    await milepost.approvals.decide(change.approval.id, "deny")
                else:
                    break

    assert seen in (
        [("approval.requested", 1), ("approval.decided", 2)],
        [("snapshot", 1), ("approval.decided", 2)],
    )
    assert proxy.cuts > 0


async def test_one_goes_on_where_one_was(milepost: Milepost) -> None:
    run = await milepost.runs.create("demo", MAIL)
    async with (
        asyncio.timeout(ENOUGH_S),
        aclosing(milepost.approvals.follow(run_id=run.id)) as changes,
    ):
        asked = await anext(changes)
    await milepost.approvals.decide(asked.approval.id, "deny")

    async with (
        asyncio.timeout(ENOUGH_S),
        aclosing(milepost.approvals.follow(after=asked.id, run_id=run.id)) as changes,
    ):
        missed = await anext(changes)

    assert (missed.type, missed.approval.status) == ("approval.decided", "denied")


async def test_it_works_without_an_event_loop(base_url: str) -> None:
    def denied() -> str | None:
        with BlockingMilepost(base_url, patience=EAGER) as milepost:
            run = milepost.runs.create("demo", MAIL)
            for change in milepost.approvals.follow(run_id=run.id):
                if change.approval.status != "pending":
                    return change.approval.comment
                milepost.approvals.decide(change.approval.id, "deny", comment="not today")
        return None

    assert await asyncio.to_thread(denied) == "not today"
