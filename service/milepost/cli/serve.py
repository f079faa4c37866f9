"""`milepost serve` and `milepost worker`: a process until it is told to stop."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
import uvloop

from milepost.core.errors import ConfigurationError
from milepost.settings import Settings
from milepost.telemetry import logs
from milepost.wiring import Process, process

GRACE_S = 5

_CURLS = """
Start a run and watch it:
  curl -N {base}/v1/runs -H 'Content-Type: application/json' \\
    -d '{{"agent":"demo","input":"Send a mail to ann@example.com that says hello","stream":true}}'

See what waits for a person:
  curl '{base}/v1/approvals?status=pending'

Say yes to the newest:
  curl {base}/v1/approvals/$(curl -s '{base}/v1/approvals?status=pending&limit=1' \\
    | grep -o 'apr_[0-9a-f]*' | head -1)/decision \\
    -H 'Content-Type: application/json' -d '{{"decision":"approve"}}'
"""


class Server(uvicorn.Server):
    """uvicorn, with the signals left to us: a drain is more than an end of accepting."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then drain."""
    logs.configure(settings.log_level, json=settings.log_json)
    uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    async with process(settings) as running:
        config = uvicorn.Config(
            running.app,
            host=settings.host,
            port=settings.port,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=65_536,
        )
        server = Server(config)
        _on_signals(lambda: _stop(running, server))
        serving = asyncio.create_task(server.serve())
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        if server.started:
            port = server.servers[0].sockets[0].getsockname()[1]
            _greet(settings, running, f"http://{_shown(settings.host)}:{port}")
        await serving
        if not server.started:
            raise ConfigurationError(f"cannot bind to {settings.host}:{settings.port}")


def work(settings: Settings) -> None:
    """Drive runs, without an API, until SIGTERM or SIGINT."""
    logs.configure(settings.log_level, json=settings.log_json)
    uvloop.run(_work(settings))


async def _work(settings: Settings) -> None:
    async with process(settings) as running:
        stopping = asyncio.Event()
        _on_signals(stopping.set)
        print(f"Milepost works on {running.address.shown} with {settings.slots} slots", flush=True)  # noqa: T201
        await stopping.wait()
        running.drain()


def _stop(running: Process, server: Server) -> None:
    running.drain()
    server.should_exit = True


def _on_signals(stop: object) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)  # type: ignore[arg-type]


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _greet(settings: Settings, running: Process, base: str) -> None:
    lines = [f"Milepost serves {base} on {running.address.shown}, {settings.slots} slots."]
    if running.open_mode:
        lines.append(
            "OPEN MODE: there are no API keys, so whoever is on this machine may do everything."
        )
    if settings.demo:
        lines.append(_CURLS.format(base=base))
    print("\n".join(lines), flush=True)  # noqa: T201
