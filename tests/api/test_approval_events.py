"""`/v1/approvals/events`: what waits, and then every change, in whichever process it happens."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx2
import pytest

from milepost.api.approval_feed import OVERLAP_MS, RING_MAX, ApprovalFeed, ApprovalFeeds
from milepost.api.approval_stream import ApprovalTail
from milepost.live.hub import Hub, approvals_bell
from milepost.store import approval_rows, approvals, schema
from milepost.store.approval_rows import ApprovalFilter
from milepost.store.approvals import Decision
from milepost.store.dialect import number, text
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from tests.api.asking import decide, ended, equipped, parked
from tests.api.making import a_waiting_run, an_agent, made
from tests.api.serving import KeyedService, Service, serving, settings_for
from tests.api.test_approval_terms import ruled
from tests.live.client import Client, Sent, parsed
from tests.store.conftest import store_at
from tests.store.making import NOW_MS, TENANT, asking

TIMEOUT_S = 15.0


class Inbox:
    """What a client of the stream has been sent."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._client = Client()
        self.headers = response.headers

    @property
    def seen(self) -> list[Sent]:
        """All that came."""
        return self._client.seen

    async def read(self) -> None:
        """Read until the stream ends."""
        rest = b""
        async for chunk in self._response.aiter_raw():
            *whole, rest = (rest + chunk).split(b"\n\n")
            for piece in whole:
                for sent in parsed(piece + b"\n\n"):
                    self.seen.append(sent)
                self._client.news.set()

    async def until(self, event: str, count: int = 1) -> Sent:
        """Wait for so many events of a type; return the last."""
        await self._client.until(
            lambda client: [sent.event for sent in client.seen].count(event) >= count
        )
        return [sent for sent in self.seen if sent.event == event][-1]

    @property
    def changes(self) -> list[tuple[str, str]]:
        """The changes that came: what happened, to which approval."""
        return [(sent.event, sent.data["id"]) for sent in self.seen if "id" in sent.data]


@asynccontextmanager
async def watching(
    client: httpx2.AsyncClient, query: str = "", **headers: str
) -> AsyncIterator[Inbox]:
    """Follow the stream while the test goes on."""
    path = f"/v1/approvals/events{query}"
    async with asyncio.timeout(TIMEOUT_S), client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, response.status_code
        inbox = Inbox(response)
        reading = asyncio.create_task(inbox.read())
        try:
            yield inbox
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading


async def test_a_stream_begins_with_what_waits_and_goes_on_with_what_changes(
    client: httpx2.AsyncClient,
) -> None:
    first = await parked(client)

    async with watching(client) as inbox:
        snapshot = await inbox.until("snapshot")
        second = await parked(client)
        await inbox.until("approval.requested")
        await decide(client, first, "deny")
        decided = await inbox.until("approval.decided")

    assert inbox.headers["content-type"].startswith("text/event-stream")
    assert snapshot.data == {"approvals": [first], "has_more": False, "next_cursor": None}
    assert inbox.changes == [
        ("approval.requested", second["id"]),
        ("approval.decided", first["id"]),
    ]
    assert decided.data == (await client.get("/v1/approvals?status=denied")).json()["data"][0]
    assert decided.body["approval_id"] == first["id"]


async def test_votes_and_withdrawals_and_silence_are_seen_as_they_happen(
    client: httpx2.AsyncClient,
) -> None:
    await ruled(client, required=2, remind_s=0.2)
    asked = await parked(client, agent="ruled")

    async with watching(client) as inbox:
        await inbox.until("snapshot")
        await decide(client, asked, "approve", digest=asked["digest"])
        voted = await inbox.until("approval.voted")
        await inbox.until("approval.reminded")
        await client.post(f"/v1/approvals/{asked['id']}/withdraw", json={})
        await inbox.until("approval.withdrawn")

    assert [vote["decision"] for vote in voted.data["votes"]] == ["approve"]


