"""`/v1/runs/{id}/tool_results`: the client runs a tool and brings what came of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from milepost.live.hub import QUEUE_BELL
from tests.api.asking import ended, events
from tests.api.making import made, refusal
from tests.api.serving import serving, serving_tenants, settings_for
from tests.stubs.directed_model import DirectedModel, directed_model

TOOLS = """
[[client_tools]]
name = "look"
description = "Look at the screen of the user."
parameters = { type = "object", properties = { where = { type = "string" } } }

[[client_tools]]
name = "sign"
description = "Have the user sign; this ends the run."
terminal = true
parameters = { type = "object" }

[[client_tools]]
name = "open_door"
description = "Open the door."
requires_approval = true
parameters = { type = "object" }
"""
AGENT = {
    "name": "clerk",
    "model": "openai/directed",
    "tools": ["add", "look", "sign", "open_door"],
}
LOOK = 'call look {"where": "top"}'
YES = {"decision": "approve"}


@pytest.fixture
async def model() -> AsyncIterator[DirectedModel]:
    """A model that calls what the user says."""
    async with directed_model() as model:
        yield model


def settings(database_url: str, model: DirectedModel, folder: Path, **changes: Any) -> Any:
    """Return settings of a service that has tools of the client's."""
    path = folder / "tools.toml"
    path.write_text(TOOLS)
    given = {"tools": str(path), "OPENAI_BASE_URL": model.base_url, **changes}
    return settings_for(database_url, **given)


