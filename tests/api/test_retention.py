"""`/v1/retention`: what a tenant says, and what is left of a run that outlives its log."""

from typing import Any

import httpx2
import pytest

from milepost.api.log_pages import LogPage, LogPages
from milepost.store import retention
from milepost.store.retention import Wearing
from tests.api.making import an_agent, an_ended_run, made, refusal
from tests.api.serving import KeyedService, Service

JSON = {"accept": "application/json"}
LINES = {"accept": "application/x-ndjson"}
LATER_MS = 4_000_000_000_000
NONE = dict.fromkeys(["runs_s", "events_s", "artifacts_s", "traces_s", "memories_s"])


async def worn(service: Service, resource: Wearing) -> None:
    """Have all runs that are over lose a part."""
    store = service.app._parts.ports.store
    await store.write(retention.wear("default", resource, None, LATER_MS))


@pytest.fixture
async def bare(service: Service, client: httpx2.AsyncClient) -> dict[str, Any]:
    """A run in a session, of which no log is left."""
    await made(client, "/v1/agents", an_agent())
    session = await made(client, "/v1/sessions", {})
    run = await an_ended_run(client, session_id=session["id"])
    await worn(service, "events")
    return run


async def test_a_tenants_rules_are_its_own_and_replaced_as_a_whole(keyed: KeyedService) -> None:
    before = (await keyed.acme.get("/v1/retention")).json()
    put = await keyed.acme.put("/v1/retention", json={"runs_s": 86_400, "traces_s": 3_600})
    again = await keyed.acme.put("/v1/retention", json={"runs_s": 90})

    shown = (await keyed.acme.get("/v1/retention")).json()
    theirs = (await keyed.globex.get("/v1/retention")).json()
    acts = (await keyed.acme.get("/v1/audit?action=retention.changed")).json()["data"]

    assert {name: before[name] for name in NONE} == NONE
    assert before["installation"] == {"kept_max_s": None, "deltas_s": 900}
    assert {name: put.json()[name] for name in NONE} == NONE | {"runs_s": 86_400, "traces_s": 3_600}
    assert again.json() == shown
    assert {name: shown[name] for name in NONE} == NONE | {"runs_s": 90}
    assert theirs["runs_s"] is None
    assert [act["details"]["runs_s"] for act in acts] == [90, 86_400]


async def test_rules_are_changed_in_the_version_that_was_read(client: httpx2.AsyncClient) -> None:
    tag = (await client.get("/v1/retention")).headers["etag"]
    first = await client.put("/v1/retention", json={"runs_s": 90}, headers={"if-match": tag})

    second = await client.put("/v1/retention", json={"runs_s": 91}, headers={"if-match": tag})

    assert first.status_code == 200
    assert refusal(second) == (412, "precondition_failed")


@pytest.mark.parametrize("body", [{"runs_s": 59}, {"runs_s": 1.5}, {"deltas_s": 60}, {"runs": 90}])
async def test_rules_that_nobody_could_keep_are_refused(
    client: httpx2.AsyncClient, body: dict[str, Any]
) -> None:
    answer = await client.put("/v1/retention", json=body)

    assert refusal(answer) == (422, "invalid_request")


async def test_a_run_that_outlives_its_log_keeps_its_outcome(
    client: httpx2.AsyncClient, bare: dict[str, Any]
) -> None:
    shown = (await client.get(f"/v1/runs/{bare['id']}")).json()
    streamed = await client.get(f"/v1/runs/{bare['id']}/events")
    waited = await client.get(f"/v1/runs/{bare['id']}/wait")
    said = (await client.get(f"/v1/sessions/{bare['session_id']}/messages")).json()

    assert shown == bare
    assert streamed.status_code == 204
    assert waited.json() == bare
    assert said["data"] == []


async def test_nothing_goes_on_from_a_log_that_is_gone(
    client: httpx2.AsyncClient, bare: dict[str, Any]
) -> None:
    fork = await client.post(f"/v1/runs/{bare['id']}/fork", json={"at_seq": 1})
    replay = await client.post(f"/v1/runs/{bare['id']}/replay", json={})

    assert refusal(fork) == (409, "log_gone")
    assert refusal(replay) == (409, "log_gone")


async def test_a_session_goes_on_when_what_was_said_is_gone(
    client: httpx2.AsyncClient, bare: dict[str, Any]
) -> None:
    run = await an_ended_run(client, session_id=bare["session_id"])

    followed = await client.get(f"/v1/sessions/{bare['session_id']}/events?until=idle")
    said = (await client.get(f"/v1/sessions/{bare['session_id']}/messages")).json()

    assert f"id: {run['id']}.1\n" in followed.text
    assert {each["run_id"] for each in said["data"]} == {run["id"]}


async def test_who_comes_back_to_a_log_that_is_gone_is_told_to_stop_asking(
    client: httpx2.AsyncClient, bare: dict[str, Any]
) -> None:
    path = f"/v1/runs/{bare['id']}/events"

    streamed = await client.get(path, headers={"last-event-id": "2~msg_1:3"})
    page = await client.get(f"{path}?after=2", headers=JSON)
    lines = await client.get(f"{path}?after=2", headers=LINES)

    assert streamed.status_code == 204
    assert page.json()["data"] == []
    assert (lines.status_code, lines.text) == (200, "")


async def test_who_comes_back_to_a_run_whose_log_is_gone_sees_those_behind_it(
    client: httpx2.AsyncClient, bare: dict[str, Any]
) -> None:
    path = f"/v1/sessions/{bare['session_id']}/events?until=idle"
    position = {"last-event-id": f"{bare['id']}.3"}
    nothing = await client.get(path, headers=position)
    run = await an_ended_run(client, session_id=bare["session_id"])

    followed = await client.get(path, headers=position)

    assert nothing.status_code == 204
    assert f"id: {run['id']}.1\n" in followed.text


@pytest.mark.parametrize("of_session", [False, True])
async def test_lines_end_where_their_log_goes_meanwhile(
    service: Service,
    client: httpx2.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    *,
    of_session: bool,
) -> None:
    await made(client, "/v1/agents", an_agent())
    session = await made(client, "/v1/sessions", {})
    run = await an_ended_run(client, session_id=session["id"])
    read = LogPages.behind

    async def worn_before(pages: LogPages, seq: int, **bounds: int) -> LogPage:
        await worn(service, "events")
        return await read(pages, seq, **bounds)

    monkeypatch.setattr(LogPages, "behind", worn_before)
    path = f"sessions/{session['id']}" if of_session else f"runs/{run['id']}"

    lines = await client.get(f"/v1/{path}/events", headers=LINES)

    assert (lines.status_code, lines.text) == (200, "")


async def test_a_run_whose_log_is_gone_is_streamed_again_without_a_word(
    service: Service, client: httpx2.AsyncClient
) -> None:
    """Its first event would tell whether its answer has partial values."""
    await made(client, "/v1/agents", an_agent())
    body = {"agent": "clerk", "input": "hello", "stream": True}
    keyed = {"idempotency-key": "once"}
    first = await client.post("/v1/runs?partials=true", json=body, headers=keyed)
    await worn(service, "events")

    again = await client.post("/v1/runs?partials=true", json=body, headers=keyed)

    assert "event: run.completed" in first.text
    assert (again.status_code, again.text) == (200, "")


async def test_traces_may_go_alone(service: Service, client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())
    run = await an_ended_run(client)

    await worn(service, "traces")

    assert (await client.get(f"/v1/runs/{run['id']}/trace")).json()["spans"] == []
    assert (await client.get(f"/v1/runs/{run['id']}/usage")).json()["output_tokens"] > 0
