"""`/v1/users`: all that there is of a user is told, and erased wherever it is kept."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest
from redis.asyncio import Redis

from milepost.live.hub import LiveText
from milepost.live.text_buffers import TextBuffers
from tests.api.making import (
    a_budget,
    a_memory,
    a_schedule,
    a_waiting_run,
    a_webhook,
    an_agent,
    erased,
    made,
    over,
    refusal,
)
from tests.api.searching import database_files_with, files_with, keys_with, tables_with
from tests.api.serving import Service, serving, serving_tenants, settings_for
from tests.store.making import being_erased
from tests.stubs.directed_model import DirectedModel, directed_model
from tests.stubs.webhook_receiver import receiver

MARK = "Zanzibar9041"
USER = "user/Xylo5577"
OTHER = "bob"
TOOLS = '''
from milepost import emit_artifact, stash_pending, tool

@tool
def leave(text: str, times: int = 1) -> str:
    """Leave a file."""
    emit_artifact(content=text * times, filename=text + ".txt")
    return "left " + text

@tool(cacheable=True, effect="read")
def look(text: str) -> str:
    """Look something up."""
    return "found " + text

@tool(requires_approval=True)
def send(text: str) -> str:
    """Send it."""
    return "sent " + text

@tool
def put_off(text: str) -> object:
    """Put it off."""
    return stash_pending("send", "Send " + text, {"text": text})
'''
LARGE = 40_000  # times the mark: more than the database takes


@dataclass(frozen=True, slots=True)
class Desk:
    """A service with tools that keep what they are told, and a client of it."""

    service: Service
    client: httpx2.AsyncClient
    model: DirectedModel
    url: str
    artifacts: Path

    async def run(self, text: str, **changes: Any) -> dict[str, Any]:
        """Have the clerk answer, in the user's name."""
        body = {"agent": "clerk", "input": text, "user": USER, **changes}
        return await made(self.client, "/v1/runs?wait=20", body)

    async def erased(self, user: str = USER) -> dict[str, Any]:
        """Erase the user, and return the erasure once it is done."""
        return await erased(self.client, user)


@asynccontextmanager
async def desk_at(database_url: str, folder: Path, **changes: Any) -> AsyncIterator[Desk]:
    """Run such a service."""
    (folder / "desk_tools.py").write_text(TOOLS)
    async with directed_model() as model:
        settings = settings_for(
            database_url,
            tools=str(folder / "desk_tools.py"),
            artifacts_dir=str(folder / "artifacts"),
            OPENAI_BASE_URL=model.base_url,
            **changes,
        )
        async with serving(settings) as service, service.client() as client:
            agent = {
                "name": "clerk",
                "model": "openai/m",
                "tools": ["leave", "look", "send", "put_off"],
                "cache": {"ttl_s": 600},
            }
            await made(client, "/v1/agents", agent)
            yield Desk(service, client, model, database_url, folder / "artifacts")


@pytest.fixture
async def desk(database_url: str, tmp_path: Path) -> AsyncIterator[Desk]:
    """Such a service, on each database."""
    async with desk_at(database_url, tmp_path) as desk:
        yield desk