@pytest.fixture
async def client(
    database_url: str, model: DirectedModel, tmp_path: Path
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a service whose agent has tools that the client runs."""
    once = settings(database_url, model, tmp_path)
    async with serving(once) as service, service.client() as client:
        await made(client, "/v1/agents", AGENT)
        yield client


async def waiting(client: httpx2.AsyncClient, said: str = LOOK) -> dict[str, Any]:
    """Start a run, follow it to where it waits for the client, and return it."""
    run = await made(client, "/v1/runs", {"agent": "clerk", "input": said})
    await client.get(f"/v1/runs/{run['id']}/events?until=waiting")
    shown: dict[str, Any] = (await client.get(f"/v1/runs/{run['id']}")).json()
    assert shown["status"] == "waiting", shown
    return shown


async def bring(
    client: httpx2.AsyncClient, run: dict[str, Any], *results: dict[str, Any], **more: Any
) -> httpx2.Response:
    """Send what came of calls."""
    body = {"results": [*results]}
    return await client.post(f"/v1/runs/{run['id']}/tool_results", json=body, **more)


async def test_a_call_of_the_client_s_waits_holds_no_worker_and_goes_on_with_the_answer(
    client: httpx2.AsyncClient,
) -> None:
    run = await waiting(client)
    busy = (await client.get("/v1/queue")).json()["slots"]["busy"]

    answer = await bring(client, run, {"call_id": "call_1_0", "result": {"seen": "a cat"}})

    over = await ended(client, run["id"])
    log = await events(client, run["id"])
    (completed,) = [e["data"] for e in log if e["type"] == "tool_call.completed"]
    (resumed,) = [e["data"] for e in log if e["type"] == "run.resumed"]
    assert run["waiting_for"] == {"for": "client_tool", "pending": ["call_1_0"]}
    assert busy == 0
    assert (answer.status_code, answer.json()["id"]) == (200, run["id"])
    assert over["output"]["text"].strip() == 'said: {"seen":"a cat"}'
    assert completed["result"] == {"seen": "a cat"}
    assert completed["duration_ms"] >= 0
    assert resumed["why"] == "client_tool"


async def test_an_error_of_the_client_s_is_told_to_the_model(client: httpx2.AsyncClient) -> None:
    run = await waiting(client)

    await bring(client, run, {"call_id": "call_1_0", "error": "the user looked away"})

    over = await ended(client, run["id"])
    assert over["output"]["text"].strip() == "said: Error (tool_failed): the user looked away"


@pytest.mark.parametrize("result", [None, 0, "", [1, {"a": None}], "x" * 200_000])
async def test_a_result_may_be_any_json_and_a_long_one_is_cut(
    client: httpx2.AsyncClient, result: Any
) -> None:
    run = await waiting(client)

    answer = await bring(client, run, {"call_id": "call_1_0", "result": result})

    await ended(client, run["id"])
    log = await events(client, run["id"])
    (completed,) = [e["data"] for e in log if e["type"] == "tool_call.completed"]
    assert answer.status_code == 200
    if isinstance(result, str) and result:
        assert completed["result"].startswith("x" * 1_000)
        assert "cut" in completed["result"][-100:]
    else:
        assert completed["result"] == result


async def test_calls_are_answered_one_by_one_and_the_run_waits_for_the_last(
    client: httpx2.AsyncClient,
) -> None:
    run = await waiting(client, f"{LOOK}\n{LOOK}\ncall add {{}}".replace("{}", '{"a": 1, "b": 2}'))

    seen = len(await events(client, run["id"]))
    await bring(client, run, {"call_id": "call_1_0", "result": "one"})
    await client.get(f"/v1/runs/{run['id']}/events?until=waiting&after={seen}")
    await bring(client, run, {"call_id": "call_1_1", "result": "two"})

    over = await ended(client, run["id"])
    assert run["waiting_for"]["pending"] == ["call_1_0", "call_1_1"]
    assert over["output"]["text"].strip() == "said: one two 3"


async def test_several_calls_are_answered_together(client: httpx2.AsyncClient) -> None:
    run = await waiting(client, f"{LOOK}\n{LOOK}")

    answers = [{"call_id": f"call_1_{number}", "result": number} for number in range(2)]
    await bring(client, run, *answers)

    assert (await ended(client, run["id"]))["output"]["text"].strip() == "said: 0 1"


async def test_an_answer_that_comes_too_late_has_the_queue_looked_at_again(
    database_url: str, model: DirectedModel, tmp_path: Path
) -> None:
    """It held the run's row, which a worker that looks just then passes over."""
    async with (
        serving(settings(database_url, model, tmp_path)) as service,
        service.client() as client,
    ):
        await made(client, "/v1/agents", AGENT)
        run = await waiting(client)
        await bring(client, run, {"call_id": "call_1_0", "result": "cat"})
        await ended(client, run["id"])

        with service.app._parts.ports.hub.bell(QUEUE_BELL) as rung:
            late = await bring(client, run, {"call_id": "call_1_0", "result": "dog"})

            assert refusal(late) == (409, "call_answered")
            assert rung.is_set()


async def test_the_first_answer_counts_and_the_same_again_is_fine(
    client: httpx2.AsyncClient,
) -> None:
    run = await waiting(client)
    mine = {"call_id": "call_1_0", "result": "cat"}
    await bring(client, run, mine)

    at_once = await bring(client, run, mine)
    await ended(client, run["id"])
    later = await bring(client, run, mine)
    other = await bring(client, run, {"call_id": "call_1_0", "result": "dog"})

    log = await events(client, run["id"])
    assert (at_once.status_code, later.status_code) == (200, 200)
    assert refusal(other) == (409, "call_answered")
    assert other.json()["tool_result"] == mine
    assert sum(event["type"] == "tool_call.completed" for event in log) == 1


async def test_rivals_are_told_which_answer_counts(client: httpx2.AsyncClient) -> None:
    run = await waiting(client)

    answers = await asyncio.gather(
        *(bring(client, run, {"call_id": "call_1_0", "result": number}) for number in range(4))
    )

    over = await ended(client, run["id"])
    (won,) = [answer for answer in answers if answer.status_code == 200]
    winner = over["output"]["text"].split()[-1]
    lost = [answer.json() for answer in answers if answer is not won]
    assert {problem["code"] for problem in lost} == {"call_answered"}
    assert {str(problem["tool_result"]["result"]) for problem in lost} == {winner}


async def test_all_answers_of_a_request_count_or_none(client: httpx2.AsyncClient) -> None:
    run = await waiting(client)
    good = {"call_id": "call_1_0", "result": 1}

    refused = await bring(client, run, good, {"call_id": "call_9_9", "result": 2})

    still = (await client.get(f"/v1/runs/{run['id']}")).json()
    assert refusal(refused) == (404, "call_not_found")
    assert still["status"] == "waiting"


async def test_a_call_of_the_service_s_is_not_the_client_s_to_answer(
    client: httpx2.AsyncClient,
) -> None:
    run = await waiting(client, LOOK + '\ncall add {"a": 1, "b": 2}')

    refused = await bring(client, run, {"call_id": "call_1_1", "result": 4})

    assert refusal(refused) == (409, "call_not_awaited")


async def test_a_call_that_waits_for_a_yes_cannot_be_answered_before(
    client: httpx2.AsyncClient,
) -> None:
    run = await waiting(client, "call open_door {}")
    early = await bring(client, run, {"call_id": "call_1_0", "result": "open"})
    (asked,) = (await client.get(f"/v1/approvals?run_id={run['id']}")).json()["data"]
    seen = len(await events(client, run["id"]))
    await client.post(f"/v1/approvals/{asked['id']}/decision", json={"decision": "approve"})
    await client.get(f"/v1/runs/{run['id']}/events?until=waiting&after={seen}")

    answer = await bring(client, run, {"call_id": "call_1_0", "result": "open"})

    assert refusal(early) == (409, "call_not_awaited")
    assert answer.status_code == 200
    assert (await ended(client, run["id"]))["output"]["text"].strip() == "said: open"


async def test_a_terminal_tool_of_the_client_s_ends_the_run(client: httpx2.AsyncClient) -> None:
    run = await waiting(client, "call sign {}")

    await bring(client, run, {"call_id": "call_1_0", "result": "signed by Ann"})

    over = await ended(client, run["id"])
    assert (over["output"]["text"], over["finish_reason"]) == ("signed by Ann", "terminal")


async def test_a_run_that_was_cancelled_takes_no_answer(client: httpx2.AsyncClient) -> None:
    run = await waiting(client)
    await client.post(f"/v1/runs/{run['id']}/cancel")
    await ended(client, run["id"])

    refused = await bring(client, run, {"call_id": "call_1_0", "result": "late"})

    assert refusal(refused) == (409, "call_answered")
    assert "error" in refused.json()["tool_result"]


@pytest.mark.parametrize(
    "results",
    [
        [],
        [{"call_id": "call_1_0"}],
        [{"call_id": "call_1_0", "result": 1, "error": "both"}],
        [{"call_id": "call_1_0", "error": ""}],
        [{"call_id": "call_1_0", "result": 1}, {"call_id": "call_1_0", "result": 1}],
        [{"call_id": "call_1_0", "result": 1, "why": "unknown"}],
        [{"call_id": "call_1_0", "error": "x" * 2_001}],
    ],
)
async def test_an_answer_that_is_none_is_refused(
    client: httpx2.AsyncClient, results: list[dict[str, Any]]
) -> None:
    refused = await bring(client, {"id": "run_0"}, *results)

    assert refused.status_code == 422, refused.text


async def test_a_repeated_request_is_answered_without_a_second_effect(
    client: httpx2.AsyncClient,
) -> None:
    run = await waiting(client)
    key = {"idempotency-key": "once"}
    mine = {"call_id": "call_1_0", "result": "cat"}

    first = await bring(client, run, mine, headers=key)
    second = await bring(client, run, mine, headers=key)

    assert (first.status_code, second.status_code) == (200, 200)
    assert second.headers["idempotency-replayed"] == "true"


async def test_another_tenant_s_run_does_not_exist_and_reading_is_not_enough(
    database_url: str, model: DirectedModel, tmp_path: Path
) -> None:
    async with serving_tenants(settings(database_url, model, tmp_path)) as keyed:
        await made(keyed.acme, "/v1/agents", AGENT)
        run = await waiting(keyed.acme)
        reader = await keyed.holding("runs:read")
        mine = {"call_id": "call_1_0", "result": 1}

        foreign = await bring(keyed.globex, run, mine)
        unable = await bring(reader, run, mine)

        assert refusal(foreign) == (404, "run_not_found")
        assert refusal(unable) == (403, "missing_scope")


async def test_what_waits_for_the_client_outlives_its_process_and_so_does_an_unread_answer(
    database_url: str, model: DirectedModel, tmp_path: Path
) -> None:
    """The answer comes while no worker is there, as after a crash of all that could read it."""
    once = settings(database_url, model, tmp_path)
    async with serving(once) as service, service.client() as client:
        await made(client, "/v1/agents", AGENT)
        run = await waiting(client)

    none = settings(database_url, model, tmp_path, slots=0)
    async with serving(none) as deaf, deaf.client() as client:
        brought = await bring(client, run, {"call_id": "call_1_0", "result": "cat"})
        unread = await bring(client, run, {"call_id": "call_1_0", "result": "dog"})

    async with serving(once) as service, service.client() as client:
        over = await ended(client, run["id"])

    assert brought.json()["status"] == "queued"
    assert refusal(unread) == (409, "call_answered")
    assert over["output"]["text"].strip() == "said: cat"


async def test_an_answer_that_comes_while_a_sibling_still_runs_is_read_by_the_same_worker(
    client: httpx2.AsyncClient,
) -> None:
    run = await made(client, "/v1/runs", {"agent": "clerk", "input": LOOK, "stream": False})
    async with client.stream("GET", f"/v1/runs/{run['id']}/events") as stream:
        async for line in stream.aiter_lines():
            if line == "event: tool_call.started":
                break
    answer = await bring(client, run, {"call_id": "call_1_0", "result": "quick"})

    assert answer.status_code == 200
    assert (await ended(client, run["id"]))["output"]["text"].strip() == "said: quick"


async def test_a_fork_s_calls_are_the_client_s_as_well(client: httpx2.AsyncClient) -> None:
    parent = await waiting(client)
    seqs = {event["type"]: event["seq"] for event in await events(client, parent["id"])}
    asked, begun = seqs["tool_call.requested"], seqs["tool_call.started"]
    path = f"/v1/runs/{parent['id']}/fork"

    anew = await made(client, path, {"at_seq": asked})
    await client.get(f"/v1/runs/{anew['id']}/events?until=waiting")
    early = await bring(client, anew, {"call_id": "call_1_0", "result": "a dog"})
    [question] = (await client.get(f"/v1/approvals?run_id={anew['id']}")).json()["data"]
    seen = len(await events(client, anew["id"]))
    yes = await client.post(f"/v1/approvals/{question['id']}/decision", json=YES)
    await client.get(f"/v1/runs/{anew['id']}/events?until=waiting&after={seen}")
    brought = await bring(client, anew, {"call_id": "call_1_0", "result": "a cat"})
    unknown = await made(client, path, {"at_seq": begun})

    assert refusal(early) == (409, "call_not_awaited")
    assert "has made this very call" in question["reason"]
    assert (yes.status_code, brought.status_code) == (200, 200)
    assert "a cat" in (await ended(client, anew["id"]))["output"]["text"]
    assert "outcome_unknown" in (await ended(client, unknown["id"]))["output"]["text"]


async def test_an_answer_that_a_guardrail_rewrote_is_known_again_by_its_key_alone(
    client: httpx2.AsyncClient,
) -> None:
    rails = {"tool_results": [{"type": "pii"}]}
    assert (await client.patch("/v1/agents/clerk", json={"guardrails": rails})).is_success
    run = await waiting(client)
    key, seen = {"idempotency-key": "once"}, {"call_id": "call_1_0", "result": "ann@example.com"}
    assert (await bring(client, run, seen, headers=key)).status_code == 200
    await ended(client, run["id"])

    again, unkeyed = await bring(client, run, seen, headers=key), await bring(client, run, seen)

    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert refusal(unkeyed) == (409, "call_answered")
    assert "ann@example.com" not in unkeyed.text
