"""The processes under torture: each has a place of its own, and is born again when it dies."""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.torture.nursery import Child, Nursery
from tests.torture.timeline import Life, Span, Timeline

READY_S = 120.0
DRAIN_S = 60.0
LOOK_S = 0.02
AGAIN_S = 0.2
STARTS_MAX = 40


@dataclass(eq=False, slots=True)
class Member:
    """A place in the fleet: what is started there, and who holds it now.

    `troubled` is set while something is being done to it, so that no second thing is. `network` is
    the way to the database that may break, and `troubles` when it was frozen or cut off.
    """

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    skew_s: float = 0.0
    child: Child | None = None
    life: Life | None = None
    troubled: bool = False
    network: str | None = None
    troubles: list[Span] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Fleet:
    """Starts, kills, freezes and drains its members. What ends by itself is in `surprises`."""

    nursery: Nursery
    timeline: Timeline
    members: list[Member]
    surprises: list[str] = field(default_factory=list)
    _outputs: int = 0
    _closing: bool = False

    async def start_all(self) -> None:
        """Bring the database up to date, and start every member, one after the other."""
        environment = self.members[0].environment
        migrating = await self.nursery.bear(("migrate",), environment, "migrated")
        async with asyncio.timeout(READY_S):
            code = await migrating.ended
        assert code == 0, (self.nursery.folder / "stderr").read_text()
        for member in self.members:
            await self.start(member)

    async def start(self, member: Member) -> None:
        """Start a process in the member's place; return once it says that it works."""
        for _ in range(STARTS_MAX):
            if self._closing or await self._begin(member):
                return
            # Its database may be away: what keeps processes alive would try again, too.
            await asyncio.sleep(AGAIN_S)
        raise AssertionError(f"{member.name} did not start in {STARTS_MAX} tries")

    async def kill(self, member: Member) -> None:
        """Kill the member without a word, and let another process take its place."""
        assert member.child
        assert member.life
        member.life.killed_s = time.time()
        member.child.signal(signal.SIGKILL)
        await member.child.ended
        await self.start(member)

    async def drain(self, member: Member) -> None:
        """End the member as an orchestrator would, and start another in its place."""
        assert member.child
        assert member.life
        member.life.killed_s = time.time()
        member.child.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(DRAIN_S):
                code = await asyncio.shield(member.child.ended)
        except TimeoutError:
            self.surprises.append(f"{member.name} did not end within {DRAIN_S:.0f} s of SIGTERM")
            member.child.signal(signal.SIGKILL)
            code = await member.child.ended
        if code not in {0, -signal.SIGKILL}:
            self.surprises.append(f"{member.name} ended with {code} after SIGTERM")
        await self.start(member)

    async def pause(self, member: Member, seconds: float) -> None:
        """Freeze the member for so long."""
        assert member.child
        assert member.life
        with self.timeline.during(member.troubles):
            member.child.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                member.child.signal(signal.SIGCONT)

    async def troubled(self, member: Member, trouble: Coroutine[Any, Any, None]) -> None:
        """Do something to the member, and nothing else meanwhile."""
        member.troubled = True
        try:
            await trouble
        finally:
            member.troubled = False

    def idle(self, wanted: Callable[[Member], bool] = lambda _: True) -> list[Member]:
        """Return the members that work and that nothing is being done to."""
        return [
            member
            for member in self.members
            if not member.troubled and member.child and member.child.alive and wanted(member)
        ]

    def fallen(self) -> list[Member]:
        """Return the members that ended by themselves, and that nobody has raised again."""
        return [
            member
            for member in self.members
            if not member.troubled and member.child and not member.child.alive
        ]

    async def close(self) -> None:
        """Kill all."""
        self._closing = True
        for member in self.members:
            if member.child:
                member.child.signal(signal.SIGKILL)
                await member.child.ended

    async def _begin(self, member: Member) -> bool:
        self._outputs += 1
        stdout = f"output-{self._outputs}"
        environment = dict(member.environment)
        if member.skew_s:
            environment["TORTURE_SKEW_S"] = str(member.skew_s)
        life = Life(member.name, 0, time.time(), member.skew_s, troubles=member.troubles)
        child = await self.nursery.bear(member.arguments, environment, stdout)
        life.pid = child.pid
        self.timeline.lives.append(life)
        member.child, member.life = child, life
        child.ended.add_done_callback(lambda ended: self._ended(life, ended))
        if not await self._is_ready(child, self.nursery.folder / stdout):
            return False
        life.ready_s = time.time()
        return True

    async def _is_ready(self, child: Child, output: Path) -> bool:
        """Wait for the first word of a process; say whether there was one."""
        async with asyncio.timeout(READY_S):
            while child.alive:
                if await asyncio.to_thread(_has_words, output):
                    return True
                await asyncio.sleep(LOOK_S)
        return False

    def _ended(self, life: Life, ended: asyncio.Future[int]) -> None:
        life.ended_s = time.time()
        if life.ready_s is not None and life.killed_s is None and not self._closing:
            self.surprises.append(f"{life.member} ended by itself, with {ended.result()}")


def _has_words(output: Path) -> bool:
    return output.exists() and bool(output.stat().st_size)
