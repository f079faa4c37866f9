"""`/v1/schedules`: made, shown with the times to come, changed, and what becomes of the runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from milepost.api.new_schedules import RUN_BYTES_MAX
from milepost.live.hub import SCHEDULES_BELL
from milepost.runtime.timetable import Timetable
from tests.api.making import a_schedule, an_agent, made, refusal
from tests.api.serving import KeyedService, Service
from tests.store.making_schedules import NOWHERE, let_come, let_sink

RUN: dict[str, Any] = {"agent": "clerk", "input": "What is 2 + 3?"}
FILLED: dict[str, Any] = {
    "session_id": None, "metadata": {}, "user": None, "deadline_s": None, "response_format": None,
    "cache": True, "priority": 0,
}  # fmt: skip
TIMEOUT_S = 20


@pytest.fixture
async def clerk(client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """A client of a service with an agent that adds and sends mails."""
    await made(client, "/v1/agents", an_agent())
    return client


@pytest.fixture
async def acme(keyed: KeyedService) -> httpx2.AsyncClient:
    """An admin of a tenant with such an agent."""
    await made(keyed.acme, "/v1/agents", an_agent())
    return keyed.acme


@asynccontextmanager
async def with_key(
    keyed: KeyedService, scopes: list[str], subject: str | None = None
) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    """Make a key of acme's; give its client and its id."""
    wanted = {"name": "k", "scopes": scopes, "subject": subject}
    key = await made(keyed.acme, "/v1/keys", wanted)
    async with keyed.service.client(key["key"]) as client:
        yield client, key["id"]


async def come(client: httpx2.AsyncClient, schedule_id: str) -> dict[str, Any]:
    """Wait until its time has come; return what became of it."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            shown = (await client.get(f"/v1/schedules/{schedule_id}")).json()
            if shown["last"] is not None:
                last: dict[str, Any] = shown["last"]
                return last
            await asyncio.sleep(0.02)


async def runs_of(client: httpx2.AsyncClient, schedule_id: str) -> list[dict[str, Any]]:
    found = await client.get("/v1/runs", params={"metadata[schedule_id]": schedule_id})
    listed: list[dict[str, Any]] = found.json()["data"]
    return listed


# --- As a resource ---


async def test_a_schedule_is_shown_as_it_was_made(clerk: httpx2.AsyncClient) -> None:
    said = {
        "name": "Report",
        "cron": "0 9 * * MON-FRI",
        "timezone": "Europe/Berlin",
        "run": {
            **RUN,
            "user": "ann",
            "metadata": {"team": "a"},
            "deadline_s": 60,
            "priority": 5,
            "cache": False,
            "session_id": None,
            "response_format": {
                "type": "json_schema", "schema": {"type": "object"}, "name": "answer",
                "retries": 2, "mode": "auto",
            },
        },
        "overlap": "allow",
        "late_max_s": 60.5,
        "enabled": True,
        "metadata": {"owner": "ops"},
    }  # fmt: skip

    answer = await clerk.post("/v1/schedules", json=said)

    assert answer.status_code == 201
    schedule = answer.json()
    assert schedule == {
        **said,
        "id": schedule["id"],
        "version": 1,
        "created_at": schedule["created_at"],
        "updated_at": schedule["created_at"],
        "next_at": schedule["upcoming"][0],
        "upcoming": schedule["upcoming"],
        "last": None,
    }
    assert schedule["id"].startswith("sch_")
    assert answer.headers["location"] == f"/v1/schedules/{schedule['id']}"
    assert answer.headers["etag"] == '"1"'
    looked_up = await clerk.get(f"/v1/schedules/{schedule['id']}")
    assert (looked_up.json(), looked_up.headers["etag"]) == (schedule, '"1"')


async def test_what_is_not_said_is_as_one_would_expect(clerk: httpx2.AsyncClient) -> None:
    schedule = await made(clerk, "/v1/schedules", {"cron": "0 9 * * *", "run": RUN})

    assert (schedule["timezone"], schedule["overlap"], schedule["enabled"]) == ("UTC", "skip", True)
    assert schedule["late_max_s"] is schedule["name"] is None
    assert schedule["run"] == {**RUN, **FILLED}


async def test_the_times_to_come_are_those_of_the_place(clerk: httpx2.AsyncClient) -> None:
    wanted = {"cron": "30 9 * * *", "timezone": "Asia/Kolkata", "run": RUN}

    schedule = await made(clerk, "/v1/schedules", wanted)

    assert len(schedule["upcoming"]) == 5
    assert all(each.endswith("T04:00:00.000Z") for each in schedule["upcoming"])
    assert schedule["upcoming"] == sorted(set(schedule["upcoming"]))


async def test_times_that_were_found_once_are_not_looked_for_again(
    clerk: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For some, years after years are gone through, while everybody else waits."""
    schedule = await made(clerk, "/v1/schedules", a_schedule(cron="7 0 *,29 2 1#5"))
    monkeypatch.delattr(Timetable, "upcoming")

    assert (await clerk.get(f"/v1/schedules/{schedule['id']}")).json() == schedule


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"cron": "every day"}, "/cron"),
        ({"cron": "0 0 31 2 *"}, "/cron"),
        ({"cron": "@daily"}, "/cron"),
        ({"cron": 5}, "/cron"),
        ({"timezone": "Mars/Olympus"}, "/timezone"),
        ({"timezone": "../../etc/passwd"}, "/timezone"),
        ({"overlap": "sometimes"}, "/overlap"),
        ({"late_max_s": 0.5}, "/late_max_s"),
        ({"name": ""}, "/name"),
        ({"every": "day"}, "/every"),
        ({"run": None}, "/run"),
        ({"run": {"agent": "clerk"}}, "/run/input"),
        ({"run": {**RUN, "stream": True}}, "/run/stream"),
        ({"run": {**RUN, "delay_s": 5}}, "/run/delay_s"),
        ({"run": {**RUN, "metadata": {"schedule_id": "x"}}}, "/run/metadata"),
        ({"run": {**RUN, "metadata": {str(n): "" for n in range(31)}}}, "/run/metadata"),
    ],
)
async def test_what_does_not_fit_is_named(
    clerk: httpx2.AsyncClient, changes: dict[str, Any], pointer: str
) -> None:
    answer = await clerk.post("/v1/schedules", json=a_schedule(**changes))

    assert refusal(answer) == (422, "invalid_request")
    assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]


