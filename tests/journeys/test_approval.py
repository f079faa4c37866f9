"""The second journey: a person is asked, whenever it suits them, and exactly that is done."""

from tests.journeys.processes import Installation, assert_sound, types
from tests.journeys.test_crash import ledger


async def test_a_gated_call_waits_for_a_person_across_a_restart(
    installation: Installation,
) -> None:
    server = await installation.start()
    run = await server.create('call refund {"order": 7}')
    await server.until(run["id"], "run.waiting")
    await server.kill()
    server = await installation.start()
    [asked] = await server.pending(run["id"])

    approved = await server.decide(asked["id"], decision="approve", comment="fine")
    events = await server.whole(run["id"])

    assert approved.status_code == 200
    assert asked["preview"] == "refund(order=7)"
    assert_sound(events)
    assert [entry[0] for entry in ledger(installation.folder)] == ["refund"]
    assert events[-1].data["data"]["output"]["text"] == "said: refund done: 7 "


async def test_a_denied_call_is_never_made_and_the_model_is_told(
    installation: Installation,
) -> None:
    server = await installation.start()
    run = await server.create('call refund {"order": 7}')
    await server.until(run["id"], "run.waiting")
    [asked] = await server.pending(run["id"])

    await server.decide(asked["id"], decision="deny", comment="not today")
    events = await server.whole(run["id"])

    assert_sound(events)
    assert not (installation.folder / "ledger").exists()
    assert "not today" in events[-1].data["data"]["output"]["text"]


async def test_the_second_decision_is_told_who_decided_first(installation: Installation) -> None:
    server = await installation.start()
    run = await server.create('call refund {"order": 7}')
    await server.until(run["id"], "run.waiting")
    [asked] = await server.pending(run["id"])
    await server.decide(asked["id"], decision="approve")

    second = await server.decide(asked["id"], decision="deny")

    assert second.status_code == 409
    assert second.json()["code"] == "approval_decided"


async def test_edited_arguments_are_what_the_tool_gets(installation: Installation) -> None:
    server = await installation.start()
    run = await server.create('call refund {"order": 7}')
    await server.until(run["id"], "run.waiting")
    [asked] = await server.pending(run["id"])

    await server.decide(asked["id"], decision="approve", arguments={"order": 8})
    events = await server.whole(run["id"])

    assert events[-1].data["data"]["output"]["text"] == "said: refund done: 8 "


async def test_a_waiting_run_is_cancelled_and_its_question_withdrawn(
    installation: Installation,
) -> None:
    server = await installation.start()
    run = await server.create('call refund {"order": 7}')
    await server.until(run["id"], "run.waiting")
    [asked] = await server.pending(run["id"])

    cancelled = await server.http.post(f"/v1/runs/{run['id']}/cancel", json={"reason": "enough"})
    late = await server.decide(asked["id"], decision="approve")

    events = await server.whole(run["id"])
    assert cancelled.json()["status"] == "cancelled"
    assert late.status_code == 409
    assert_sound(events)
    assert types(events)[-2:] == ["approval.withdrawn", "run.cancelled"]


async def test_a_running_run_is_cancelled_in_the_middle_of_its_answer(
    installation: Installation,
) -> None:
    server = await installation.start()
    run = await server.create("slowly 100\n" + "word " * 100)
    await server.until(run["id"], "message.delta")

    await server.http.post(f"/v1/runs/{run['id']}/cancel")
    events = await server.whole(run["id"])

    assert_sound(events)
    assert types(events)[-3:] == ["run.cancelling", "message.aborted", "run.cancelled"]
