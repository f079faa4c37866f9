"""The fourth journey: afterwards, what was done, how long it took, and what it cost."""

from tests.journeys.processes import Installation


async def test_trace_and_usage_tell_what_the_run_did(installation: Installation) -> None:
    server = await installation.start()
    run = await server.create('call look_up {"order": 7}', metadata={"team": "blue"})
    await server.whole(run["id"])

    trace = (await server.http.get(f"/v1/runs/{run['id']}/trace")).json()
    listed = (await server.http.get("/v1/traces", params={"tool": "look_up"})).json()
    usage = (await server.http.get("/v1/usage", params={"group_by": "agent,model"})).json()

    assert [span["kind"] for span in trace["spans"]] == [
        "invoke_agent", "chat", "execute_tool", "chat",
    ]  # fmt: skip
    assert [row["run_id"] for row in listed["data"]] == [run["id"]]
    [row] = usage["data"]
    assert (row["agent"], row["model"]) == ("clerk", "openai/directed")
    assert (row["input_tokens"], row["output_tokens"]) == (20, 10)
    assert row["unpriced_calls"] == 2


async def test_runs_are_found_by_what_they_were_labelled_with(installation: Installation) -> None:
    server = await installation.start()
    wanted = await server.create("hello", metadata={"team": "blue"})
    await server.create("hello", metadata={"team": "red"})

    found = (await server.http.get("/v1/runs", params={"metadata[team]": "blue"})).json()

    assert [run["id"] for run in found["data"]] == [wanted["id"]]
