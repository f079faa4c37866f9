"""`/v1/secrets`: values go in encrypted, and nothing gets them out over HTTP."""

import httpx2
import pytest

from milepost.api import secrets as resource
from milepost.runtime.secrets import Vault
from milepost.store import secrets
from milepost.store.address import parse_address
from milepost.store.opening import open_thread_store
from tests.api.making import refusal
from tests.api.serving import SECRET_KEY, KeyedService, serving, settings_for

VALUE = "sk-very-secret"


def stored(database_url: str, tenant: str, name: str) -> str:
    """Return what lies in the table."""
    store = open_thread_store(parse_address(database_url))
    try:
        return store.write(secrets.get(tenant, name))
    finally:
        store.close()


async def test_a_secret_is_stored_encrypted(client: httpx2.AsyncClient, database_url: str) -> None:
    answer = await client.put("/v1/secrets/OPENAI_KEY", json={"value": VALUE})

    sealed = stored(database_url, "default", "OPENAI_KEY")
    assert (answer.status_code, answer.json()["name"]) == (200, "OPENAI_KEY")
    assert VALUE not in answer.text
    assert VALUE not in sealed
    assert Vault(SECRET_KEY).open("default", "OPENAI_KEY", sealed) == VALUE


async def test_no_request_gets_a_secret_out(client: httpx2.AsyncClient) -> None:
    await client.put("/v1/secrets/one", json={"value": VALUE})

    listed = await client.get("/v1/secrets")
    single = await client.get("/v1/secrets/one")
    acts = await client.get("/v1/audit")

    assert listed.json()["data"] == [{"name": "one"}]
    assert refusal(single) == (405, "method_not_allowed")
    assert VALUE not in listed.text + single.text + acts.text


async def test_storing_again_replaces(client: httpx2.AsyncClient, database_url: str) -> None:
    await client.put("/v1/secrets/one", json={"value": "before"})
    await client.put("/v1/secrets/one", json={"value": "after"})

    sealed = stored(database_url, "default", "one")
    assert Vault(SECRET_KEY).open("default", "one", sealed) == "after"
    assert len((await client.get("/v1/secrets")).json()["data"]) == 1


async def test_a_deleted_secret_is_gone(client: httpx2.AsyncClient) -> None:
    await client.put("/v1/secrets/one", json={"value": VALUE})

    answer = await client.delete("/v1/secrets/one")

    assert answer.status_code == 204
    assert (await client.get("/v1/secrets")).json()["data"] == []
    assert refusal(await client.delete("/v1/secrets/one")) == (404, "secret_not_found")


async def test_storing_and_deleting_are_written_down(client: httpx2.AsyncClient) -> None:
    await client.put("/v1/secrets/one", json={"value": VALUE})
    await client.delete("/v1/secrets/one")

    acts = (await client.get("/v1/audit?target=one")).json()["data"]

    assert [act["action"] for act in acts] == ["secret.deleted", "secret.stored"]


async def test_without_a_secret_key_nothing_is_stored(database_url: str) -> None:
    async with (
        serving(settings_for(database_url, secret_key=None)) as service,
        service.client() as client,
    ):
        answer = await client.put("/v1/secrets/one", json={"value": VALUE})

        assert refusal(answer) == (409, "no_secret_key")
        assert "MILEPOST_SECRET_KEY" in answer.json()["detail"]
        assert (await client.get("/v1/secrets")).json()["data"] == []
        assert (await client.get("/v1/audit")).json()["data"] == []


async def test_secrets_are_listed_by_name_in_pages(client: httpx2.AsyncClient) -> None:
    for name in ("b", "c", "a"):
        await client.put(f"/v1/secrets/{name}", json={"value": VALUE})

    first = (await client.get("/v1/secrets?limit=2")).json()
    rest = (await client.get(f"/v1/secrets?limit=2&after={first['next_cursor']}")).json()

    assert [each["name"] for each in first["data"] + rest["data"]] == ["a", "b", "c"]
    assert (first["has_more"], rest["has_more"]) == (True, False)


async def test_names_and_values_have_bounds(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "SECRETS_MAX", 1)
    bad_name = await client.put("/v1/secrets/1%20x", json={"value": VALUE})
    empty = await client.put("/v1/secrets/one", json={"value": ""})
    await client.put("/v1/secrets/one", json={"value": VALUE})
    again = await client.put("/v1/secrets/one", json={"value": VALUE})
    more = await client.put("/v1/secrets/two", json={"value": VALUE})

    assert refusal(bad_name) == (422, "bad_secret_name")
    assert refusal(empty) == (422, "invalid_request")
    assert again.status_code == 200
    assert refusal(more) == (409, "too_many_secrets")


async def test_only_an_administrator_stores_secrets(keyed: KeyedService) -> None:
    other = await keyed.holding("runs:read", "runs:write", "agents:write")

    answers = [
        await other.get("/v1/secrets"),
        await other.put("/v1/secrets/one", json={"value": VALUE}),
        await other.delete("/v1/secrets/one"),
    ]

    assert {refusal(answer) for answer in answers} == {(403, "missing_scope")}