async def said_everywhere(desk: Desk) -> None:
    """Have the user say the mark wherever anything can be said."""
    client = desk.client
    await made(client, "/v1/webhooks", a_webhook(events=["run.*", "approval.*"]))
    await made(client, "/v1/budgets", a_budget(scope="user"))
    await made(client, "/v1/budgets", a_budget(scope="user", scope_value=USER))
    session = await made(
        client,
        "/v1/sessions",
        {"user": USER, "title": f"About {MARK}", "metadata": {"about": MARK}},
    )
    inside = {"session_id": session["id"]}
    await desk.run(f"Hello, {MARK}", **inside, metadata={"about": MARK})
    await desk.run(f'call look {{"text": "{MARK}"}}', **inside)
    await desk.run(f'call leave {{"text": "{MARK}"}}', **inside)
    await desk.run(f'call leave {{"text": "{MARK}", "times": {LARGE}}}', **inside)
    keyed = {"idempotency-key": f"key-{MARK}"}
    body = {"agent": "clerk", "input": f"Once more, {MARK}", "user": USER}
    answer = await client.post("/v1/runs?wait=20", json=body, headers=keyed)
    assert answer.json()["status"] == "completed", answer.text
    await decided(desk, "approve", f'call send {{"text": "{MARK}"}}')
    await decided(desk, "deny", f'call send {{"text": "{MARK}"}}')
    await steered(desk)
    question = await asked(desk, f'call send {{"text": "{MARK} is waiting"}}')
    await said_to(desk, question["run_id"])
    items = [{"input": f"An item, {MARK}"}]
    wanted = {"agent": "clerk", "user": USER, "items": items, "metadata": {"about": MARK}}
    batch = await made(client, "/v1/batches", wanted)
    await over(client, batch["id"])
    again = {"agent": "clerk", "input": f"Again and again, {MARK}", "user": USER}
    await made(client, "/v1/schedules", a_schedule(run=again, metadata={"about": MARK}))
    await made(client, "/v1/memories", a_memory(scope="user", owner=USER, content=f"Knows {MARK}"))
    for number, text in enumerate(
        [f"From a chat, {MARK}", f'call put_off {{"text": "{MARK}"}}', f"and again, {MARK}"]
    ):
        told = {
            "user": USER, "conversation": f"c-{MARK}", "message_id": f"{MARK}-{number}",
            "agent": "clerk", "text": text,
        }  # fmt: skip
        answer = await client.post(
            "/v1/channels/whatsapp/messages?wait=20",
            json=told,
            headers={"idempotency-key": f"{MARK}-{number}"},
        )
        assert answer.status_code == 200, answer.text
    scheduled = {"agent": "clerk", "input": f"Later, {MARK}", "user": USER, "delay_s": 3_600}
    await made(client, "/v1/runs", scheduled)


async def asked(desk: Desk, text: str) -> dict[str, Any]:
    """Have the clerk ask for leave; return the question."""
    run = await made(desk.client, "/v1/runs", {"agent": "clerk", "input": text, "user": USER})
    await desk.client.get(f"/v1/runs/{run['id']}/events?until=waiting")
    listed = (await desk.client.get(f"/v1/approvals?run_id={run['id']}")).json()["data"]
    question: dict[str, Any] = listed[0]
    return question


async def said_to(desk: Desk, run_id: str) -> None:
    """Say something to a run that is under way."""
    body = {"content": f"And think of {MARK}, said meanwhile"}
    await made(desk.client, f"/v1/runs/{run_id}/messages", body)


async def steered(desk: Desk) -> None:
    """Have a run take up what is said to it, and be replaced while it has more of that."""
    question = await asked(desk, f'call send {{"text": "{MARK}"}}')
    await said_to(desk, question["run_id"])
    answer = {"decision": "deny", "comment": f"no {MARK}"}
    await made(desk.client, f"/v1/approvals/{question['id']}/decision", answer)
    run = (await desk.client.get(f"/v1/runs/{question['run_id']}/wait")).json()
    assert run["status"] == "completed", run
    question = await asked(desk, f'call send {{"text": "{MARK}"}}')
    run = (await desk.client.get(f"/v1/runs/{question['run_id']}")).json()
    inside = {"session_id": run["session_id"]}
    rather = {"agent": "clerk", "input": f"Rather this, {MARK}", "user": USER, **inside}
    await made(desk.client, "/v1/runs", {**rather, "if_active": "steer"})
    await desk.run(f"No, rather that, {MARK}", **inside, if_active="rollback")