async def test_what_it_runs_is_bounded_for_a_page_shows_a_hundred_of_them(
    clerk: httpx2.AsyncClient,
) -> None:
    long = a_schedule(run={**RUN, "input": "x" * RUN_BYTES_MAX})
    schedule = await made(clerk, "/v1/schedules", a_schedule(run={**RUN, "input": "x" * 200_000}))
    path = f"/v1/schedules/{schedule['id']}"

    for answer in (
        await clerk.post("/v1/schedules", json=long),
        await clerk.patch(path, json={"run": long["run"]}),
    ):
        assert refusal(answer) == (422, "invalid_request")
        assert answer.json()["errors"][0]["pointer"] == "/run"
    assert (await clerk.get(path)).json() == schedule


async def test_what_it_names_has_to_be_there(clerk: httpx2.AsyncClient) -> None:
    nobody = await clerk.post("/v1/schedules", json=a_schedule(run={**RUN, "agent": "nobody"}))
    nowhere = await clerk.post(
        "/v1/schedules", json=a_schedule(run={**RUN, "session_id": "ses_none"})
    )

    assert refusal(nobody) == (404, "agent_not_found")
    assert refusal(nowhere) == (404, "session_not_found")


async def test_schedules_are_listed_by_what_is_known_of_them(clerk: httpx2.AsyncClient) -> None:
    first = await made(clerk, "/v1/schedules", a_schedule(metadata={"team": "a"}))
    second = await made(
        clerk, "/v1/schedules", a_schedule(enabled=False, run={**RUN, "user": "ann"})
    )

    async def ids(query: str) -> list[str]:
        return [each["id"] for each in (await clerk.get(f"/v1/schedules{query}")).json()["data"]]

    assert await ids("") == [second["id"], first["id"]]
    assert await ids("?enabled=true") == await ids("?metadata[team]=a") == [first["id"]]
    assert await ids("?enabled=false") == await ids("?user=ann") == [second["id"]]
    assert await ids("?agent=clerk&order=asc") == [first["id"], second["id"]]
    assert refusal(await clerk.get("/v1/schedules?enabled=maybe")) == (400, "bad_query")