async def test_an_escalation_and_an_expiry_are_seen(client: httpx2.AsyncClient) -> None:
    await ruled(client, ttl_s=0.5, on_timeout="escalate", escalate_to=["user:cas"])

    async with watching(client, "?mine=true") as inbox:
        await inbox.until("snapshot")
        asked = await parked(client, agent="ruled")
        escalated = await inbox.until("approval.escalated")
        await inbox.until("approval.expired")

    assert escalated.data["terms"]["approvers"] == ["user:cas"]
    assert {approval_id for _, approval_id in inbox.changes} == {asked["id"]}


async def test_who_comes_back_is_told_what_was_missed_and_nothing_else(
    client: httpx2.AsyncClient,
) -> None:
    first, second = await parked(client), await parked(client)
    async with watching(client) as inbox:
        left = await inbox.until("snapshot")
    await decide(client, second, "deny")

    assert left.id is not None
    async with watching(client, **{"last-event-id": left.id}) as inbox:
        await inbox.until("approval.decided")

    assert ("approval.decided", second["id"]) in inbox.changes
    assert "snapshot" not in [sent.event for sent in inbox.seen]
    assert {approval_id for _, approval_id in inbox.changes} <= {first["id"], second["id"]}


async def test_a_stream_shows_what_its_filters_name(client: httpx2.AsyncClient) -> None:
    session = (await client.post("/v1/sessions", json={})).json()["id"]

    async with watching(client, f"?session_id={session}&kind=call&tool=send_email") as inbox:
        await inbox.until("snapshot")
        other = await parked(client)
        asked = await parked(client, session_id=session)
        await inbox.until("approval.requested")
        await decide(client, other, "deny")
        await decide(client, asked, "deny")
        await inbox.until("approval.decided")

    assert {approval_id for _, approval_id in inbox.changes} == {asked["id"]}


async def test_a_tenant_sees_its_own_and_a_key_without_the_right_nothing(
    keyed: KeyedService,
) -> None:
    await equipped(keyed.acme)
    writer = await keyed.holding("runs:write")

    async with watching(keyed.globex) as foreign, watching(keyed.acme) as own:
        await foreign.until("snapshot")
        await own.until("snapshot")
        asked = await parked(keyed.acme)
        await decide(keyed.acme, asked, "deny")
        await own.until("approval.decided")
    refused = await writer.get("/v1/approvals/events")

    assert foreign.changes == []
    assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?after=abc", "bad_cursor"),
        ("?after=999999999999999", "cursor_ahead"),
        ("?x=1", "bad_query"),
    ],
)
async def test_what_is_no_place_in_the_stream_is_refused(
    client: httpx2.AsyncClient, query: str, code: str
) -> None:
    answer = await client.get(f"/v1/approvals/events{query}")

    assert (answer.status_code, answer.json()["code"]) == (400, code)


@pytest.mark.parametrize("with_redis", [True, False])
async def test_what_another_process_does_is_seen_here(
    postgres_database_url: str, redis_url: str, with_redis: bool
) -> None:
    settings = settings_for(postgres_database_url, redis_url=redis_url if with_redis else None)
    async with (
        serving(settings) as here,
        serving(settings) as there,
        here.client() as watcher,
        there.client() as approver,
        watching(watcher) as inbox,
    ):
        await inbox.until("snapshot")
        asked = await parked(approver)
        await inbox.until("approval.requested")
        await decide(approver, asked, "deny")
        await inbox.until("approval.decided")
        await ended(approver, asked["run_id"])

    assert inbox.changes[-1] == ("approval.decided", asked["id"])


async def test_a_draining_server_sends_its_watchers_elsewhere(service: Service) -> None:
    async with service.client() as client, watching(client) as inbox:
        await inbox.until("snapshot")
        service.process.drain()
        farewell = await inbox.until("stream.reconnect")

    assert farewell.data["after_ms"] > 0


# --- The feed -------------------------------------------------------------------------------

_A = schema.approvals.c
_TOUCH = Statement(
    schema.approvals.update()
    .where(_A.id == text("approval_id"))
    .values(version=_A.version + 1, changed_ms=number("time_ms"))
)


def touching(approval_id: str, time_ms: int) -> Work[None]:
    yield _TOUCH(approval_id=approval_id, time_ms=time_ms)


