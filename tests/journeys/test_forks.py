"""Forks of a real run at every one of its events: nothing from before happens again."""

from typing import Any

from tests.journeys.processes import Event, Installation, Server, assert_sound, durable, types
from tests.journeys.test_crash import ledger

SAID = 'call charge {"amount": 5}\ncall look_up {"order": 1}\ncall reserve {"seat": "4A"}'
ACTS = ("charge", "reserve")


async def forked(server: Server, run_id: str, at_seq: int, **fields: Any) -> dict[str, Any]:
    """Fork the run behind the event."""
    answer = await server.http.post(f"/v1/runs/{run_id}/fork", json={"at_seq": at_seq, **fields})
    assert answer.status_code == 202, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def ended(server: Server, run_id: str, decision: str) -> tuple[list[Event], list[str]]:
    """Answer all that the run asks until it ends; return its log and what it asked about."""
    events, asked = [], []
    async for event in server.events(run_id):
        events.append(event)
        if event.type == "approval.requested":
            question = event.data["data"]
            assert "has made this very call at its event" in question["policy"]
            asked.append(str(question["tool"]))
            answer = await server.decide(question["approval_id"], decision=decision)
            assert answer.is_success, answer.text
    return durable(events), asked


def acts_of(installation: Installation, run_id: str) -> list[str]:
    """Return what the tools did for the run."""
    return [entry[0] for entry in ledger(installation.folder) if entry[1] == run_id]


async def test_a_fork_at_every_event_repeats_nothing_and_does_nothing_unasked(
    installation: Installation,
) -> None:
    server = await installation.start()
    parent = await server.create(SAID)
    log = durable(await server.whole(parent["id"]))
    begun = {
        event.data["data"]["call_id"]: seq
        for seq, event in enumerate(log, start=1)
        if event.type == "tool_call.started"
    }
    done = {
        event.data["data"]["call_id"]: seq
        for seq, event in enumerate(log, start=1)
        if event.type == "tool_call.completed"
    }
    calls = {"charge": "call_1_0", "reserve": "call_1_2"}
    assert sorted(acts_of(installation, parent["id"])) == sorted(ACTS)

    for at_seq in range(1, len(log) + 1):
        decision = "approve" if at_seq % 2 else "deny"
        fork = await forked(server, parent["id"], at_seq)
        events, asked = await ended(server, fork["id"], decision)

        assert_sound(events)
        assert types(events)[-1] == "run.completed", (at_seq, events[-1])
        open_still = [tool for tool in ACTS if at_seq < begun[calls[tool]]]
        unknown = [tool for tool in ACTS if begun[calls[tool]] <= at_seq < done[calls[tool]]]
        assert sorted(asked) == sorted(open_still), at_seq
        expected = open_still if decision == "approve" else []
        assert sorted(acts_of(installation, fork["id"])) == sorted(expected), at_seq
        assert str(events).count("outcome_unknown") >= len(unknown), at_seq
        replayed = (await server.http.post(f"/v1/runs/{fork['id']}/replay")).json()
        assert replayed["identical"], (at_seq, replayed)

    assert len(acts_of(installation, parent["id"])) == len(ACTS)
    again = (await server.http.post(f"/v1/runs/{parent['id']}/replay")).json()
    assert again["identical"], again


async def test_a_fork_outlives_the_run_that_it_was_forked_off(installation: Installation) -> None:
    server = await installation.start()
    parent = await server.create("hello")
    log = durable(await server.whole(parent["id"]))
    fork = await forked(server, parent["id"], len(log), input="and now?")
    await server.whole(fork["id"])
    gone = await server.http.delete(f"/v1/sessions/{parent['session_id']}")
    assert gone.is_success, gone.text

    second = await forked(server, fork["id"], 2, input="once more")
    events = durable(await server.whole(second["id"]))

    assert types(events)[-1] == "run.completed"
    said = events[1].data["data"]["conversation"]
    assert [turn["content"] for turn in said] == ["hello", "said: hello "]


async def test_logs_of_a_crash_and_of_its_recovery_replay_as_they_are(
    installation: Installation,
) -> None:
    server = await installation.start()
    run = await server.create("slowly 50\none two three four five six seven eight nine ten")
    await server.until(run["id"], "message.delta")
    await server.kill()

    server = await installation.start()
    await server.whole(run["id"])

    replayed = (await server.http.post(f"/v1/runs/{run['id']}/replay")).json()
    assert replayed["identical"], replayed


async def test_runs_that_call_agents_are_forked_without_them(installation: Installation) -> None:
    server = await installation.start()
    said = 'call agent:clerk {"input": "call charge {\\"amount\\": 5}"}'
    parent = await server.create(said, agent="lead")
    log = durable(await server.whole(parent["id"]))
    seqs = {event.type: seq for seq, event in enumerate(log, start=1)}
    [child] = (await server.http.get("/v1/runs", params={"parent_run_id": parent["id"]})).json()[
        "data"
    ]

    unknown = await forked(server, parent["id"], seqs["child_run.started"])
    brought = await forked(server, parent["id"], seqs["tool_call.completed"])
    below = await forked(server, child["id"], 1)
    told = [durable(await server.whole(each["id"])) for each in (unknown, brought)]
    _, asked = await ended(server, below["id"], "deny")

    assert "outcome_unknown" in str(told[0])
    assert [types(each)[-1] for each in told] == ["run.completed"] * 2
    assert (below["parent_run_id"], asked) == (None, ["charge"])
    assert [entry[0] for entry in ledger(installation.folder)] == ["charge"]
    for run_id in (parent["id"], child["id"], unknown["id"], brought["id"], below["id"]):
        replayed = (await server.http.post(f"/v1/runs/{run_id}/replay")).json()
        assert replayed["identical"], replayed