async def test_the_scheduler_is_told_of_one_that_is_new_or_changed(
    service: Service, clerk: httpx2.AsyncClient
) -> None:
    with service.app._parts.ports.hub.bell(SCHEDULES_BELL) as rung:
        schedule = await made(clerk, "/v1/schedules", a_schedule())
        assert rung.is_set()

        rung.clear()
        await clerk.patch(f"/v1/schedules/{schedule['id']}", json={"timezone": "Asia/Kolkata"})
        assert rung.is_set()


async def test_a_disabled_schedule_has_no_times(clerk: httpx2.AsyncClient) -> None:
    schedule = await made(clerk, "/v1/schedules", a_schedule(enabled=False))

    assert (schedule["next_at"], schedule["upcoming"]) == (None, [])


async def test_a_change_changes_what_it_names_and_nothing_else(clerk: httpx2.AsyncClient) -> None:
    before = await made(clerk, "/v1/schedules", a_schedule(name="x", late_max_s=5))
    path = f"/v1/schedules/{before['id']}"

    answer = await clerk.patch(path, json={"name": None, "late_max_s": 7, "overlap": "allow"})

    after = answer.json()
    changed = {"name": None, "late_max_s": 7.0, "overlap": "allow", "version": 2}
    assert after == {**before, **changed, "updated_at": after["updated_at"]}
    assert answer.headers["etag"] == '"2"'
    for same in ({}, {"name": None}, {"cron": before["cron"], "enabled": True}):
        assert (await clerk.patch(path, json=same)).json() == after


async def test_another_timing_moves_the_next_time(clerk: httpx2.AsyncClient) -> None:
    before = await made(clerk, "/v1/schedules", a_schedule())
    path = f"/v1/schedules/{before['id']}"

    elsewhere = (await clerk.patch(path, json={"timezone": "Asia/Kolkata"})).json()
    paused = (await clerk.patch(path, json={"enabled": False})).json()
    resumed = (await clerk.patch(path, json={"enabled": True, "cron": "0 0 1 1 *"})).json()

    assert before["next_at"].endswith("-12-31T23:59:00.000Z")
    assert elsewhere["next_at"].endswith("-12-31T18:29:00.000Z")
    assert (paused["next_at"], paused["upcoming"]) == (None, [])
    assert resumed["next_at"].endswith("-12-31T18:30:00.000Z")


async def test_one_whose_zone_is_known_no_more_is_paused_and_comes_again_in_another(
    clerk: httpx2.AsyncClient, database_url: str
) -> None:
    schedule = await made(clerk, "/v1/schedules", a_schedule())
    path = f"/v1/schedules/{schedule['id']}"
    await let_sink(database_url)

    again = await clerk.patch(path, json={"cron": "0 9 * * *"})
    paused = (await clerk.patch(path, json={"enabled": False})).json()
    resumed = await clerk.patch(path, json={"enabled": True})
    elsewhere = (await clerk.patch(path, json={"enabled": True, "timezone": "UTC"})).json()

    assert refusal(again) == refusal(resumed) == (422, "invalid_request")
    assert resumed.json()["errors"][0]["pointer"] == "/timezone"
    assert NOWHERE in resumed.json()["detail"]
    assert (paused["version"], paused["timezone"], paused["next_at"]) == (2, NOWHERE, None)
    assert elsewhere["next_at"] == schedule["next_at"]


@pytest.mark.parametrize("changes", [{"run": None}, {"cron": None}, {"enabled": None}, {"id": "x"}])
async def test_a_change_that_does_not_fit_changes_nothing(
    clerk: httpx2.AsyncClient, changes: dict[str, Any]
) -> None:
    schedule = await made(clerk, "/v1/schedules", a_schedule())
    path = f"/v1/schedules/{schedule['id']}"

    assert refusal(await clerk.patch(path, json=changes)) == (422, "invalid_request")

    assert (await clerk.get(path)).json() == schedule


