"""Processes in which tools run that may hang or crash: one call at a time each, killed for real."""

import asyncio
import itertools
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import orjson

from milepost.core.errors import ToolError, UnavailableError
from milepost.core.json import Json
from milepost.tools.arrivals import Arrivals
from milepost.tools.context import ToolContext
from milepost.tools.definition import Tool
from milepost.tools.home import Home, home_of
from milepost.tools.offspring import MARK, kill_marked, new_mark
from milepost.tools.pending import current

PROCESSES_MAX = 4
ANSWER_BYTES_MAX = 4_194_304
LEAVES_WITHIN_S = 1.0
DIES_WITHIN_S = 5.0
OWN_SETTINGS = "MILEPOST_"

_PLAIN = (
    "run_id", "session_id", "tenant", "user", "call_id", "attempt", "idempotency_key",
    "deadline_ms", "tool",
)  # fmt: skip
_LEVELS = frozenset({"debug", "info", "warning", "error", "critical"})
_NO_ANSWER = "its process answered what is no answer; a tool must not write to its socket"


class ToolProcesses:
    """At most `processes_max` processes, started when needed and kept warm between calls.

    Each leads a session and a process group of its own and is marked, so that what a tool starts
    dies with it: on timeout, on cancellation, when this is closed, and when the process that this
    lives in is gone.
    It gets the call as JSON over a socket, which nothing that a tool prints can disturb. It has the
    environment of the service, but for the service's own settings (`MILEPOST_…`): whatever else
    stands there, keys of vendors for instance, its tools can read, as tools in threads can.
    """

    def __init__(self, processes_max: int = PROCESSES_MAX) -> None:
        self._places = asyncio.Semaphore(processes_max)
        self._idle: list[_Process] = []
        self._living: set[_Process] = set()
        self._closed = False
        self._numbers = itertools.count(1)

    async def call(
        self,
        tool: Tool,
        arguments: Mapping[str, Json],
        context: ToolContext,
        on_start: Callable[[], None],
        secrets: Mapping[str, str],
    ) -> Json:
        """Have `tool` called in a process; `on_start` is called right before it is.

        It is given the `secrets` by parameter, and keeps them from what it answers.

        Raises ToolError for whatever the tool raised, and for a process that ended instead.
        """
        home = home_of(tool.function)
        number = next(self._numbers)
        known = {"number": number, "secrets": secrets, **_request(tool, home, arguments, context)}
        request = orjson.dumps(known) + b"\n"
        async with self._places:
            process = await self._take(home)
            try:
                on_start()
                answer = await process.ask(request, number, context)
            except BaseException:
                process.kill()
                raise
            if answer["leaves_behind"] or self._closed:
                process.kill()
            else:
                self._idle.append(process)
        return _outcome(answer)

    async def close(self) -> None:
        """Take no more calls, kill every process, and wait until they are gone."""
        self._closed = True
        for process in self._living:
            process.kill()
        if gone := [process.gone for process in self._living]:
            await asyncio.wait(gone, timeout=DIES_WITHIN_S)

    async def _take(self, home: Home) -> "_Process":
        if self._closed:
            raise UnavailableError("the processes for tools are closed: this one is stopping")
        while self._idle:
            process = self._idle.pop()
            if not process.gone.done() and process.fits(home):
                return process
            process.kill()
        process = await _Process.start()
        process.fits(home)
        self._living.add(process)
        process.gone.add_done_callback(lambda _: self._living.discard(process))
        return process


