"""An MCP server as a process: messages are lines, in both directions (MCP, transports, stdio)."""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import mcp_types
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from structlog.stdlib import BoundLogger, get_logger

from milepost.core.errors import ToolError

_LOG: BoundLogger = get_logger("milepost.tools")

LINE_BYTES_MAX = 16 * 1024 * 1024
FLUSH_S = 0.5
LEAVE_S = 2.0

_ENDED = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)

Arrivals = MemoryObjectSendStream[SessionMessage | Exception]
Departures = MemoryObjectReceiveStream[SessionMessage]


@asynccontextmanager
async def speaking_with(
    command: Sequence[str],
    environment: Mapping[str, str],
    cwd: str | None,
    on_end: Callable[[ToolError], None],
) -> AsyncGenerator[TransportStreams, None]:
    """Start a process with exactly this environment; yield what it says, and what it is told.

    A line of more than `LINE_BYTES_MAX` bytes ends what it says, and is told to `on_end` before.
    In the end the process is asked to leave, and then made to, with all of its group; one that not
    even that ends is left behind. Raises OSError if it cannot be started.
    """
    process = await anyio.open_process(
        command,
        env=environment,
        cwd=cwd,
        stderr=sys.__stderr__ or sys.stderr,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    arrivals, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    told, departures = anyio.create_memory_object_stream[SessionMessage](0)
    flushed = anyio.Event()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_hear, process.stdout, arrivals, on_end)
            tasks.start_soon(_tell, departures, process.stdin, arrivals, flushed)
            try:
                yield heard, told
            finally:
                with anyio.CancelScope(shield=True):
                    heard.close()  # Whoever is stuck in saying more would not hear of the end.
                    told.close()
                    with anyio.move_on_after(FLUSH_S):
                        await flushed.wait()
                    await _dismiss(process, process.stdin)
                tasks.cancel_scope.cancel()
    finally:
        _signal(process, signal.SIGKILL)
        await _bury(process)


async def _hear(
    output: ByteReceiveStream, arrivals: Arrivals, on_end: Callable[[ToolError], None]
) -> None:
    """Pass each line on; then read on, and drop it, so that the process can come to its end."""
    lines, astray = BufferedByteReceiveStream(output), _Astray()
    with suppress(anyio.IncompleteRead, *_ENDED):
        async with arrivals:
            try:
                while True:
                    line = await lines.receive_until(b"\n", LINE_BYTES_MAX)
                    message = _message(line)
                    if isinstance(message, Exception):
                        astray.note(line)
                    await arrivals.send(message)
            except anyio.DelimiterNotFound:
                on_end(ToolError(f"it said more than {LINE_BYTES_MAX} bytes in one line"))
                return  # To read on would only have it say more.
    with suppress(*_ENDED):
        while True:
            await output.receive()


class _Astray:
    """Lines that are no messages. The first one is told of, the tenth, the hundredth, and so on.

    None is quoted: it may repeat a secret.
    """

    def __init__(self) -> None:
        self._lines = 0
        self._told_next = 1

    def note(self, line: bytes) -> None:
        """Count one more."""
        self._lines += 1
        if self._lines == self._told_next:
            self._told_next *= 10
            bytes_ = len(line)
            _LOG.warning("an MCP server wrote what is no message", lines=self._lines, bytes=bytes_)


async def _tell(
    departures: Departures, input_: ByteSendStream, arrivals: Arrivals, flushed: anyio.Event
) -> None:
    """Write each message as a line; a process that takes none says nothing more either."""
    try:
        async with departures:
            async for each in departures:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                await input_.send(text.encode() + b"\n")
    except _ENDED:
        await arrivals.aclose()
    finally:
        flushed.set()


def _message(line: bytes) -> SessionMessage | Exception:
    """Return the message that a line is, or why it is none, which the session goes on after."""
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _dismiss(process: Process, input_: ByteSendStream) -> None:
    """End the process as MCP has it: close what it reads from, then SIGTERM, then SIGKILL."""
    with suppress(*_ENDED):
        await input_.aclose()
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with anyio.move_on_after(LEAVE_S):
            await process.wait()
            return
        _signal(process, sign)


async def _bury(process: Process) -> None:
    """Close what is left of the process, unless the system holds it: whoever waits may do for ever.

    That is what waiting for a disk that is gone does, for one.
    """
    with anyio.move_on_after(LEAVE_S, shield=True):
        await process.wait()
    if process.returncode is None:
        _LOG.warning("an MCP server's process does not end, and is left behind", pid=process.pid)
        return
    with anyio.CancelScope(shield=True):
        await process.aclose()


def _signal(process: Process, sign: signal.Signals) -> None:
    """Send a signal to the process, if it is still there, and to all that it has started."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