async def test_a_change_of_a_version_that_has_passed_is_refused(clerk: httpx2.AsyncClient) -> None:
    schedule = await made(clerk, "/v1/schedules", a_schedule())
    path, first = f"/v1/schedules/{schedule['id']}", {"if-match": '"1"'}
    await clerk.patch(path, json={"name": "x"}, headers=first)

    changed = await clerk.patch(path, json={"name": "y"}, headers=first)
    deleted = await clerk.delete(path, headers=first)

    assert refusal(changed) == refusal(deleted) == (412, "precondition_failed")
    assert (await clerk.get(path)).json()["name"] == "x"


async def test_a_deleted_schedule_is_gone(clerk: httpx2.AsyncClient) -> None:
    schedule = await made(clerk, "/v1/schedules", a_schedule())
    path = f"/v1/schedules/{schedule['id']}"

    assert (await clerk.delete(path)).status_code == 204

    assert refusal(await clerk.get(path)) == (404, "schedule_not_found")
    assert refusal(await clerk.delete(path)) == (404, "schedule_not_found")


async def test_who_did_what_is_written_down(acme: httpx2.AsyncClient) -> None:
    schedule = await made(acme, "/v1/schedules", a_schedule())
    path = f"/v1/schedules/{schedule['id']}"
    await acme.patch(path, json={"enabled": False})
    await acme.patch(path, json={"enabled": False})
    await acme.delete(path)

    acts = (await acme.get(f"/v1/audit?target={schedule['id']}&order=asc")).json()["data"]

    assert [act["action"] for act in acts] == [
        "schedule.created", "schedule.changed", "schedule.deleted",
    ]  # fmt: skip
    assert [act["details"]["enabled"] for act in acts] == [True, False, False]


# --- In whose name ---


async def test_it_is_made_for_whom_its_key_may_act(keyed: KeyedService, acme: object) -> None:
    run = {**RUN, "user": "bob"}
    async with with_key(keyed, ["runs:write", "runs:read"], "ann") as (ann, _):
        own = await made(ann, "/v1/schedules", a_schedule())
        others = await ann.post("/v1/schedules", json=a_schedule(run=run))
        changed = await ann.patch(f"/v1/schedules/{own['id']}", json={"run": run})

        assert refusal(others) == refusal(changed) == (403, "missing_scope")
        found = (await ann.get("/v1/schedules?user=ann")).json()["data"]
        assert [each["id"] for each in found] == [own["id"]]


async def test_its_runs_may_what_its_maker_may_and_not_what_who_renamed_it_may(
    keyed: KeyedService, acme: httpx2.AsyncClient, database_url: str
) -> None:
    async with with_key(keyed, ["runs:write"]) as (maker, maker_id):
        schedule = await made(maker, "/v1/schedules", a_schedule())
        renamed = await acme.patch(f"/v1/schedules/{schedule['id']}", json={"name": "x"})
        assert renamed.status_code == 200
        acts = (await acme.get(f"/v1/audit?target={schedule['id']}")).json()["data"]
        assert [act["details"]["made_by"] for act in acts] == [maker_id, maker_id]
        assert (await acme.delete(f"/v1/keys/{maker_id}")).status_code == 200
    await let_come(database_url)

    last = await come(acme, schedule["id"])

    assert (last["result"], last["code"], last["run_id"]) == ("refused", "invalid_key", None)
    assert maker_id in last["detail"]
    assert await runs_of(acme, schedule["id"]) == []


async def test_who_says_what_it_runs_answers_for_it_from_then_on(
    keyed: KeyedService, acme: httpx2.AsyncClient, database_url: str
) -> None:
    async with with_key(keyed, ["runs:write"]) as (maker, maker_id):
        schedule = await made(maker, "/v1/schedules", a_schedule())
    await acme.delete(f"/v1/keys/{maker_id}")
    taken_over = await acme.patch(f"/v1/schedules/{schedule['id']}", json={"run": RUN})
    assert taken_over.json()["version"] == 2
    await let_come(database_url)

    assert (await come(acme, schedule["id"]))["result"] == "started"


async def test_in_a_user_s_session_it_is_the_user_s(clerk: httpx2.AsyncClient) -> None:
    session = await made(clerk, "/v1/sessions", {"user": "ann"})
    run = {**RUN, "session_id": session["id"]}
    moved = await made(clerk, "/v1/schedules", a_schedule())
    for _ in range(2):  # And so it stays where the same is said again.
        answer = await clerk.patch(f"/v1/schedules/{moved['id']}", json={"run": run})
        assert answer.json()["version"] == 2

    schedule = await made(clerk, "/v1/schedules", a_schedule(run=run))

    found = (await clerk.get("/v1/schedules?user=ann&order=asc")).json()["data"]
    assert [each["id"] for each in found] == [moved["id"], schedule["id"]]