async def clock_of(store: Store) -> int:
    def work() -> Work[int]:
        ((now,),) = yield approval_rows.clock()
        return int(now)

    return await store.read(work())


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """A store that nobody else works on: a service would dismiss the workers that a test makes."""
    async with store_at(database_url) as store:
        yield store


async def test_what_commits_late_is_found_though_its_time_is_past(store: Store) -> None:
    feed = ApprovalFeed(store, hub := Hub(), TENANT)
    asked = await asking(store)
    await feed.look()
    now = await clock_of(store)

    for age_ms in (0, 5_000, OVERLAP_MS - 5_000):
        before = feed.count
        await store.write(touching(asked.id, now - age_ms))
        hub.ring(approvals_bell(TENANT))
        await feed.look()
        hub.ring(approvals_bell(TENANT))
        await feed.look()
        assert feed.count == before + 1, age_ms
    feed.close()


async def test_many_who_watch_cost_one_look(store: Store) -> None:
    feeds = ApprovalFeeds(store, Hub())
    with feeds.watch(TENANT) as (one, _), feeds.watch(TENANT) as (other, _):
        await one.look()
        looked_at = one._looked_at
        await asyncio.gather(*(other.look() for _ in range(50)))

        assert one is other
        assert one._looked_at == looked_at
    assert feeds._feeds == {}


async def test_whoever_fell_behind_the_ring_reads_from_the_store(store: Store) -> None:
    feed = ApprovalFeed(store, hub := Hub(), TENANT)
    asked = await asking(store)
    await feed.look()
    now = await clock_of(store)
    await store.write(touching(asked.id, now))
    hub.ring(approvals_bell(TENANT))
    await feed.look()

    assert [change.row.id for change in feed.behind(0) or ()] == [asked.id]
    assert feed.behind(feed.count) == []
    assert feed.behind(-RING_MAX) is None
    feed.close()


async def test_no_change_is_lost_between_a_snapshot_and_what_follows(store: Store) -> None:
    feeds = ApprovalFeeds(store, hub := Hub())
    tail = ApprovalTail(store, feeds, TENANT, ApprovalFilter())
    asked = [await asking(store) for _ in range(20)]
    watcher = Client()
    reading = asyncio.create_task(_reading(tail, watcher))
    now = await clock_of(store)

    for each in asked:
        await store.write(approvals.decide(TENANT, each.id, Decision("deny", "ann"), now))
        hub.ring(approvals_bell(TENANT))
    await watcher.until(lambda client: _settled(client, {each.id for each in asked}))
    tail.close()
    await reading

    assert now > NOW_MS


def _settled(client: Client, ids: set[str]) -> bool:
    """Say whether the watcher's picture is complete: of all it was told, the last counts."""
    picture: dict[str, str] = {}
    for sent in client.seen:
        for each in sent.data["approvals"] if sent.event == "snapshot" else [sent.data]:
            picture[each["id"]] = each["status"]
    denied = {approval_id for approval_id, status in picture.items() if status == "denied"}
    first = client.seen[0] if client.seen else None
    begun = {each["id"] for each in first.data["approvals"]} if first else ids
    return first is not None and denied >= begun


async def _reading(tail: ApprovalTail, watcher: Client) -> None:
    async for piece in tail.pieces():
        for sent in parsed(piece) if piece.endswith(b"\n\n") else ():
            watcher.seen.append(sent)
        watcher.news.set()


async def test_a_stream_ends_once_its_key_is_revoked(
    keyed: KeyedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.api.edge.STILL_ADMITTED_S", 0)
    await made(keyed.acme, "/v1/agents", an_agent())
    await a_waiting_run(keyed.acme)
    key = await made(keyed.acme, "/v1/keys", {"name": "x", "scopes": ["approvals:decide"]})
    reader = await keyed.with_key(key["key"])

    told = ""
    async with reader.stream("GET", "/v1/approvals/events") as stream:
        async for chunk in stream.aiter_text():
            if "apr_" in chunk and "apr_" not in told:
                await keyed.acme.delete(f"/v1/keys/{key['id']}")
                await a_waiting_run(keyed.acme)
            told += chunk

    assert "event: error" in told
    assert '"code":"invalid_key"' in told
    assert len(set(re.findall("apr_[0-9a-f]{32}", told))) == 1