async def decided(desk: Desk, decision: str, text: str) -> None:
    """Have the clerk ask, answer with words, and wait for the end."""
    question = await asked(desk, text)
    body: dict[str, Any] = {"decision": decision, "comment": f"because of {MARK}"}
    if decision == "approve":
        body["arguments"] = {"text": MARK * 2}
    answer = await desk.client.post(f"/v1/approvals/{question['id']}/decision", json=body)
    assert answer.status_code == 200, answer.text
    run = (await desk.client.get(f"/v1/runs/{question['run_id']}/wait")).json()
    assert run["status"] == "completed", run


EVERYWHERE = {
    "approvals", "artifact_contents", "artifacts", "batches", "channel_messages", "conversations",
    "idempotency", "memories", "pending_actions", "runs", "schedules", "sessions", "usage", "votes",
}  # fmt: skip


async def test_nothing_of_a_user_is_left_in_the_database_nor_in_files(desk: Desk) -> None:
    await said_everywhere(desk)
    await desk.run("Hello from somebody else", user=OTHER)
    spread = tables_with(desk.url, MARK)
    assert spread >= EVERYWHERE, EVERYWHERE - spread
    assert files_with(desk.artifacts, MARK)

    erasure = await desk.erased()

    for needle in (MARK, USER, "Xylo5577"):
        assert tables_with(desk.url, needle) == set()
        assert files_with(desk.artifacts, needle) == set()
    if desk.url.startswith("sqlite"):
        assert database_files_with(desk.url, MARK) == set()
        assert database_files_with(desk.url, "Xylo5577") == set()
    assert erasure["user"] is None
    assert erasure["erased"]["sessions"] >= 1
    others = (await desk.client.get("/v1/runs", params={"user": OTHER})).json()["data"]
    assert [run["status"] for run in others] == ["completed"]


