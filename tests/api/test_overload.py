"""A crowd: who asks too much is told to come back, and nobody's run stands still for it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import psycopg

from milepost.store.opening import ASKING_MAX
from tests.api.serving import serving, settings_for

TIMEOUT_S = 60.0
MORE = 20
UNLIMITED = httpx2.Limits(max_connections=None)


@asynccontextmanager
async def locked(url: str, table: str) -> AsyncIterator[None]:
    """Keep everybody from a table."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        yield
        await connection.rollback()


async def test_a_crowd_is_told_to_come_back_and_keeps_no_run_from_its_end(
    postgres_database_url: str,
) -> None:
    settings = settings_for(postgres_database_url, demo_word_delay_s=0.05)
    async with (
        serving(settings) as service,
        httpx2.AsyncClient(base_url=service.base_url, limits=UNLIMITED, timeout=60) as client,
    ):
        made = await client.post("/v1/runs", json={"agent": "demo", "input": "Tell me of rivers."})
        assert made.status_code == 202, made.text

        async with locked(postgres_database_url, "audit"):
            crowd = [
                asyncio.ensure_future(client.get("/v1/audit"))
                for _ in range(ASKING_MAX + settings.pool_max + MORE)
            ]
            await ended(postgres_database_url, made.json()["id"])
            answers = await asyncio.gather(*crowd)
        after = await client.get("/v1/audit")

    told = Counter(answer.json()["code"] for answer in answers)
    assert {answer.status_code for answer in answers} == {503}
    assert told["queue_full"] >= MORE
    assert set(told) <= {"queue_full", "database_unavailable"}
    assert all("retry-after" in answer.headers for answer in answers)
    assert after.status_code == 200


async def ended(url: str, run_id: str) -> None:
    """Wait until the run is over, by looking past the service."""
    async with (
        asyncio.timeout(TIMEOUT_S),
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
    ):
        while True:
            found = await connection.execute("SELECT status FROM runs WHERE id = %s", [run_id])
            if await found.fetchone() == ("completed",):
                return
            await asyncio.sleep(0.02)