async def test_what_it_runs_sent_back_as_it_is_shown_changes_nothing(
    clerk: httpx2.AsyncClient,
) -> None:
    session = await made(clerk, "/v1/sessions", {"user": "ann"})
    run = {**RUN, "session_id": session["id"]}
    schedule = await made(clerk, "/v1/schedules", a_schedule(run=run))

    again = await clerk.patch(f"/v1/schedules/{schedule['id']}", json={"run": schedule["run"]})

    assert again.json() == schedule
    found = (await clerk.get("/v1/schedules?user=ann")).json()["data"]
    assert [each["id"] for each in found] == [schedule["id"]]


async def test_one_whose_session_is_gone_is_paused_as_it_is_shown(
    clerk: httpx2.AsyncClient,
) -> None:
    session = await made(clerk, "/v1/sessions", {"user": "ann"})
    run = {**RUN, "session_id": session["id"], "user": "ann"}
    schedule = await made(clerk, "/v1/schedules", a_schedule(run=run))
    path = f"/v1/schedules/{schedule['id']}"
    assert (await clerk.delete(f"/v1/sessions/{session['id']}")).is_success

    paused = await clerk.patch(path, json={"run": schedule["run"], "enabled": False})
    elsewhere = await clerk.patch(path, json={"run": {**run, "input": "What is 1 + 1?"}})

    assert (paused.status_code, paused.json()["enabled"]) == (200, False)
    assert refusal(elsewhere) == (404, "session_not_found")


# --- When its time has come ---


async def test_a_time_that_comes_makes_a_run_that_says_what_for(
    clerk: httpx2.AsyncClient, database_url: str
) -> None:
    run = {**RUN, "metadata": {"team": "a"}, "user": "ann", "priority": 3}
    schedule = await made(clerk, "/v1/schedules", a_schedule(run=run))
    await let_come(database_url)

    last = await come(clerk, schedule["id"])

    assert (last["result"], last["code"], last["detail"]) == ("started", None, None)
    ended = (await clerk.get(f"/v1/runs/{last['run_id']}/wait")).json()
    assert (ended["status"], ended["output"]["text"]) == ("completed", "2 + 3 = 5.")
    assert (ended["user"], ended["agent"]) == ("ann", "clerk")
    told = {"schedule_id": schedule["id"], "scheduled_for": last["scheduled_for"], "team": "a"}
    assert ended["metadata"] == told
    assert [each["id"] for each in await runs_of(clerk, schedule["id"])] == [last["run_id"]]
    used = (await clerk.get("/v1/usage?group_by=metadata.schedule_id")).json()["data"]
    assert [each["metadata.schedule_id"] for each in used] == [schedule["id"]]
    after = (await clerk.get(f"/v1/schedules/{schedule['id']}")).json()
    assert after["next_at"] == schedule["next_at"], "New Year's Eve again"
    assert (after["version"], after["updated_at"]) == (1, schedule["updated_at"])


async def test_in_its_session_each_run_knows_the_one_before(
    clerk: httpx2.AsyncClient, database_url: str
) -> None:
    session = await made(clerk, "/v1/sessions", {})
    schedule = await made(
        clerk, "/v1/schedules", a_schedule(run={**RUN, "session_id": session["id"]})
    )
    await let_come(database_url)
    last = await come(clerk, schedule["id"])
    await clerk.get(f"/v1/runs/{last['run_id']}/wait")

    said = (await clerk.get(f"/v1/sessions/{session['id']}/messages")).json()["data"]

    assert said[0]["role"] == "user"
    assert {each["run_id"] for each in said} == {last["run_id"]}


async def test_a_user_s_export_has_their_schedules(clerk: httpx2.AsyncClient) -> None:
    schedule = await made(clerk, "/v1/schedules", a_schedule(run={**RUN, "user": "ann"}))
    await made(clerk, "/v1/schedules", a_schedule())

    exported = await clerk.get("/v1/users/ann/export")

    assert schedule["id"] in exported.text
    assert exported.text.count('"sch_') == 1
