"""`/v1/sessions/{id}/state`: the prompt, as of any message of a session and as of now."""

from typing import Any

import httpx2
import pytest

from tests.api.making import a_waiting_run, an_agent, an_ended_run, made, refusal


@pytest.fixture
async def session(client: httpx2.AsyncClient) -> str:
    """The path of a session with two turns: a sum with a tool call, and a greeting."""
    await made(client, "/v1/agents", an_agent(instructions="Be kind."))
    first = await an_ended_run(client)
    await an_ended_run(client, session_id=first["session_id"], input="hello")
    return f"/v1/sessions/{first['session_id']}"


async def state(client: httpx2.AsyncClient, session: str, query: str = "") -> dict[str, Any]:
    answer = await client.get(f"{session}/state{query}")
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def test_a_state_ends_with_its_message(client: httpx2.AsyncClient, session: str) -> None:
    said = (await client.get(f"{session}/messages")).json()["data"]

    for index, message in enumerate(said):
        shown = await state(client, session, f"?at={message['place']}")
        told = shown["messages"]
        assert (shown["at"], shown["run_id"]) == (message["place"], message["run_id"])
        assert (told[0]["role"], told[0]["content"]) == ("system", "Be kind.")
        assert [each["content"] for each in told[1:]] == [
            each["content"] for each in said[: index + 1]
        ]


async def test_a_state_says_of_which_agent_it_is(client: httpx2.AsyncClient, session: str) -> None:
    await client.patch("/v1/agents/clerk", json={"instructions": "Be brief."})
    await made(client, "/v1/agents", an_agent(name="other", instructions="Be rude."))

    then = await state(client, session, "?at=2.0")
    now = await state(client, session)
    other = await state(client, session, "?agent=other")

    assert then["agent"] == now["agent"] == {"name": "clerk", "version": 1}
    assert other["agent"] == {"name": "other", "version": 1}
    assert [each["messages"][0]["content"] for each in (then, now, other)] == [
        "Be kind.", "Be kind.", "Be rude.",
    ]  # fmt: skip
    assert (now["at"], now["kept_from"], len(now["messages"])) == (None, "1.0", 7)
    assert now["tokens_estimated"] > 0


async def test_a_run_that_waits_has_a_state(client: httpx2.AsyncClient, session: str) -> None:
    await a_waiting_run(client, session_id=session.rpartition("/")[2])

    shown = await state(client, session, "?at=3.1")

    assert shown["messages"][-1]["tool_calls"][0]["name"] == "send_email"


async def test_a_fork_has_the_state_of_what_it_shares(
    client: httpx2.AsyncClient, session: str
) -> None:
    forked = await made(client, f"{session}/fork", {"at": "1.3"})
    await an_ended_run(client, session_id=forked["id"], input="hello")
    path = f"/v1/sessions/{forked['id']}"

    shared, own = await state(client, path, "?at=1.3"), await state(client, path, "?at=2.0")

    assert shared["messages"] == (await state(client, session, "?at=1.3"))["messages"]
    assert own["messages"][:-1] == shared["messages"]
    assert refusal(await client.get(f"{path}/state?at=2.9")) == (404, "message_not_found")


async def test_an_imported_turn_has_a_state_without_instructions(
    client: httpx2.AsyncClient, session: str
) -> None:
    again = await made(
        client, "/v1/session_imports", (await client.get(f"{session}/export")).json()
    )

    shown = await state(client, f"/v1/sessions/{again['id']}", "?at=1.3")

    assert shown["agent"] is None
    assert [each["role"] for each in shown["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_who_talks_next_must_be_known(client: httpx2.AsyncClient, session: str) -> None:
    empty = f"/v1/sessions/{(await made(client, '/v1/sessions', {}))['id']}"

    unknown = await client.get(f"{empty}/state")
    named = await state(client, empty, "?agent=clerk")

    assert refusal(unknown) == (422, "agent_required")
    assert [each["content"] for each in named["messages"]] == ["Be kind."]


@pytest.mark.parametrize(
    ("query", "refused"),
    [
        ("?at=x", (400, "bad_query")),
        ("?at=1.0&agent=clerk", (400, "bad_query")),
        ("?at=9.0", (404, "message_not_found")),
        ("?agent=nobody", (404, "agent_not_found")),
    ],
)
async def test_what_cannot_be_shown_is_refused(
    client: httpx2.AsyncClient, session: str, query: str, refused: tuple[int, str]
) -> None:
    assert refusal(await client.get(f"{session}/state{query}")) == refused
