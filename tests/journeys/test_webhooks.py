"""Another service is told: also when the one that tells is killed in the middle of it."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing

import psycopg
import pytest

from tests.journeys.processes import Installation, Server
from tests.stubs.webhook_receiver import Receiver, receiver


@pytest.fixture
async def there() -> AsyncIterator[Receiver]:
    async with receiver() as there:
        yield there


async def telling(installation: Installation, there: Receiver) -> tuple[Server, str]:
    """Start a service with a webhook for the ends of runs; return it and the secret."""
    server = await installation.start("--egress-allow", "127.0.0.1")
    body = {"url": there.url, "events": ["run.completed"]}
    made = await server.http.post("/v1/webhooks", json=body)
    assert made.status_code == 201, made.text
    return server, made.json()["secret"]


def let_claims_lapse(database_url: str) -> None:
    """Make a minute pass for whatever was claimed by somebody who is dead."""
    lapse = "UPDATE webhook_deliveries SET due_ms = due_ms - 60000 WHERE status = 'pending'"
    if database_url.startswith("sqlite"):
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as connection:
            connection.execute(lapse)
            connection.commit()
        return
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(lapse.encode())


async def test_a_message_whose_sender_was_killed_arrives_under_the_same_id(
    installation: Installation, there: Receiver
) -> None:
    server, secret = await telling(installation, there)
    there.held = asyncio.Event()
    run = await server.create("say hello")
    first = await there.next()
    await server.kill()
    there.held.set()

    let_claims_lapse(installation.environment["MILEPOST_DATABASE_URL"])
    await installation.start("--egress-allow", "127.0.0.1")
    again = await there.next()

    assert again.id == first.id
    assert again.body["data"]["run_id"] == run["id"]
    assert first.signed_with(secret) == again.signed_with(secret) == [True]


async def test_what_happened_just_before_the_kill_is_told_after_it(
    installation: Installation, there: Receiver
) -> None:
    server, _ = await telling(installation, there)
    run = await server.create("say hello")
    await server.until(run["id"], "run.completed")
    await server.kill()

    let_claims_lapse(installation.environment["MILEPOST_DATABASE_URL"])
    await installation.start("--egress-allow", "127.0.0.1")

    assert (await there.next()).body["data"]["run_id"] == run["id"]
