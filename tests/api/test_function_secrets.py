"""Stored secrets in functions: given to the tool, and told to nobody."""

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.asking import ended, events
from tests.api.making import made
from tests.api.searching import files_with, tables_with
from tests.api.serving import KeyedService, serving_tenants, settings_for
from tests.stubs.directed_model import DirectedModel, directed_model

VALUE = "tok-Zanzibar9041"
TOOLS = '''
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from milepost import Secret, ToolContext, emit_artifact, stash_pending, tool

Token = Annotated[str, Secret("SHOP_TOKEN")]
HERE = Path(__file__).parent


def used(token: str) -> None:
    """Say to the test, and to nobody else, who was called with what."""
    with (HERE / "used.txt").open("a") as file:
        file.write(token + "\\n")


@tool
async def charge(order: str, token: Token) -> dict[str, str]:
    """Charge an order."""
    used(token)
    return {"order": order, "sent": f"Bearer {token}"}


@tool
def blab(context: ToolContext, token: Token) -> Iterator[str]:
    """Tell it in every way."""
    used(token)
    context.emit("told", {"token": token})
    context.logger.warning(f"it is {token}", field=token)
    emit_artifact(f"https://shop/{token}", filename=token + ".txt")
    yield from ("It is ", *token)


@tool
def fail(token: Token) -> None:
    """Fail."""
    used(token)
    raise ValueError(f"{token} was refused")


@tool(isolation="process")
def alone(token: Token) -> str:
    """Charge in a process of its own."""
    used(token)
    return f"with {token}"


@tool(cacheable=True, effect="read")
def look(token: Token) -> str:
    """Look something up."""
    used(token)
    return f"found with {token}"


@tool(effect="transactional")
async def book(context: ToolContext, token: Token) -> str:
    """Look into the database."""
    used(token)
    await context.tx.execute("SELECT 1 AS one")
    return f"booked with {token}"


@tool(effect="transactional")
async def stumble(context: ToolContext, token: Token) -> str:
    """Have a statement refused, and go on."""
    used(token)
    try:
        await context.tx.execute(f'SELECT * FROM "{token}"')
    except Exception:
        return "never mind"
    return "there is such a table"
'''
EACH = ["charge", "blab", "fail", "alone", "look", "book"]


@pytest.fixture
async def model() -> AsyncIterator[DirectedModel]:
    """A model that calls what the user says."""
    async with directed_model() as model:
        yield model


