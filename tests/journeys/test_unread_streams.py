"""Clients that read nothing do not keep a server that is to stop."""

import asyncio

from milepost.api.access import DEFAULT_TENANT
from milepost.live.hub import Hub
from milepost.store.address import PostgresAddress
from milepost.store.store import Store
from tests.journeys.processes import Installation
from tests.live.unread import long_log, unread
from tests.runtime.writing import claimed
from tests.store.conftest import opened, serving

UNREAD = 20


async def test_a_server_with_streams_that_nobody_reads_stops_within_its_grace(
    postgres_installation: Installation, postgres_database: str
) -> None:
    server = await postgres_installation.start(MILEPOST_SLOTS="0")
    port = server.http.base_url.port
    assert port
    address = PostgresAddress(postgres_database)
    async with opened(address) as engine, serving(Store(engine)) as store:
        run = await claimed(store, Hub(), tenant=DEFAULT_TENANT)
        reading = asyncio.create_task(server.whole(run.id))
        async with unread(port, run.id, UNREAD):
            await long_log(run)
            async for event in server.events(run.id):
                if event.data["seq"] == run.head:
                    break  # What they have not got by now waits for them.

            code = await server.stop()

            events = await reading

    assert code == 0
    assert events[-1].type == "stream.reconnect"
    assert "Traceback" not in (postgres_installation.folder / "stderr").read_text()
