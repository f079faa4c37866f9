"""The chat's journey: what was confirmed is executed once, whatever dies in between."""

import asyncio
import os
from typing import Any

from tests.journeys.processes import Installation, Server, types
from tests.journeys.test_crash import ledger, open_gate

AGENT = {"name": "chatty", "model": "openai/directed", "tools": ["pay_later"]}
API_ALONE = {"MILEPOST_SLOTS": "0"}


async def say(server: Server, message_id: str, wait_s: int = 20, **said: Any) -> dict[str, Any]:
    """Send a message, and return what it did."""
    body = {"user": "ann", "conversation": "c1", "message_id": message_id, **said}
    answer = await server.http.post(f"/v1/channels/sms/messages?wait={wait_s}", json=body)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def put_off(server: Server, kind: str) -> dict[str, Any]:
    """Have the model put a payment off, and return it as it was shown."""
    await server.http.post("/v1/agents", json=AGENT)
    said = f'call pay_later {{"order": "A1", "kind": "{kind}"}}'
    shown = await say(server, "m1", text=said, agent="chatty")
    assert shown["pending"]["preview"] == f"{kind} A1", shown
    return shown


def acts(installation: Installation) -> list[str]:
    """Return what was done."""
    return [name for name, *_ in ledger(installation.folder)]


async def test_what_was_confirmed_is_executed_once_after_a_kill_before_anything_was_done(
    installation: Installation,
) -> None:
    server = await installation.start()
    await put_off(server, "charge_once")
    await server.kill()
    server = await installation.start(**API_ALONE)
    confirmed = await say(server, "m2", wait_s=0, text="yes")
    await server.kill()

    server = await installation.start()
    again = [await say(server, "m2", text="yes") for _ in range(3)]

    assert (confirmed["outcome"], confirmed["reply"]) == ("confirmed", None)
    assert again == [{**confirmed, "reply": "charge_once done: A1"}] * 3
    assert acts(installation) == ["pay_later", "charge_once"]


async def killed_while_it_executes(installation: Installation, kind: str) -> dict[str, Any]:
    """Confirm, kill the server while the executor runs, and deliver the yes to the next one."""
    server = await installation.start()
    await put_off(server, kind)
    os.mkfifo(installation.folder / "gate")
    confirmed = await say(server, "m2", wait_s=0, text="yes")
    await server.until(confirmed["run_id"], "tool_call.started")
    holder = os.open(installation.folder / "gate", os.O_WRONLY)
    await server.kill()
    os.close(holder)
    open_gate(installation.folder)
    server = await installation.start()
    again = await say(server, "m2", text="yes")
    assert again["run_id"] == confirmed["run_id"]
    assert "tool_call.interrupted" in types(await server.whole(again["run_id"]))
    return again


async def test_an_executor_that_must_not_repeat_is_not_repeated_after_a_kill(
    installation: Installation,
) -> None:
    again = await killed_while_it_executes(installation, "charge_once")

    assert again["outcome"] == "failed"
    assert "may or may not have acted" in again["reply"]
    assert acts(installation) == ["pay_later", "charge_once"]


async def test_an_executor_that_may_repeat_does_so_with_the_same_key_after_a_kill(
    installation: Installation,
) -> None:
    again = await killed_while_it_executes(installation, "charge_by_key")

    assert (again["outcome"], again["reply"]) == ("confirmed", "charge_by_key done: A1")
    _, first, second = ledger(installation.folder)
    assert first == second


async def test_an_action_is_put_off_once_by_a_call_whose_worker_was_killed(
    installation: Installation,
) -> None:
    os.mkfifo(installation.folder / "gate")
    server = await installation.start()
    await server.http.post("/v1/agents", json=AGENT)
    said: dict[str, Any] = {
        "text": 'call pay_later {"order": "A1", "kind": "charge_once"}',
        "agent": "chatty",
    }
    first = await say(server, "m1", wait_s=0, **said)
    await server.until(first["run_id"], "tool_call.started")
    holder = os.open(installation.folder / "gate", os.O_WRONLY)
    await server.kill()
    os.close(holder)
    open_gate(installation.folder)

    server = await installation.start()
    again = await say(server, "m1", **said)
    confirmed = await say(server, "m2", text="yes")

    assert again["run_id"] == first["run_id"]
    assert again["pending"]["preview"] == "charge_once A1"
    assert confirmed["outcome"] == "confirmed"
    assert acts(installation) == ["pay_later", "pay_later", "charge_once"]


async def test_a_yes_that_is_delivered_to_two_servers_at_once_is_executed_once(
    postgres_installation: Installation,
) -> None:
    installation = postgres_installation
    servers = [await installation.start(**API_ALONE) for _ in range(2)]
    await installation.start_worker()
    await put_off(servers[0], "charge_once")

    answers = await asyncio.gather(
        *(say(server, "m2", text="yes") for server in servers for _ in range(10))
    )

    assert answers == [answers[0]] * 20
    assert answers[0]["reply"] == "charge_once done: A1"
    assert acts(installation) == ["pay_later", "charge_once"]
