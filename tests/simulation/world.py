"""The whole of one simulation: hosts, clients, one database, and what happened, in order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any

from tests.simulation.agents import Plan
from tests.simulation.database import Database
from tests.simulation.host import Host
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.storm import Storm
from tests.simulation.watch import Watch
from tests.simulation.weather import Weather

BEGAN_MS = 1_790_000_000_000
AFTERMATH_S = 0.3
SKEWS_MS = (0, 0, 0, 40, -40, 900, -900, 15_000, -15_000)


class World:
    """Everything that a seed decides."""

    def __init__(self, seed: int, database: Database) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.database = database
        self.loop = VirtualLoop(self.random)
        self.weather = Weather(self.random)
        self.clients = Process("clients")
        self.plans: dict[int, Plan] = {}
        self.has_schedules = False
        self.hosts: list[Host] = []
        self.trace: list[tuple[Any, ...]] = []
        self.watch = Watch(self)
        self.storm = Storm(self, self.random.uniform(3.0, 9.0))
        self.violation: str | None = None
        self.on_stall: Callable[[str], None] = lambda _: None
        self.is_wanted: Callable[[], object] = lambda: True
        self._is_ending = False
        self._hosts_made = 0

    def violate(self, what: str) -> None:
        """End the simulation: something happened that must not."""
        if self.violation is None:
            self.violation = what
            self.tell("VIOLATION", what)
        self.loop.over = True

    def end_if_over(self) -> None:
        """End the simulation if every run is over, and nobody outside wants anything more."""
        if not self._is_ending and self._is_over():
            self._is_ending = True
            outside = self.loop.context_of(self.loop.world)
            # Whoever stands still has not understood yet, and may still do something foolish.
            until_s = max(self.storm.still_until_s, self.loop.time()) + AFTERMATH_S
            self.loop.call_at(until_s, self._end, context=outside)

    def _is_over(self) -> bool:
        return not self.is_wanted() and all(seen.is_over for seen in self.watch.runs.values())

    def _end(self) -> None:
        self._is_ending = False
        self.loop.over = self._is_over()

    def now_ms(self) -> float:
        """Return the database's time, which is the true one."""
        return BEGAN_MS + self.loop.time() * 1000

    def tell(self, *said: object) -> None:
        """Keep what happened, for the seed's trace."""
        self.trace.append((round(self.loop.time(), 6), *said))

    def open_host(self) -> Host:
        """Start another machine."""
        self._hosts_made += 1
        skew_ms = self.random.choice(SKEWS_MS) if self.weather.is_rough else 0
        host = Host(self, f"host {self._hosts_made}", skew_ms)
        host.engine.on_commit = lambda told: self.storm.strike(host, told)
        self.hosts.append(host)
        self.tell("a host starts", host.name, skew_ms)
        host.start()
        return host

    def close_host(self, host: Host) -> None:
        """Let a machine be gone from one moment to the next."""
        self.hosts.remove(host)
        for process in (host.main, host.thread):
            self.loop.kill(process)
        for answer in list(host.waiting):
            if not answer.done():
                answer.set_exception(ConnectionResetError(f"{host.name} is gone"))
        self.tell("a host is gone", host.name)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed; `violation` is what a mutant's seed should have, and no other."""

    seed: int
    violation: str | None
    trace: list[tuple[Any, ...]]
    befell: dict[str, int] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    virtual_s: float = 0.0
    steps: int = 0

    @property
    def hash(self) -> str:
        """Return what two runs of the same seed have in common."""
        return sha256(repr((self.violation, self.trace)).encode()).hexdigest()

    def told(self) -> str:
        """Return the trace for people."""
        lines = [f"seed {self.seed}: {self.violation or 'no violation'}"]
        for at_s, *said in self.trace:
            lines.append(f"{at_s:10.4f}  {'  '.join(map(str, said))}")
        return "\n".join(lines)
