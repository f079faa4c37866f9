"""A Postgres and a Valkey of one's own, that can be killed and started again where they were.

`pg_ctl restart -m immediate` is what `ServerProcess.crash` and `start` do together: SIGQUIT to the
postmaster, which ends without a checkpoint, and a start that recovers from the write-ahead log.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import devservices

START_S = 60.0
LOOK_S = 0.02


@dataclass(slots=True)
class ServerProcess:
    """A server that is started with the same command again and again."""

    url: str
    origin: str
    durable: bool
    command: Sequence[str]
    log: Path
    ready: Callable[[], bool]
    user: devservices.User | None = None
    process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it; return once it takes connections."""
        with self.log.open("ab") as output:
            # Not asyncio's own: uvloop's cannot become another user.
            self.process = subprocess.Popen(  # noqa: ASYNC220 - a fork takes a moment
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=devservices._plain_environment(),
                preexec_fn=devservices._die_with_parent(signal.SIGQUIT),  # noqa: PLW1509
                user=self.user.uid if self.user else None,
                group=self.user.gid if self.user else None,
                extra_groups=[] if self.user else None,
                start_new_session=True,
            )
        async with asyncio.timeout(START_S):
            while not await asyncio.to_thread(self.ready):
                assert self.process.poll() is None, self.log.read_text(errors="replace")
                await asyncio.sleep(LOOK_S)

    async def crash(self, number: signal.Signals) -> None:
        """End it without a chance to put anything in order; return once it is gone."""
        assert self.process is not None
        self.process.send_signal(number)
        await asyncio.to_thread(self.process.wait)


@asynccontextmanager
async def postgres() -> AsyncIterator[ServerProcess | None]:
    """Start a Postgres; None where there is none. DEVSERVICES_DURABLE=1 lets it really sync."""
    binary = devservices._first_found(devservices._postgres_wheel, devservices._postgres_system)
    if binary is None:
        yield None
        return
    durable = bool(os.environ.get("DEVSERVICES_DURABLE"))
    with devservices._scratch_directory(in_memory=not durable) as base:
        user = devservices._unprivileged_user()
        programs = devservices._runnable_by(user, binary.path.parent, base)
        data = base / "data"
        await asyncio.to_thread(devservices._make_cluster, programs, data, user)
        port = devservices._free_port()
        server = ServerProcess(
            url=f"postgresql://test@127.0.0.1:{port}/postgres",
            origin=binary.origin,
            durable=durable,
            command=(
                *devservices._postgres_command(programs, data, port, durable=durable),
                # Else an immediate end loses what was committed: this is not about the disk.
                *("-c", "synchronous_commit=on"),
            ),
            log=base / "log",
            ready=lambda: devservices._postgres_is_ready(data),
            user=user,
        )
        await server.start()
        try:
            yield server
        finally:
            await server.crash(signal.SIGQUIT)


@asynccontextmanager
async def valkey() -> AsyncIterator[ServerProcess | None]:
    """Start a Valkey that keeps nothing; None where there is none."""
    binary = devservices._first_found(devservices._valkey_wheel, devservices._valkey_system)
    if binary is None:
        yield None
        return
    with devservices._scratch_directory(in_memory=True) as base:
        port = devservices._free_port()
        command = (str(binary.path), "--bind", "127.0.0.1", "--port", str(port), "--save", "")
        server = ServerProcess(
            url=f"redis://127.0.0.1:{port}/0",
            origin=binary.origin,
            durable=False,
            command=(*command, "--appendonly", "no", "--dir", str(base)),
            log=base / "log",
            ready=lambda: devservices._redis_is_ready(port),
        )
        await server.start()
        try:
            yield server
        finally:
            await server.crash(signal.SIGKILL)
