"""The least that a durable loop does: the bare one, which goes on once its steps are on the disk.

Its events are rows of one table, committed in groups, and that is all: nothing reads them, nobody
else could take a run over, and there are no spans, statuses, sessions, keys or approvals. By so
much as it is slower than the bare loop, durability costs in Python, whoever pays it.
`python -m tests.benchmarks.logged_loop --model URL --log FILE` prints its port.
"""

import argparse
import asyncio
import itertools
import queue
import sqlite3
import threading
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop
from starlette.types import Receive, Scope, Send

from tests.benchmarks.bare_loop import START, STEPS_MAX, TOOLS, BareLoop, Frames, body, serve, whole

GROUP_MAX = 64

Row = tuple[str, int, bytes]


class Log:
    """A file to which a thread adds what was handed in, as much at once as there is."""

    def __init__(self, path: Path) -> None:
        self._handed_in: queue.SimpleQueue[tuple[asyncio.Future[None], list[Row]]]
        self._handed_in = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._write, args=(path,), daemon=True).start()

    async def add(self, run_id: str, events: list[bytes], first: int) -> None:
        """Keep a run's next events; they are on the disk when this returns."""
        kept: asyncio.Future[None] = self._loop.create_future()
        rows = [(run_id, seq, event) for seq, event in enumerate(events, start=first)]
        self._handed_in.put((kept, rows))
        await kept

    def _write(self, path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            "CREATE TABLE events (run_id TEXT, seq INTEGER, event BLOB, PRIMARY KEY (run_id, seq))"
            " WITHOUT ROWID"
        )
        while True:
            group = [self._handed_in.get()]
            while len(group) < GROUP_MAX and not self._handed_in.empty():
                group.append(self._handed_in.get())
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO events VALUES (?, ?, ?)", [row for _, rows in group for row in rows]
            )
            connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(_tell, [kept for kept, _ in group])


def _tell(all_kept: list["asyncio.Future[None]"]) -> None:
    for kept in all_kept:
        kept.set_result(None)


class LoggedLoop(BareLoop):
    """The bare loop with a log: of the request, of each answer, of each result, and of the end."""

    def __init__(self, http: aiohttp.ClientSession, base_url: str, log: Log) -> None:
        super().__init__(http, base_url)
        self._log = log
        self._numbers = itertools.count()

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Run to the end, streaming what is durable."""
        asked = orjson.loads(await whole(receive))
        messages: list[dict[str, Any]] = [{"role": "user", "content": asked["input"]}]
        run_id, frames = f"run_{next(self._numbers):012}", Frames()
        started = frames.event("run.started", {})
        await self._log.add(run_id, [orjson.dumps(asked), started], 0)
        await send(START)
        await send(body(started))
        for step in range(STEPS_MAX):
            text, calls = await self._ask(messages, frames, step, send)
            answer = {"role": "assistant", "content": text, "tool_calls": calls}
            messages.append(answer)
            if not calls:
                break
            await self._log.add(run_id, [orjson.dumps(answer)], 10 * step + 2)
            results = []
            for call in calls:
                result = await TOOLS[call["function"]["name"]](
                    **orjson.loads(call["function"]["arguments"])
                )
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
                results.append(frames.event("tool_call.completed", {"result": result}))
            await self._log.add(run_id, results, 10 * step + 3)
            await send(body(b"".join(results)))
        completed = frames.event("run.completed", {})
        await self._log.add(run_id, [orjson.dumps(messages[-1]), completed], 1_000)
        await send(body(completed, more=False))


def _main() -> None:
    parser = argparse.ArgumentParser(description="The agent loop with a log, and nothing else")
    parser.add_argument("--model", required=True, help="where the model is: http://…/v1")
    parser.add_argument("--log", required=True, type=Path, help="a file that is not there yet")
    options = parser.parse_args()
    uvloop.run(serve(lambda http: LoggedLoop(http, options.model, Log(options.log))))


if __name__ == "__main__":
    _main()