async def test_neither_redis_nor_the_processes_memories_keep_what_a_user_said(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    async with desk_at(database_url, tmp_path, redis_url=redis_url) as desk:
        for user in (USER, OTHER):
            await desk.run(f"Hello, {MARK}-{user}", user=user)
            await desk.run(f'call look {{"text": "{MARK}-{user}"}}', user=user)
        before = await keys_with(redis_url, f"{MARK}-{USER}")

        await desk.erased()

        after = await keys_with(redis_url, f"{MARK}-{USER}")
        others = await keys_with(redis_url, f"{MARK}-{OTHER}")
    assert {key.split(":")[1] for key in before} == {"cache"}
    assert after == set()
    assert others
    assert await keys_with(redis_url, "Xylo5577") == set()


async def test_a_user_who_says_what_another_said_takes_it_along(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    async with desk_at(database_url, tmp_path, redis_url=redis_url) as desk:
        for user in (OTHER, USER):
            await desk.run(f"We both know {MARK}", user=user)
        kept = await keys_with(redis_url, f"both know {MARK}")

        await desk.erased()

        left = await keys_with(redis_url, f"both know {MARK}")
    assert kept
    assert left == set()


async def test_a_text_that_its_writer_left_in_redis_goes_with_its_run(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    async with desk_at(database_url, tmp_path, redis_url=redis_url) as desk:
        run = await desk.run("Hello")
        # As a process leaves it that is killed while it writes.
        async with abandoned(redis_url, run["id"], "left halfway"):
            pass
        before = await keys_with(redis_url, "left halfway")

        await desk.erased()

        after = await keys_with(redis_url, "left halfway")
    assert before
    assert after == set()


@asynccontextmanager
async def abandoned(redis_url: str, run_id: str, said: str) -> AsyncIterator[None]:
    """Write a text as somebody does who never says that it is complete."""
    redis: Any = Redis.from_url(redis_url)
    pipe = redis.pipeline(transaction=False)
    text = LiveText("message.delta", "msg_0", 1, said)
    TextBuffers(redis).add(pipe, run_id, text, said, 0)
    await pipe.execute()
    yield
    await redis.aclose()


async def test_all_that_there_is_of_a_user_can_be_taken_along(desk: Desk) -> None:
    await said_everywhere(desk)
    await desk.run("Hello from somebody else", user=OTHER)

    answer = await desk.client.get(f"/v1/users/{USER}/export")

    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert answer.headers["content-type"] == "application/x-ndjson"
    kinds = Counter(line["kind"] for line in lines)
    assert {"session", "run", "event", "artifact", "batch", "schedule", "memory"} == set(kinds)
    runs = {line["data"]["id"] for line in lines if line["kind"] == "run"}
    assert len(runs) == kinds["run"]
    assert {line["data"]["run_id"] for line in lines if line["kind"] == "event"} == runs
    assert all(line["data"]["user"] == USER for line in lines if line["kind"] == "run")
    assert MARK in answer.text


async def test_what_the_key_of_a_user_could_do_is_over(database_url: str, tmp_path: Path) -> None:
    async with serving_tenants(settings_for(database_url)) as keyed:
        theirs = await keyed.holding("runs:read", subject="ann")
        await erased(keyed.acme, "ann")

        answer = await theirs.get("/v1/runs")
        keys = (await keyed.acme.get("/v1/keys")).text

    assert answer.status_code == 401
    assert "ann" not in keys


async def test_a_name_that_nobody_has_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.delete(f"/v1/users/{'x' * 201}")

    assert refusal(answer) == (422, "bad_user")


async def test_what_is_told_of_a_user_cannot_be_deleted_by_itself(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.delete("/v1/users/ann/export")

    assert refusal(answer) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD"


async def test_while_a_user_is_erased_runs_of_theirs_are_refused(desk: Desk) -> None:
    desk.model.gate.clear()
    run = await made(desk.client, "/v1/runs", {"agent": "clerk", "input": "Hi", "user": USER})
    await desk.client.get(f"/v1/runs/{run['id']}/wait?timeout_s=1")
    erasure = (await desk.client.delete(f"/v1/users/{USER}")).json()

    answer = await desk.client.post(
        "/v1/runs", json={"agent": "clerk", "input": "Hi again", "user": USER}
    )
    shown = (await desk.client.get("/v1/erasures")).json()["data"]

    assert run["id"]
    assert refusal(answer) == (409, "user_being_erased")
    assert answer.json()["retryable"] is True, "it may be made once the erasure is over"
    assert [each["id"] for each in shown] == [erasure["id"]]


async def test_while_a_user_is_erased_nothing_is_made_that_bears_the_name(desk: Desk) -> None:
    desk.model.gate.clear()
    run = await made(desk.client, "/v1/runs", {"agent": "clerk", "input": "Hi", "user": USER})
    await desk.client.get(f"/v1/runs/{run['id']}/wait?timeout_s=1")
    await desk.client.delete(f"/v1/users/{USER}")
    bodies: dict[str, dict[str, Any]] = {
        "/v1/batches": {"agent": "clerk", "items": [{"input": "Hi"}], "user": USER},
        "/v1/budgets": a_budget(scope="user", scope_value=USER),
        "/v1/keys": {"name": "theirs", "scopes": ["runs:read"], "subject": USER},
        "/v1/memories": a_memory(scope="user", owner=USER),
        "/v1/session_imports": {
            "format": "milepost.session/1", "session": {"user": USER}, "runs": [],
        },
        "/v1/schedules": a_schedule(run={"agent": "clerk", "input": "Hi", "user": USER}),
        "/v1/sessions": {"user": USER},
    }  # fmt: skip

    refusals = {
        path: refusal(await desk.client.post(path, json=body)) for path, body in bodies.items()
    }

    assert refusals == dict.fromkeys(bodies, (409, "user_being_erased"))


async def test_while_a_user_is_erased_no_answer_of_theirs_is_taken(database_url: str) -> None:
    async with serving_tenants(settings_for(database_url)) as keyed:
        acme = keyed.acme
        await made(acme, "/v1/agents", an_agent(policy={"ask": ["*"]}))
        theirs = await keyed.holding("approvals:decide", "runs:read", subject=USER)
        question = await asked_by(acme, await a_waiting_run(acme, user=OTHER))
        await keyed.service.process.app._parts.ports.store.write(being_erased("acme", USER))

        answer = {"decision": "approve", "comment": f"because of {MARK}"}
        all_of_them = {"decisions": [{"approval_id": question, **answer}], "mode": "all"}
        refusals = [
            refusal(await theirs.post(path, json=body))
            for path, body in (
                (f"/v1/approvals/{question}/decision", answer),
                ("/v1/approvals/decisions", all_of_them),
                (f"/v1/approvals/{question}/withdraw", {"reason": f"because of {MARK}"}),
            )
        ]

        assert refusals == [(409, "user_being_erased")] * 3
        assert (await acme.get(f"/v1/approvals/{question}")).json()["status"] == "pending"


async def test_what_is_told_of_a_user_in_somebody_elses_session_goes_too(desk: Desk) -> None:
    model = "openai/m"
    teller = {
        "name": "teller",
        "model": model,
        "memory": {"window": {"messages": 2}, "summarize": {"model": model}},
    }
    await made(desk.client, "/v1/agents", teller)
    session = await made(desk.client, "/v1/sessions", {"user": OTHER})
    inside = {"session_id": session["id"], "agent": "teller"}
    await desk.run(f"Hello, {MARK}", **inside)
    for text in ("One", "Two", "Three"):
        await desk.run(text, user=OTHER, **inside)
    path = f"/v1/sessions/{session['id']}"
    before = (await desk.client.get(f"{path}/summaries")).json()["data"]
    assert MARK in " ".join(each["content"] for each in before)

    await desk.erased()
    after = await desk.run("Four", user=OTHER, **inside)

    assert tables_with(desk.url, MARK) == set()
    assert after["status"] == "completed"
    shown = (await desk.client.get(f"{path}/summaries")).json()["data"]
    kept = {(each["first"], each["last"]) for each in shown}
    assert kept >= {(each["first"], each["last"]) for each in before}


@pytest.mark.parametrize(
    "user", ["export", "a%2Fexport", "r", "%0Aann", "ann%0A", "ann%2Fexport%0A"]
)
async def test_whatever_users_are_called_they_are_erased_and_nobody_elses_requests_forgotten(
    desk: Desk, user: str
) -> None:
    keyed = {"idempotency-key": "k1"}
    body = {"agent": "clerk", "input": "Once", "user": OTHER}
    first = (await desk.client.post("/v1/runs?wait=20", json=body, headers=keyed)).json()
    await made(desk.client, "/v1/sessions", {"user": unquote(user)})

    shown = await desk.erased(user)
    again = await desk.client.post("/v1/runs", json=body, headers=keyed)

    assert shown["erased"]["sessions"] == 1
    assert again.json()["id"] == first["id"]


async def test_what_a_user_answered_in_somebody_elses_run_stays_without_name_and_words(
    database_url: str,
) -> None:
    async with serving_tenants(settings_for(database_url)) as keyed:
        await made(keyed.acme, "/v1/agents", an_agent(policy={"ask": ["*"]}))
        theirs = await keyed.holding("approvals:decide", "runs:read", subject=USER)
        runs = [await a_waiting_run(keyed.acme, user=OTHER) for _ in range(3)]
        approve, deny, withdraw = [await asked_by(keyed.acme, run) for run in runs]
        because = f"because of {MARK}"
        for question, decision in ((approve, "approve"), (deny, "deny")):
            said = {"decision": decision, "comment": because}
            await made(theirs, f"/v1/approvals/{question}/decision", said)
        await made(theirs, f"/v1/approvals/{withdraw}/withdraw", {"reason": because})
        for run in runs:
            await keyed.acme.get(f"/v1/runs/{run['id']}/wait")
        spread = tables_with(database_url, MARK)
        assert spread >= {"approvals", "audit", "votes"}
        assert tables_with(database_url, USER) >= {"keys", "votes"}

        erasure = await erased(keyed.acme, USER)

        # What the model has made of a refusal stays in the run, and so in its outcome.
        left = tables_with(database_url, MARK)
        assert left <= {each for each in spread if each.startswith(("events", "runs"))}
        assert tables_with(database_url, "Xylo5577") == set()
        for question, status in ((approve, "approved"), (deny, "denied"), (withdraw, "withdrawn")):
            shown = (await keyed.acme.get(f"/v1/approvals/{question}")).json()
            assert (shown["status"], shown["decided_by"]) == (status, erasure["id"])
            assert shown["comment"] is None
            assert {vote["person"] for vote in shown["votes"]} <= {erasure["id"]}
        for run in runs:
            for event in await log_of(keyed.acme, run["id"]):
                assert MARK not in str(event) or event["type"].startswith(("message", "run."))
        told = (await keyed.acme.get("/v1/audit?action=approval.decided")).json()["data"]
        assert [(act["actor"], act["details"]["decision"]) for act in told] == [
            (erasure["id"], "deny"),
            (erasure["id"], "approve"),
        ]
        assert erasure["erased"]["approvals_unnamed"] == 3


async def test_webhooks_are_told_of_an_erased_users_votes_without_the_name(
    database_url: str,
) -> None:
    settings = settings_for(database_url, egress_allow="127.0.0.1")
    async with serving_tenants(settings) as keyed, receiver() as there:
        acme = keyed.acme
        await made(acme, "/v1/agents", an_agent(policy={"ask": [{"tool": "*", "required": 3}]}))
        hook = await made(acme, "/v1/webhooks", a_webhook(url=there.url, events=["approval.voted"]))
        same_name = [
            {"name": MARK, "scopes": ["approvals:decide"], "subject": who} for who in (USER, OTHER)
        ]
        voters = [
            await keyed.with_key((await made(acme, "/v1/keys", body))["key"]) for body in same_name
        ]
        theirs, others = voters
        stays, edited = [await asked_by(acme, await a_waiting_run(acme)) for _ in range(2)]
        for voter, question in ((theirs, stays), (others, stays), (theirs, edited)):
            digest = (await acme.get(f"/v1/approvals/{question}")).json()["digest"]
            vote = {"decision": "approve", "digest": digest}
            await made(voter, f"/v1/approvals/{question}/decision", vote)
        # An edit voids the vote, of which webhooks have been told all the same.
        call = (await acme.get(f"/v1/approvals/{edited}")).json()
        edit = {"arguments": {**call["arguments"], "body": "Bye"}, "digest": call["digest"]}
        await made(acme, f"/v1/approvals/{edited}/decision", {"decision": "approve", **edit})
        told = {(sent := await there.next()).id: sent for _ in range(4)}

        erasure = await erased(acme, USER)

        again = {}
        for delivery_id in told:
            path = f"/v1/webhooks/{hook['id']}/deliveries/{delivery_id}"
            while (await acme.get(path)).json()["status"] != "delivered":
                pass  # Each look takes the time of a request; the test has a limit.
            await made(acme, f"{path}/redeliver", {})
            again[delivery_id] = (await there.next()).body["data"]["by"]
        by_whom = sorted((sent.body["data"]["by"], again[each]) for each, sent in told.items())
        admin = next(by for by, _ in by_whom if by != MARK)
        assert by_whom == sorted(
            [(MARK, erasure["id"]), (MARK, erasure["id"]), (MARK, MARK), (admin, admin)]
        )


async def asked_by(client: httpx2.AsyncClient, run: dict[str, Any]) -> str:
    """Return what the run asks."""
    [question] = (await client.get(f"/v1/approvals?run_id={run['id']}")).json()["data"]
    return str(question["id"])


async def log_of(client: httpx2.AsyncClient, run_id: str) -> list[dict[str, Any]]:
    """Return the run's log."""
    answer = await client.get(
        f"/v1/runs/{run_id}/events?limit=100", headers={"accept": "application/json"}
    )
    entries: list[dict[str, Any]] = answer.json()["data"]
    return entries
