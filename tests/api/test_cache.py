"""`/v1/cache`: what was spared is counted, and forgetting reaches the caller's own alone."""

from typing import Any

import httpx2

from tests.api.asking import ended, events, started
from tests.api.serving import KeyedService

ECHO = {"name": "echo", "model": "demo/offline", "cache": {"ttl_s": 60.0}}


async def asked(client: httpx2.AsyncClient) -> bool:
    """Ask the same as always; say whether the answer came from the cache."""
    run_id = await started(client, "Hello!", agent="echo")
    await ended(client, run_id)
    return "cache.hit" in [event["type"] for event in await events(client, run_id)]


async def shown(client: httpx2.AsyncClient) -> dict[str, Any]:
    """Return what the cache tells of itself."""
    answer = await client.get("/v1/cache")
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_what_replies_from_the_cache_have_spared_is_counted(
    client: httpx2.AsyncClient,
) -> None:
    await client.post("/v1/agents", json=ECHO)

    assert [await asked(client), await asked(client), await asked(client)] == [False, True, True]

    told = await shown(client)
    assert told["saved"]["replies"] == 2
    assert told["saved"]["output_tokens"] > 0
    assert told["process"]["hits"] == 2
    assert told["process"]["misses"] >= 1


async def test_forgetting_reaches_the_callers_own_alone(keyed: KeyedService) -> None:
    for client in (keyed.acme, keyed.globex):
        await client.post("/v1/agents", json=ECHO)
        assert [await asked(client), await asked(client)] == [False, True]

    purged = await keyed.acme.delete("/v1/cache")

    assert purged.json() == {"purged": 1}
    assert await asked(keyed.acme) is False
    assert await asked(keyed.globex) is True
    assert (await shown(keyed.acme))["saved"]["replies"] == 1
    acts = (await keyed.acme.get("/v1/audit?action=cache.purged")).json()["data"]
    assert [act["details"] for act in acts] == [{"purged": 1}]
