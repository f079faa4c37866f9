"""Record an installation of an earlier version, for the test of upgrades from it.

    python -m tests.store.upgrade.record COMMIT SCHEMA

writes `tests/store/upgrade/SCHEMA.sql`: what that version's service left in its database when it
was killed, with runs in every state that one can be in. SCHEMA is the newest migration it had.
"""

import asyncio
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.journeys.processes import Server, installed
from tests.store.earlier import unpacked

MAIL = "Send an email to ann@example.com about lunch saying see you at noon"
# Nobody is to be late with an answer, whenever the test runs.
FAR_MS = 4_102_444_800_000
TIMELESS = (
    f"UPDATE approvals SET expires_ms = {FAR_MS} WHERE status = 'pending'",
    f"UPDATE runs SET wake_at_ms = {FAR_MS} WHERE status = 'waiting' AND wake_at_ms IS NOT NULL",
    "DELETE FROM idempotency",
)


async def record(commit: str, database: Path, folder: Path) -> None:
    """Let that version work on a new database, and kill it."""
    environment = {
        "MILEPOST_DATABASE_URL": f"sqlite:///{database}",
        "MILEPOST_SLOTS": "1",
        "MILEPOST_LOG_LEVEL": "warning",
        "PATH": os.environ["PATH"],
        **unpacked(commit, folder / "code"),
    }
    async with installed(folder, environment) as installation:
        server = await installation.start()
        await finish_some(server)
        waiting = await server.create(MAIL, agent="demo")
        await server.until(waiting["id"], "run.waiting")
        await server.create("What is 3 + 3?", agent="demo", session_id=waiting["session_id"])
        await break_off(server)


async def finish_some(server: Server) -> None:
    """Leave runs that ended: well, in a second turn, with a yes, with a no, and cancelled."""
    first = await server.create("What is 17 + 25, and what is 6 * 7?", agent="demo")
    await server.whole(first["id"])
    second = await server.create("Who are you?", agent="demo", session_id=first["session_id"])
    await server.whole(second["id"])
    for decision in ("approve", "deny"):
        asked = await server.create(MAIL, agent="demo")
        await server.until(asked["id"], "run.waiting")
        (question,) = await server.pending(asked["id"])
        await server.decide(question["id"], decision=decision)
        await server.whole(asked["id"])
    stopped = await server.create(MAIL, agent="demo")
    await server.until(stopped["id"], "run.waiting")
    await server.http.post(f"/v1/runs/{stopped['id']}/cancel", json={"reason": "changed my mind"})
    await server.whole(stopped["id"])


async def break_off(server: Server) -> None:
    """Kill the service in the middle of a sentence, while another run waits for the only slot."""
    spoken = await server.create("Who are you?", agent="demo")
    async for event in server.events(spoken["id"]):
        if event.type == "message.started":
            await server.create("What is 6 * 7?", agent="demo")
        if event.type == "message.delta":
            await server.kill()
            return


def dumped(database: Path) -> Iterator[str]:
    """Yield the statements that put the same rows into a database of either kind."""
    connection = sqlite3.connect(database)
    for statement in TIMELESS:
        connection.execute(statement)
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN"
    tables += " ('alembic_version', 'schema_compat')"
    for (table,) in connection.execute(tables + " ORDER BY name").fetchall():
        found = connection.execute(f'SELECT * FROM "{table}"')
        names = [column[0] for column in found.description]
        for row in found:
            named = zip(names, row, strict=True)
            filled = {name: quoted(value) for name, value in named if value is not None}
            into = f"INSERT INTO {table} ({', '.join(filled)})"
            yield f"{into} VALUES ({', '.join(filled.values())});"
    connection.close()


def quoted(value: str | int | float) -> str:
    """Return a literal of SQL."""
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def main(commit: str, schema: str) -> None:
    """Record it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = folder / "milepost.db"
        asyncio.run(record(commit, database, folder))
        target = Path(__file__).with_name(f"{schema}.sql")
        target.write_text("\n".join(dumped(database)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
