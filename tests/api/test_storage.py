"""`/v1/admin/storage`: what takes the space, without reading it."""

from typing import Any

import httpx2

from tests.api.making import an_agent, an_ended_run, made
from tests.api.serving import KeyedService


async def test_what_takes_the_space_is_told_by_table_and_by_tenant(keyed: KeyedService) -> None:
    await made(keyed.acme, "/v1/agents", an_agent())
    await an_ended_run(keyed.acme)

    mine = await shown(keyed.acme)
    theirs = await shown(keyed.globex)

    by_table = {table["name"]: table for table in mine["tables"]}
    assert mine["total_bytes"] > 0
    assert by_table["events"]["table_bytes"] > 0
    assert by_table["runs"]["index_bytes"] > 0
    sizes = [table["table_bytes"] + table["index_bytes"] for table in mine["tables"]]
    assert sizes == sorted(sizes, reverse=True)
    assert mine["tenant"]["runs"] == {"count": 1, "at_least": False}
    assert theirs["tenant"]["runs"] == {"count": 0, "at_least": False}


async def shown(client: httpx2.AsyncClient) -> dict[str, Any]:
    """Return what is told."""
    answer = await client.get("/v1/admin/storage")
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told
