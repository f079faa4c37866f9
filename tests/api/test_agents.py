"""`/v1/agents`: definitions, their versions, and what they may name."""

import asyncio
from typing import Any

import httpx2

from tests.api.making import an_agent, an_ended_run, made, refusal

UNFIT: dict[str, dict[str, Any]] = {
    "/model": {"model": "gpt"},
    "/name": {"name": "no spaces"},
    "/tools": {"tools": ["add", "add"]},
    "/limits/max_steps": {"limits": {"max_steps": 0}},
    "/limits/steps": {"limits": {"steps": 3}},
    "/policy/allow": {"policy": {"allow": "add"}},
    "/cache/ttl_s": {"cache": {"ttl_s": "300"}},
    "/metadata/n": {"metadata": {"n": 1}},
    "/temperature": {"temperature": 1},
}


async def test_an_agent_is_created_at_its_first_version(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/agents", json=an_agent(metadata={"team": "a"}))

    agent = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/agents/{agent['id']}"
    assert answer.headers["etag"] == '"1"'
    assert agent["id"].startswith("agt_")
    assert (agent["name"], agent["version"], agent["policy"]) == ("clerk", 1, None)
    assert agent["limits"]["max_steps"] == 6
    assert agent["metadata"] == {"team": "a"}


async def test_an_agent_is_found_by_its_name_and_by_its_id(client: httpx2.AsyncClient) -> None:
    agent = await made(client, "/v1/agents", an_agent())

    by_name = await client.get("/v1/agents/clerk")
    by_id = await client.get(f"/v1/agents/{agent['id']}")

    assert by_name.json() == by_id.json() == agent
    assert by_id.headers["etag"] == '"1"'


async def test_an_agent_that_is_not_there_is_a_404(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/agents/nobody")

    assert refusal(answer) == (404, "agent_not_found")


async def test_a_name_is_taken_once(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())

    answer = await client.post("/v1/agents", json=an_agent(instructions="Another."))

    assert refusal(answer) == (409, "agent_exists")


async def test_unknown_tools_are_refused_by_name(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/agents", json=an_agent(tools=["add", "fly", "swim"]))

    assert refusal(answer) == (422, "unknown_tool")
    assert "'fly', 'swim'" in answer.json()["detail"]
    assert answer.json()["errors"][0]["pointer"] == "/tools/1"


async def test_an_unknown_provider_is_refused_by_name(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/agents", json=an_agent(model="oracle/delphi"))

    assert refusal(answer) == (422, "unknown_provider")
    assert "'oracle'" in answer.json()["detail"]
    assert answer.json()["errors"][0]["pointer"] == "/model"


async def test_what_does_not_fit_is_pointed_at(client: httpx2.AsyncClient) -> None:
    answers = {
        pointer: await client.post("/v1/agents", json=an_agent(**change))
        for pointer, change in UNFIT.items()
    }

    assert {refusal(answer) for answer in answers.values()} == {(422, "invalid_request")}
    for pointer, answer in answers.items():
        assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]


async def test_a_patch_changes_what_it_names_and_makes_a_version(
    client: httpx2.AsyncClient,
) -> None:
    await made(client, "/v1/agents", an_agent(instructions="Be brief.", limits={"max_steps": 3}))

    answer = await client.patch("/v1/agents/clerk", json={"policy": {"deny": ["send_*"]}})

    changed = answer.json()
    assert (answer.status_code, answer.headers["etag"], changed["version"]) == (200, '"2"', 2)
    assert changed["policy"] == {"deny": ["send_*"], "ask": [], "allow": []}
    assert (changed["instructions"], changed["limits"]["max_steps"]) == ("Be brief.", 3)


async def test_a_patch_leaves_what_an_agent_remembers(client: httpx2.AsyncClient) -> None:
    memory = {"extract": {"model": "openai/gpt-5-nano"}, "recall": {"scopes": ["user"]}}
    await made(client, "/v1/agents", an_agent(memory=memory))

    answer = await client.patch("/v1/agents/clerk", json={"instructions": "Be brief."})

    assert answer.status_code == 200, answer.text
    assert answer.json()["memory"]["recall"]["scopes"] == ["user"]


async def test_what_is_asked_of_the_agent_s_own_model_is_asked_of_the_one_that_it_gets(
    client: httpx2.AsyncClient,
) -> None:
    parts = {
        "model": "demo/assistant",
        "compression": {"threshold_chars": 500},
        "memory": {"summarize": {}, "extract": {"model": "demo/other"}},
        "guardrails": {"coherence": {}},
    }
    await made(client, "/v1/agents", an_agent(**parts))

    answer = await client.patch("/v1/agents/clerk", json={"model": "demo/large"})

    changed = answer.json()
    assert answer.status_code == 200, answer.text
    assert changed["compression"] == {"model": "demo/large", "threshold_chars": 500}
    assert changed["memory"]["summarize"]["model"] == "demo/large"
    assert changed["memory"]["extract"]["model"] == "demo/other"
    assert changed["guardrails"]["coherence"]["model"] == "demo/large"


async def test_a_patch_of_the_model_leaves_parts_that_are_not_there(
    client: httpx2.AsyncClient,
) -> None:
    parts = {
        "model": "demo/assistant",
        "guardrails": {"output": []},
        "memory": {"window": {"messages": 5}},
    }
    before = await made(client, "/v1/agents", an_agent(**parts))

    answer = await client.patch("/v1/agents/clerk", json={"model": "demo/large"})

    unchanged = ("compression", "memory", "guardrails")
    assert answer.status_code == 200, answer.text
    assert [answer.json()[name] for name in unchanged] == [before[name] for name in unchanged]


async def test_a_patch_with_null_takes_a_policy_away(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent(policy={"allow": ["add"]}))

    answer = await client.patch("/v1/agents/clerk", json={"policy": None})

    assert answer.json()["policy"] is None


async def test_a_patch_that_changes_nothing_makes_no_version(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())

    answer = await client.patch("/v1/agents/clerk", json={"tools": ["add", "send_email"]})

    assert (answer.status_code, answer.json()["version"]) == (200, 1)


async def test_what_a_patch_leads_to_is_checked_as_a_whole(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())

    unknown = await client.patch("/v1/agents/clerk", json={"tool": ["add"]})
    missing = await client.patch("/v1/agents/clerk", json={"tools": ["fly"]})
    no_object = await client.patch("/v1/agents/clerk", json=["tools"])

    assert refusal(unknown) == (422, "invalid_request")
    assert unknown.json()["errors"][0]["pointer"] == "/tool"
    assert refusal(missing) == (422, "unknown_tool")
    assert refusal(no_object) == (422, "invalid_request")


async def test_an_agent_keeps_its_name(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())

    answer = await client.patch("/v1/agents/clerk", json={"name": "teller"})

    assert refusal(answer) == (422, "name_is_fixed")


async def test_a_patch_of_a_version_that_is_past_is_refused(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())
    await client.patch("/v1/agents/clerk", json={"instructions": "One."})

    late = await client.patch(
        "/v1/agents/clerk", json={"instructions": "Two."}, headers={"if-match": '"1"'}
    )
    timely = await client.patch(
        "/v1/agents/clerk", json={"instructions": "Two."}, headers={"if-match": '"7", "2"'}
    )

    assert refusal(late) == (412, "precondition_failed")
    assert (timely.status_code, timely.json()["version"]) == (200, 3)


async def test_a_weak_tag_never_matches_and_a_star_always_does(
    client: httpx2.AsyncClient,
) -> None:
    await made(client, "/v1/agents", an_agent())

    weak = await client.delete("/v1/agents/clerk", headers={"if-match": 'W/"1"'})
    star = await client.delete("/v1/agents/clerk", headers={"if-match": "*"})

    assert refusal(weak) == (412, "precondition_failed")
    assert star.status_code == 204


async def test_patches_at_the_same_time_all_count(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())
    changes: list[dict[str, object]] = [
        {"instructions": "Be brief."},
        {"metadata": {"team": "a"}},
        {"limits": {"max_steps": 2}},
    ]

    answers = await asyncio.gather(
        *(client.patch("/v1/agents/clerk", json=change) for change in changes)
    )

    agent = (await client.get("/v1/agents/clerk")).json()
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert (agent["version"], agent["instructions"]) == (4, "Be brief.")
    assert (agent["metadata"], agent["limits"]["max_steps"]) == ({"team": "a"}, 2)


async def test_patches_of_one_version_at_the_same_time_let_one_win(
    client: httpx2.AsyncClient,
) -> None:
    await made(client, "/v1/agents", an_agent())

    answers = await asyncio.gather(
        *(
            client.patch(
                "/v1/agents/clerk", json={"instructions": f"{n}"}, headers={"if-match": '"1"'}
            )
            for n in range(4)
        )
    )

    assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412]


async def test_all_versions_of_an_agent_can_be_read(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent(instructions="0"))
    for n in range(1, 4):
        await client.patch("/v1/agents/clerk", json={"instructions": f"{n}"})

    first = (await client.get("/v1/agents/clerk/versions?limit=3")).json()
    rest = (await client.get("/v1/agents/clerk/versions?limit=3&after=2")).json()

    shown = [(each["version"], each["instructions"]) for each in first["data"] + rest["data"]]
    assert shown == [(4, "3"), (3, "2"), (2, "1"), (1, "0")]
    assert (first["next_cursor"], rest["has_more"]) == ("2", False)


async def test_a_cursor_that_is_no_version_is_refused(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())

    answer = await client.get("/v1/agents/clerk/versions?after=two")

    assert refusal(answer) == (400, "bad_cursor")


async def test_a_deleted_agent_is_gone_and_its_name_is_free(client: httpx2.AsyncClient) -> None:
    former = await made(client, "/v1/agents", an_agent())

    answer = await client.delete("/v1/agents/clerk")

    assert (answer.status_code, answer.content) == (204, b"")
    assert refusal(await client.get(f"/v1/agents/{former['id']}")) == (404, "agent_not_found")
    assert refusal(await client.delete("/v1/agents/clerk")) == (404, "agent_not_found")
    assert (await made(client, "/v1/agents", an_agent()))["id"] != former["id"]


async def test_a_deleted_agent_starts_no_runs_and_those_it_had_stay(
    client: httpx2.AsyncClient,
) -> None:
    await made(client, "/v1/agents", an_agent())
    run = await an_ended_run(client)
    await client.delete("/v1/agents/clerk")

    answer = await client.post("/v1/runs", json={"agent": "clerk", "input": "hi"})

    assert refusal(answer) == (404, "agent_not_found")
    assert (await client.get(f"/v1/runs/{run['id']}")).json() == run


async def test_a_run_says_which_version_it_went_by(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())
    before = await an_ended_run(client)
    await client.patch("/v1/agents/clerk", json={"instructions": "Be brief."})

    after = await an_ended_run(client)

    assert (before["agent_version"], after["agent_version"]) == (1, 2)


async def test_agents_are_listed_newest_first_in_pages(client: httpx2.AsyncClient) -> None:
    for name in ("one", "two", "three"):
        await made(client, "/v1/agents", an_agent(name=name))

    first = (await client.get("/v1/agents?limit=2")).json()
    rest = (await client.get(f"/v1/agents?limit=2&after={first['next_cursor']}")).json()

    assert [agent["name"] for agent in first["data"]] == ["three", "two"]
    assert [agent["name"] for agent in rest["data"]] == ["one", "demo"]


async def test_agents_are_found_by_metadata_and_time(client: httpx2.AsyncClient) -> None:
    one = await made(client, "/v1/agents", an_agent(name="one", metadata={"team": "a b"}))
    await made(client, "/v1/agents", an_agent(name="two", metadata={"team": "b"}))

    by_metadata = (await client.get("/v1/agents", params={"metadata[team]": "a b"})).json()
    before = (await client.get(f"/v1/agents?created_before={one['created_at']}")).json()

    assert [agent["name"] for agent in by_metadata["data"]] == ["one"]
    assert [agent["name"] for agent in before["data"]] == ["demo"]


async def test_a_repeated_request_makes_one_agent(client: httpx2.AsyncClient) -> None:
    key = {"idempotency-key": "k1"}
    first = await client.post("/v1/agents", json=an_agent(), headers=key)

    again = await client.post("/v1/agents", json=an_agent(), headers=key)

    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert "idempotency-replayed" not in first.headers


async def test_a_repeated_request_is_answered_though_a_tool_of_the_agent_is_gone_by_now(
    client: httpx2.AsyncClient,
) -> None:
    key, body = {"idempotency-key": "k1"}, an_agent(tools=["click"])
    tool = {"name": "click", "description": "Click.", "parameters": {"type": "object"}}
    source = {"name": "screen", "kind": "client", "tools": [tool]}
    kept = await made(client, "/v1/tool_sources", source)
    first = await client.post("/v1/agents", json=body, headers=key)
    await client.delete(f"/v1/tool_sources/{kept['id']}")

    again = await client.post("/v1/agents", json=body, headers=key)

    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"


async def test_an_idempotency_key_is_for_one_request(client: httpx2.AsyncClient) -> None:
    key = {"idempotency-key": "k1"}
    await client.post("/v1/agents", json=an_agent(), headers=key)

    answer = await client.post("/v1/agents", json=an_agent(name="other"), headers=key)

    assert refusal(answer) == (422, "idempotency_key_reused")


async def test_a_request_that_failed_may_be_repeated_with_its_key(
    client: httpx2.AsyncClient,
) -> None:
    key = {"idempotency-key": "k1"}
    await made(client, "/v1/agents", an_agent())
    refused = await client.post("/v1/agents", json=an_agent(), headers=key)
    await client.delete("/v1/agents/clerk")

    answer = await client.post("/v1/agents", json=an_agent(), headers=key)

    assert refusal(refused) == (409, "agent_exists")
    assert (answer.status_code, "idempotency-replayed" in answer.headers) == (201, False)


async def test_the_same_request_many_times_at_once_makes_one_agent(
    client: httpx2.AsyncClient,
) -> None:
    key = {"idempotency-key": "k1"}

    answers = await asyncio.gather(
        *(client.post("/v1/agents", json=an_agent(), headers=key) for _ in range(5))
    )

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
