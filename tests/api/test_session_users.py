"""Runs in a session that belongs to somebody: whose they are."""

from typing import Any

import httpx2
import pytest

from tests.api.making import an_agent, an_ended_run, made
from tests.api.serving import KeyedService


@pytest.fixture
async def anns(client: httpx2.AsyncClient) -> str:
    """A session of Ann's, beside an agent that can talk in it."""
    await made(client, "/v1/agents", an_agent())
    return str((await made(client, "/v1/sessions", {"user": "ann"}))["id"])


async def first_event(client: httpx2.AsyncClient, run_id: str) -> dict[str, Any]:
    """Return what the run's log begins with."""
    answer = await client.get(f"/v1/runs/{run_id}/events", headers={"accept": "application/json"})
    event: dict[str, Any] = answer.json()["data"][0]["data"]
    return event


async def test_a_run_that_names_nobody_is_the_sessions_users(
    client: httpx2.AsyncClient, anns: str
) -> None:
    run = await an_ended_run(client, session_id=anns)

    listed = (await client.get("/v1/runs", params={"user": "ann"})).json()["data"]
    used = (await client.get("/v1/usage", params={"group_by": "user"})).json()["data"]
    assert run["user"] == "ann"
    assert (await first_event(client, run["id"]))["user"] == "ann"
    assert [each["id"] for each in listed] == [run["id"]]
    assert [each["user"] for each in used] == ["ann"]


async def test_so_is_one_that_replaces_another_or_comes_later(
    client: httpx2.AsyncClient, anns: str
) -> None:
    later = {"agent": "clerk", "input": "Later", "session_id": anns, "delay_s": 3_600}
    scheduled = await made(client, "/v1/runs", later)
    rash = await an_ended_run(client, session_id=anns, if_active="interrupt")

    assert (scheduled["user"], rash["user"]) == ("ann", "ann")


async def test_a_run_that_names_another_user_is_that_ones(
    client: httpx2.AsyncClient, anns: str
) -> None:
    run = await an_ended_run(client, session_id=anns, user="bob")

    assert run["user"] == "bob"


async def test_a_run_in_nobodys_session_is_nobodys(client: httpx2.AsyncClient, anns: str) -> None:
    session = await made(client, "/v1/sessions", {})
    run = await an_ended_run(client, session_id=session["id"])

    assert anns
    assert run["user"] is None


async def test_a_key_that_may_not_act_for_others_does_not_by_way_of_their_session(
    keyed: KeyedService,
) -> None:
    await made(keyed.acme, "/v1/agents", an_agent())
    session = await made(keyed.acme, "/v1/sessions", {"user": "ann"})
    clients = {
        "nobody": await keyed.holding("runs:read", "runs:write"),
        "bob": await keyed.holding("runs:read", "runs:write", subject="bob"),
        "anybody": await keyed.holding("runs:read", "runs:write", "users:act_as"),
    }

    users = {
        name: (await an_ended_run(client, session_id=session["id"]))["user"]
        for name, client in clients.items()
    }

    assert users == {"nobody": None, "bob": "bob", "anybody": "ann"}
