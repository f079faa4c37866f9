"""`milepost serve` and `milepost worker`: a process that runs until it is told to stop."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import typer
import uvicorn

from milepost.api.bounded_http import BoundedHttp
from milepost.api.edge import Edge
from milepost.api.service import Api
from milepost.cli import leaving
from milepost.cli.beginning import begin
from milepost.cli.binding import bind
from milepost.cli.garbage import collect_rarely
from milepost.cli.greeting import greeting
from milepost.cli.open_files import allow_many
from milepost.core.errors import ConfigurationError, MilepostError
from milepost.settings import Settings
from milepost.wiring import Process, process

GRACE_S = 5


class Server(uvicorn.Server):
    """uvicorn, with the signals left to us: a drain is more than an end of accepting."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        self._on_started()


def serve(settings: Settings) -> None:
    """Serve until a signal says to stop, then drain."""
    begin(settings)
    allow_many()
    with closing(bind(settings.host, settings.port)) as listening:
        leaving.run(_serve(settings, listening))


async def _serve(settings: Settings, listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    async with process(settings) as running:
        collect_rarely()
        server = Server(
            _config(running.app), lambda: typer.echo(greeting(settings, running, port), nl=False)
        )
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await _until_stopped(running, serving)
        running.drain()
        server.should_exit = True
        await serving


def _config(app: Api | Edge) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedHttp,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE_S,
    )


def work(settings: Settings) -> None:
    """Drive runs, without an API, until a signal says to stop; then drain."""
    if not settings.slots:
        raise ConfigurationError("a worker with 0 slots would drive nothing: give it some --slots")
    begin(settings)
    allow_many()
    # Nobody can start anything at a worker, so it needs no keys wherever it binds its probes to.
    here = settings.model_copy(update={"host": "127.0.0.1"})
    if not settings.probe_port:
        leaving.run(_work(here))
        return
    with closing(bind(settings.host, settings.probe_port)) as listening:
        leaving.run(_work(here, listening))


async def _work(settings: Settings, listening: socket.socket | None = None) -> None:
    async with process(settings) as running, _probed(running, listening) as probing:
        collect_rarely()
        typer.echo(f"Milepost works on {running.address.shown}, {settings.slots} slots.")
        await _until_stopped(running, *probing)
        running.drain()


@asynccontextmanager
async def _probed(
    running: Process, listening: socket.socket | None
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Answer probes there, if anywhere, until the worker drains; yield what does that."""
    if listening is None:
        yield []
        return
    server = Server(_config(running.app.probes), lambda: None)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield [serving]
    finally:
        server.should_exit = True
        await serving


async def _until_stopped(running: Process, *parts: asyncio.Task[Any]) -> None:
    """Wait until a signal asks for a drain, or a part ends. Raises if one of the process died."""
    told = asyncio.Event()
    _on_signals(told)
    waiting = asyncio.create_task(told.wait())
    first: set[Awaitable[Any]] = {waiting, running.died, *parts}
    await asyncio.wait(map(asyncio.ensure_future, first), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.died.done():
        raise MilepostError(
            f"{running.died.result()} died, which this process cannot do without; its log says why",
            code="part_died",
        )


def _on_signals(told: asyncio.Event) -> None:
    """Drain at the first signal. A second SIGINT then has its usual effect: it ends us at once.

    The end of a terminal is one, too, unless whoever started us had us outlive it.
    """
    loop = asyncio.get_running_loop()

    def tell() -> None:
        told.set()
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in (signal.SIGTERM, signal.SIGINT, *(() if outlives else (signal.SIGHUP,))):
        loop.add_signal_handler(number, tell)
