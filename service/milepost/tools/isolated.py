"""`python -m milepost.tools.isolated FD`: the process in which isolated tools run.

It reads calls from a socket, one JSON object a line, and answers each with one; what a tool says
meanwhile goes before the answer. Each line has the number of the call that it is said for. When
the other end is gone it kills its whole process group.
"""

import asyncio
import base64
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, NoReturn

import orjson
import structlog

from milepost.core.errors import ToolError
from milepost.core.json import Json, clean_text
from milepost.tools.artifacts import Artifact, collecting
from milepost.tools.attempt import Attempt
from milepost.tools.context import Approved, ToolContext
from milepost.tools.decorator import is_tool, tool_of
from milepost.tools.definition import Tool
from milepost.tools.discretion import loggable
from milepost.tools.emitting import Emitter
from milepost.tools.home import Home, found
from milepost.tools.offspring import MARK, kill_marked
from milepost.tools.pending import Stash, Stashed, stashing
from milepost.tools.raised import told
from milepost.tools.references import NOTHING, Revealed, known
from milepost.tools.results import RESULT_CHARS_MAX

TRACEBACK_CHARS_MAX = 10_000
PIECE_BYTES = 1_048_576

_STARTS_ANOTHER = frozenset(
    {"os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
)


class _Voice:
    """What is said for one call, by whoever still has its context."""

    def __init__(
        self,
        number: int,
        send: Callable[[Mapping[str, Any]], None],
        revealed: Revealed = NOTHING,
    ) -> None:
        self._number = number
        self._send = send
        self._revealed = revealed
        self._room = RESULT_CHARS_MAX
        self._counting = threading.Lock()

    def say(self, said: Mapping[str, Any]) -> None:
        """Say it for this call."""
        self._send({"number": self._number, **said})

    def progress(self, text: object) -> None:
        """Say how far the call is, as long as there is room."""
        whole = str(text)
        with self._counting:
            room = self._room
            piece = whole[: max(room, 0) + 1]
            self._room -= len(piece)
        if room >= 0 and piece:
            self.say({"progress": clean_text(piece)})

    def event(self, name: str, value: Json) -> None:
        """Tell of an event of the tool's own."""
        self.say({"event": {"name": name, "value": value}})

    def artifact(self, artifact: Artifact, content: bytes | None) -> None:
        """Hand over what the call has left behind, its content in pieces that a line can hold."""
        size = None if content is None else len(content)
        self.say({"artifact": asdict(artifact), "size": size})
        for start in range(0, size or 0, PIECE_BYTES):
            piece = memoryview(content or b"")[start : start + PIECE_BYTES]
            encoded = base64.b64encode(piece).decode()
            self.say({"content_of": artifact.id, "base64": encoded})

    def stashed(self, stashed: Stashed) -> None:
        """Hand over what the call has put off."""
        self.say({"stashed": asdict(stashed)})

    def log(self, _: object, level: str, event: MutableMapping[str, Any]) -> NoReturn:
        """Have the service log it, which masks what must not be read."""
        what = clean_text(str(event.pop("event", "")))
        fields = {
            clean_text(str(key)): loggable(value)
            for key, value in event.items()
            if key not in {"run", "call", "tool"}
        }
        shown = self._revealed.hide_in(fields)
        self.say({"log": {"level": level, "event": self._revealed.hide(what), "fields": shown}})
        raise structlog.DropEvent


class Isolated:
    """Answers calls over a socket until it is killed."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._pid = os.getpid()
        self._calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self._leaves_behind = False
        self._voice = _Voice(0, self._send)
        self._own_threads: set[int | None] = set()

    def run(self) -> NoReturn:
        """Answer calls."""
        sys.addaudithook(self._notice)
        structlog.configure(processors=[structlog.processors.format_exc_info, self._log])
        listening = threading.Thread(target=self._listen, name="milepost-calls", daemon=True)
        listening.start()
        self._own_threads = {threading.get_ident(), listening.ident}
        while True:
            request = orjson.loads(self._calls.get())
            self._leaves_behind = False
            revealed = known(request["secrets"])
            self._voice = _Voice(request["number"], self._send, revealed)
            answer = self._answer(request, revealed)
            self._leave_if_copy()
            leaves_behind = self._leaves_behind or self._has_other_threads()
            self._voice.say({**answer, "leaves_behind": leaves_behind})

    def _listen(self) -> None:
        """Take calls in; a tool that never returns must not outlive who called it."""
        with self._wire.makefile("rb") as lines:
            for line in lines:
                self._calls.put(line)
        if mark := os.environ.get(MARK):
            kill_marked(mark)
        os.killpg(0, signal.SIGKILL)

    def _answer(self, request: Mapping[str, Any], revealed: Revealed) -> dict[str, Json]:
        try:
            return {"result": self._called(request)}
        except BaseException as error:  # it ends the call, not the process
            lines = revealed.hide("".join(traceback.format_exception(error)))
            return {
                "error": told(error, revealed),
                "retryable": bool(getattr(error, "retryable", False)),
                "traceback": clean_text(lines[-TRACEBACK_CHARS_MAX:]),
            }

    def _called(self, request: Mapping[str, Any]) -> Json:
        sys.path[:] = request["path"]
        tool = _tool(request)
        said = request["context"]
        approval = said.pop("approval")
        voice = self._voice
        stash = Stash(**request["stash"], pass_on=voice.stashed)
        with (
            collecting(voice.artifact) as emissions,
            stashing(stash),
            ExitStack() as until,
        ):
            context = ToolContext(
                **said,
                approval=approval and Approved(**approval),
                progress=voice.progress,
                emit=Emitter(voice.event),
                emit_artifact=emissions.emit,
                stash_pending=stash.put,
                log=structlog.wrap_logger(
                    None, processors=[structlog.processors.format_exc_info, voice.log]
                ),
            )
            attempt = Attempt(tool, tool.values(request["arguments"]), context)
            if request["secrets"]:
                until.callback(attempt.entrust(request["secrets"]).end)
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

    def _log(self, logger: object, level: str, event: MutableMapping[str, Any]) -> NoReturn:
        """Log what no context was used for, as the call that is being answered."""
        self._voice.log(logger, level, event)

    def _send(self, said: Mapping[str, Any]) -> None:
        if os.getpid() != self._pid:
            return
        line = orjson.dumps(said, default=repr) + b"\n"
        with self._sending:
            self._wire.sendall(line)

    def _notice(self, event: str, _: tuple[Any, ...]) -> None:
        if event in _STARTS_ANOTHER:
            self._leaves_behind = True

    def _has_other_threads(self) -> bool:
        """Say whether a thread lives on that may speak or act during the next call."""
        # Unlike `threading`, this knows threads that were started without it as well.
        return not sys._current_frames().keys() <= self._own_threads  # noqa: SLF001

    def _leave_if_copy(self) -> None:
        """End what a tool's fork has left behind: the call is answered by one process alone."""
        if os.getpid() != self._pid:
            os._exit(0)


def _tool(request: Mapping[str, Any]) -> Tool:
    """Return the tool that is called, as far as its function is given what it takes."""
    function, parameters = found(Home(**request["home"])), request["parameters"]
    if parameters is None or not request["is_typed"]:
        return Tool(
            name=request["tool"],
            description="Isolated.",
            function=function,
            parameters=parameters,
        )
    # Types were written down beside the function, and no JSON Schema brings them along.
    near = vars(sys.modules[function.__module__]).values()
    for tool in (*_decorated(function), *(each for each in near if isinstance(each, Tool))):
        if tool.function is function and tool.schema.parameters == parameters:
            return tool
    raise ToolError(
        "its process does not find the types of its parameters; define the tool at the top, and in"
        " the module of its function, or annotate the function"
    )


def _decorated(function: Callable[..., Any]) -> tuple[Tool, ...]:
    return (tool_of(function),) if is_tool(function) else ()


if __name__ == "__main__":
    Isolated(socket.socket(fileno=int(sys.argv[1]))).run()