class _Process:
    """One process, and the socket that leads to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        mark: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._mark = mark
        self._reader = reader
        self._writer = writer
        self._loaded: dict[str, int] = {}
        self.gone = asyncio.create_task(self._end(), name="a tool's process")

    @classmethod
    async def start(cls) -> "_Process":
        """Start a process that waits for calls."""
        ours, theirs = socket.socketpair()
        mark = new_mark()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "milepost.tools.isolated", str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**_environment(), MARK: mark},
            )  # fmt: skip
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours, limit=ANSWER_BYTES_MAX)
        return cls(process, mark, reader, writer)

    async def _end(self) -> int:
        """Wait until the process is gone, and kill what it has left; return its exit code."""
        code = await self._process.wait()
        # What the tool has started may hold the other end open although the process is gone.
        self._writer.transport.abort()
        await asyncio.to_thread(kill_marked, self._mark)
        return code

    def fits(self, home: Home) -> bool:
        """Say whether the process has not loaded an older form of the module; note which it has."""
        return self._loaded.setdefault(home.module, home.changed_ns) == home.changed_ns

    async def ask(self, request: bytes, number: int, context: ToolContext) -> dict[str, Any]:
        """Return the answer to this call, having passed on what was said for it before.

        What is said for another call is dropped. Raises ToolError for what cannot be understood.
        """
        self._writer.write(request)
        arrivals = Arrivals()
        while line := await self._line():
            said = _read(line)
            if said.pop("number", None) != number:
                continue
            match said:
                case {"progress": str(text)}:
                    context.progress(text)
                case {"event": {"name": str(name), "value": value}}:
                    context.emit(name, value)
                case {"log": {"level": str(level), "event": str(event), "fields": dict(fields)}}:
                    log = getattr(context.logger, level if level in _LEVELS else "info")
                    log(event, **fields)
                case {
                    "stashed": {
                        "kind": str(kind),
                        "preview": str(preview),
                        "args": dict(args),
                        "ttl_s": int() | float() as ttl_s,
                    }
                }:
                    context.stash_pending(kind, preview, args, ttl_s)
                case {"artifact": dict(told), "size": int() | None as size}:
                    await arrivals.tell(told, size)
                case {"content_of": str(named), "base64": str(encoded)}:
                    await arrivals.take(named, encoded)
                case {"result": _, "leaves_behind": bool()} | {
                    "error": str(),
                    "retryable": bool(),
                    "traceback": str(),
                    "leaves_behind": bool(),
                }:
                    return said
                case _:
                    raise ToolError(_NO_ANSWER)
        raise ToolError(await self._how_it_ended())

    def kill(self) -> None:
        """Kill the process and all that it has started."""
        if self._process.returncode is None:
            # Not reaped yet, so that its number cannot be another's by now.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
                # If its tool has made it leave its own group. `Process.kill` might reap one that is
                # dead by then, and how it ended would be lost.
                os.kill(self._process.pid, signal.SIGKILL)
        self._writer.transport.abort()

    async def _line(self) -> bytes:
        try:
            line = await self._reader.readline()
        except ValueError as error:
            raise ToolError(f"its process answered more than {ANSWER_BYTES_MAX} bytes") from error
        except ConnectionError:
            return b""
        return line if line.endswith(b"\n") else b""

    async def _how_it_ended(self) -> str:
        await asyncio.wait((self.gone,), timeout=LEAVES_WITHIN_S)
        if not self.gone.done():
            return "its process hung up before it answered"
        code = self.gone.result()
        if code >= 0:
            return f"its process ended with exit code {code} before it answered"
        return f"its process crashed: it was ended by {signal.Signals(-code).name}"


def _read(line: bytes) -> dict[str, Any]:
    try:
        said = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ToolError(_NO_ANSWER) from error
    if not isinstance(said, dict):
        raise ToolError(_NO_ANSWER)
    return said


def _request(
    tool: Tool, home: Home, arguments: Mapping[str, Json], context: ToolContext
) -> dict[str, Any]:
    known: dict[str, Any] = {name: getattr(context, name) for name in _PLAIN}
    known["metadata"] = dict(context.metadata)
    known["approval"] = context.approval and asdict(context.approval)
    stash = current()
    return {
        "path": sys.path,
        "home": asdict(home),
        "tool": tool.name,
        "parameters": None if tool.parameters is None else tool.schema.parameters,
        "is_typed": not isinstance(tool.parameters, Mapping),
        "arguments": arguments,
        "context": known,
        "stash": {"room": stash.room, "taken": stash.taken},
    }


def _outcome(answer: Mapping[str, Any]) -> Json:
    if "result" in answer:
        result: Json = answer["result"]
        return result
    error = ToolError(answer["error"], retryable=answer["retryable"])
    error.add_note(answer["traceback"])
    raise error


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(OWN_SETTINGS)}