@pytest.fixture
async def shop(
    database_url: str, model: DirectedModel, tmp_path: Path
) -> AsyncIterator[KeyedService]:
    """A service of two tenants, with functions that need a secret."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "shop_tools.py").write_text(TOOLS)
    settings = settings_for(
        database_url,
        tools=str(folder / "shop_tools.py"),
        artifacts_dir=str(tmp_path / "artifacts"),
        OPENAI_BASE_URL=model.base_url,
        reload_tools=True,
    )
    async with serving_tenants(settings) as keyed:
        yield keyed


async def tried(client: httpx2.AsyncClient, name: str, **arguments: str) -> dict[str, Any]:
    """Try a tool, and return what came of it."""
    answer = await client.post(f"/v1/tools/{name}/call", json={"arguments": arguments})
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def used(tmp_path: Path) -> list[str]:
    """Return what the functions were called with."""
    file = tmp_path / "tools" / "used.txt"
    return file.read_text().split() if file.exists() else []


async def test_a_stored_secret_reaches_the_function_and_is_found_nowhere(
    shop: KeyedService,
    model: DirectedModel,
    database_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    client = shop.acme
    await client.put("/v1/secrets/SHOP_TOKEN", json={"value": VALUE})
    agent = {"name": "clerk", "model": "openai/directed", "tools": EACH}
    await made(client, "/v1/agents", agent)

    told: list[Any] = []
    for name in EACH:
        arguments = {"order": "7"} if name == "charge" else {}
        said = f"call {name} {json.dumps(arguments)}"
        run = await made(client, "/v1/runs", {"agent": "clerk", "input": said})
        await ended(client, run["id"])
        log = await events(client, run["id"])
        (came,) = [
            e["data"] for e in log if e["type"] in {"tool_call.completed", "tool_call.failed"}
        ]
        told += [log, (await client.get(f"/v1/runs/{run['id']}/trace")).json()]
        told += [await tried(client, name, **arguments), came.get("result") or came["error"]]
    told += [(await client.get(f"/v1/tools/{name}")).json() for name in EACH]
    told.append(model.requests)

    assert used(tmp_path) == [VALUE] * 11, "of the one that is cached, the second was no call"
    assert told[3] == {"order": "7", "sent": "Bearer [secret]"}
    assert VALUE not in json.dumps(told, default=str)
    assert VALUE not in caplog.text + str([record.__dict__ for record in caplog.records])
    assert "it is [secret]" in caplog.text
    assert tables_with(database_url, VALUE) == set()
    assert files_with(tmp_path / "artifacts", VALUE) == set()


async def test_a_secret_that_is_not_there_fails_the_call_and_says_how_to_store_it(
    shop: KeyedService, tmp_path: Path
) -> None:
    for name in ("charge", "alone", "book"):
        shown = await tried(shop.acme, name, **({"order": "7"} if name == "charge" else {}))

        assert shown["status"] == "failed"
        assert shown["error"]["code"] == "secret_not_found"
        assert shown["error"]["message"] == (
            f"{name} failed: there is no secret 'SHOP_TOKEN'; store it first:"
            " PUT /v1/secrets/SHOP_TOKEN"
        )
    assert used(tmp_path) == []


async def test_what_a_database_refuses_is_told_without_it_after_the_function_has_returned(
    shop: KeyedService, model: DirectedModel
) -> None:
    await shop.acme.put("/v1/secrets/SHOP_TOKEN", json={"value": VALUE})
    await made(
        shop.acme, "/v1/agents", {"name": "c", "model": "openai/directed", "tools": ["stumble"]}
    )

    run = await made(shop.acme, "/v1/runs", {"agent": "c", "input": "call stumble {}"})
    await ended(shop.acme, run["id"])
    log = await events(shop.acme, run["id"])

    (failed,) = [event["data"]["error"] for event in log if event["type"] == "tool_call.failed"]
    assert failed["code"] == "not_committed"
    assert "[secret]" in failed["message"]
    assert VALUE not in json.dumps([log, model.requests], default=str)


async def test_each_tenant_s_runs_get_its_own_and_a_new_value_counts_from_the_next_call_on(
    shop: KeyedService, tmp_path: Path
) -> None:
    await shop.acme.put("/v1/secrets/SHOP_TOKEN", json={"value": "acme-one"})
    await shop.globex.put("/v1/secrets/SHOP_TOKEN", json={"value": "globex-one"})

    await tried(shop.acme, "charge", order="7")
    await tried(shop.globex, "charge", order="7")
    await shop.acme.put("/v1/secrets/SHOP_TOKEN", json={"value": "acme-two"})
    await tried(shop.acme, "alone")
    await shop.globex.delete("/v1/secrets/SHOP_TOKEN")
    gone = await tried(shop.globex, "charge", order="7")

    assert used(tmp_path) == ["acme-one", "globex-one", "acme-two"]
    assert gone["error"]["code"] == "secret_not_found"


async def test_a_model_cannot_fill_it(shop: KeyedService, tmp_path: Path) -> None:
    await shop.acme.put("/v1/secrets/SHOP_TOKEN", json={"value": VALUE})

    answer = await shop.acme.post(
        "/v1/tools/charge/call", json={"arguments": {"order": "7", "token": "mine"}}
    )

    assert "unexpected parameter 'token'" in answer.text
    assert used(tmp_path) == []


async def test_a_tool_that_was_loaded_again_gets_what_it_names_now(
    shop: KeyedService, tmp_path: Path
) -> None:
    await shop.acme.put("/v1/secrets/OTHER", json={"value": "the-other"})
    file = tmp_path / "tools" / "shop_tools.py"
    file.write_text(TOOLS.replace("SHOP_TOKEN", "OTHER").replace("Charge an order", "Charge again"))
    await described(shop.acme, "Charge again.")

    shown = await tried(shop.acme, "charge", order="7")

    assert shown["result"] == {"order": "7", "sent": "Bearer [secret]"}
    assert used(tmp_path) == ["the-other"]


async def described(client: httpx2.AsyncClient, words: str) -> None:
    """Wait until the tool is described by these words."""
    while (await client.get("/v1/tools/charge")).json()["description"] != words:
        pass
