"""`python -m milepost.tools.isolated FD`: the process in which isolated tools run.

It reads calls from a socket, one JSON object a line, and answers each with one; what a tool says
meanwhile goes before the answer. When the other end is gone it kills its whole process group.
"""

import asyncio
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping, MutableMapping
from typing import Any, NoReturn

import orjson
import structlog

from milepost.core.json import Json, clean_text
from milepost.tools.artifacts import refuse_artifacts
from milepost.tools.attempt import Attempt
from milepost.tools.context import Approved, ToolContext
from milepost.tools.definition import Tool
from milepost.tools.home import Home, found
from milepost.tools.raised import told
from milepost.tools.results import RESULT_CHARS_MAX

TRACEBACK_CHARS_MAX = 10_000

_STARTS_ANOTHER = frozenset(
    {"os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
)


class Isolated:
    """Answers calls over a socket until it is killed."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._pid = os.getpid()
        self._calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self._room = 0
        self._leaves_behind = False

    def run(self) -> NoReturn:
        """Answer calls."""
        sys.addaudithook(self._notice)
        structlog.configure(processors=[structlog.processors.format_exc_info, self._log])
        refuse_artifacts(
            "a tool in a process of its own cannot leave artifacts; return what it made, or the"
            " URL of it, or drop isolation"
        )
        threading.Thread(target=self._listen, name="milepost-calls", daemon=True).start()
        while True:
            request = orjson.loads(self._calls.get())
            self._room, self._leaves_behind = RESULT_CHARS_MAX, False
            answer = self._answer(request)
            self._leave_if_copy()
            self._send({**answer, "leaves_behind": self._leaves_behind})

    def _listen(self) -> None:
        """Take calls in; a tool that never returns must not outlive who called it."""
        with self._wire.makefile("rb") as lines:
            for line in lines:
                self._calls.put(line)
        os.killpg(0, signal.SIGKILL)

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Json]:
        try:
            return {"result": self._called(request)}
        except BaseException as error:  # it ends the call, not the process
            lines = "".join(traceback.format_exception(error))
            return {
                "error": told(error),
                "retryable": bool(getattr(error, "retryable", False)),
                "traceback": clean_text(lines[-TRACEBACK_CHARS_MAX:]),
            }

    def _called(self, request: Mapping[str, Any]) -> Json:
        sys.path[:] = request["path"]
        tool = Tool(
            name=request["tool"],
            description="Isolated.",
            function=found(Home(**request["home"])),
            parameters=request["parameters"],
        )
        known = request["context"]
        approval = known.pop("approval")
        context = ToolContext(
            **known, approval=approval and Approved(**approval), progress=self._progress
        )
        attempt = Attempt(tool, tool.values(request["arguments"]), context)
        outcome, result = attempt.run_to_the_end()
        self._leave_if_copy()
        if outcome is None:
            return result
        return asyncio.run(self._finished(attempt.finish(outcome)))

    async def _finished(self, rest: Any) -> Json:
        try:
            result: Json = await rest
        finally:
            # Before a copy of the loop is closed, of which this one would lose its own.
            self._leave_if_copy()
        return result

    def _progress(self, text: object) -> None:
        with self._sending:
            room = self._room
            piece = str(text)[: max(room, 0) + 1]
            self._room -= len(piece)
        if room >= 0 and piece:
            self._send({"progress": clean_text(piece)})

    def _log(self, _: object, level: str, event: MutableMapping[str, Any]) -> NoReturn:
        """Have the service log it, which masks what must not be read."""
        shown = {
            key: value if isinstance(value, (int, float, bool)) else clean_text(str(value))
            for key, value in event.items()
            if key not in {"run", "call", "tool"}
        }
        self._send({"log": level, **shown})
        raise structlog.DropEvent

    def _send(self, said: Mapping[str, Any]) -> None:
        if os.getpid() != self._pid:
            return
        line = orjson.dumps(said) + b"\n"
        with self._sending:
            self._wire.sendall(line)

    def _notice(self, event: str, _: tuple[Any, ...]) -> None:
        if event in _STARTS_ANOTHER:
            self._leaves_behind = True

    def _leave_if_copy(self) -> None:
        """End what a tool's fork has left behind: the call is answered by one process alone."""
        if os.getpid() != self._pid:
            os._exit(0)


if __name__ == "__main__":
    Isolated(socket.socket(fileno=int(sys.argv[1]))).run()
