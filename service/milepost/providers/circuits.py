"""Circuits: how often models failed in a row, and who may ask them, in the process's own memory."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

FORGET_S = 3600.0
CIRCUITS_MAX = 10_000
# How a probe ends is known soon, although nobody knows when.
PROBE_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How many failures in a row open a circuit, and for how long."""

    max_failures: int = 3
    cooldown_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Entry:
    """Leave to ask, or the wait until it may be given; `probe` marks the one that tries it out."""

    wait_s: float = 0.0
    probe: str = ""


class Circuits(Protocol):
    """Counts failures in a row by name. A circuit opens with the last that is allowed.

    After its cooldown one caller may probe it, while the others still wait: if that one succeeds
    the circuit is closed, if it fails it is open again, and if it leaves the next may probe. Each
    leave to ask is given back by one of `succeed`, `fail` and `leave`; a probe that never is lapses
    after another cooldown. A circuit without any failure for an hour is forgotten.
    """

    async def enter(self, name: str) -> Entry: ...

    async def succeed(self, name: str) -> None: ...

    async def fail(self, name: str) -> None: ...

    async def leave(self, name: str, entry: Entry) -> None: ...


@dataclass(slots=True)
class _Circuit:
    """`open_until` is None as long as the circuit was never opened since its last success."""

    failures: int = 0
    failed_at: float = 0.0
    open_until: float | None = None
    probe: str = ""
    probe_until: float = 0.0


class InProcessCircuits:
    """Keeps the circuits that failed last; `clock` is monotonic and in seconds.

    Event loops in several threads may share it.
    """

    def __init__(
        self,
        tolerance: Tolerance | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        tolerance = tolerance or Tolerance()
        self._max_failures = tolerance.max_failures
        self._cooldown_s = tolerance.cooldown_s
        self._clock = clock
        self._circuits: OrderedDict[str, _Circuit] = OrderedDict()
        self._probes = count(1)
        self._held = threading.Lock()

    async def enter(self, name: str) -> Entry:
        """Return the leave to ask, or how long to wait for it."""
        with self._held:
            circuit = self._find(name)
            if circuit is None or circuit.open_until is None:
                return Entry()
            now = self._clock()
            if now < circuit.open_until:
                return Entry(circuit.open_until - now)
            if now < circuit.probe_until:
                return Entry(min(circuit.probe_until - now, PROBE_WAIT_S))
            circuit.probe = str(next(self._probes))
            circuit.probe_until = now + self._cooldown_s
            return Entry(probe=circuit.probe)

    async def succeed(self, name: str) -> None:
        """Close the circuit."""
        with self._held:
            self._circuits.pop(name, None)

    async def fail(self, name: str) -> None:
        """Count a failure; open the circuit if it was the last allowed, or the probe's."""
        with self._held:
            circuit = self._find(name) or _Circuit()
            now = circuit.failed_at = self._clock()
            circuit.failures += 1
            # One that was let in before the circuit opened, and fails since, prolongs nothing.
            still_open = circuit.open_until is not None and now < circuit.open_until
            if circuit.failures >= self._max_failures and not still_open:
                circuit.open_until = now + self._cooldown_s
                self._end_probe(circuit)
            self._keep(name, circuit)

    async def leave(self, name: str, entry: Entry) -> None:
        """Let the next one probe, if this was the probe."""
        with self._held:
            circuit = self._find(name)
            if circuit is not None and entry.probe and circuit.probe == entry.probe:
                self._end_probe(circuit)

    def _end_probe(self, circuit: _Circuit) -> None:
        circuit.probe = ""
        circuit.probe_until = 0.0

    def _find(self, name: str) -> _Circuit | None:
        circuit = self._circuits.get(name)
        if circuit is None:
            return None
        if self._clock() >= circuit.failed_at + self._cooldown_s + FORGET_S:
            del self._circuits[name]
            return None
        return circuit

    def _keep(self, name: str, circuit: _Circuit) -> None:
        self._circuits[name] = circuit
        self._circuits.move_to_end(name)
        while len(self._circuits) > CIRCUITS_MAX:
            self._circuits.popitem(last=False)
