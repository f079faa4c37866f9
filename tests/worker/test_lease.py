"""The lease: renewed whatever the event loop does, and never believed in for too long."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from milepost.core.errors import FencedError, MilepostError
from milepost.store import queue
from milepost.store.thread import SqliteThreadStore
from milepost.store.work import Work
from milepost.worker.lease import AGAIN_S, LAG_EXIT_S, LAG_LOG_S, LeaseThread
from tests.clock import Clock

T = TypeVar("T")

TIMEOUT_S = 10
TTL_S = 15.0


class Beats:
    """A thread's store that counts its writes, and breaks or is slow when it is told to."""

    def __init__(self, path: Path, take: Callable[[], None] = lambda: None) -> None:
        self._store = SqliteThreadStore(path)
        self._take = take
        self._counted = threading.Condition()
        self.writes = 0
        self.error: Exception | None = None

    def write(self, work: Work[T]) -> T:
        """Do the work, or fail as told."""
        try:
            if self.error is not None:
                raise self.error
            done = self._store.write(work)
            self._take()
            return done
        finally:
            with self._counted:
                self.writes += 1
                self._counted.notify_all()

    def close(self) -> None:
        """Close the connection."""
        self._store.close()

    def beat(self, times: int = 2) -> None:
        """Wait until so many more writes were tried; the second began after this was called."""
        with self._counted:
            goal = self.writes + times
            assert self._counted.wait_for(lambda: self.writes >= goal, TIMEOUT_S)


class Holding:
    """A lease thread with a clock of its own, on a real file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock()
        self.lost: list[str] = []
        self.told = threading.Event()
        self.answer_s = 0.0
        self._running = threading.Event()
        self._opened: list[Beats] = []
        self.lease = LeaseThread(
            "w1", self._open, self._lose, ttl_s=TTL_S, renew_s=0.001, clock=self.clock
        )

    @property
    def beats(self) -> Beats:
        """The connection of the thread, which was opened last."""
        return self._opened[-1]

    def start(self) -> "Holding":
        """Register, and wait for the thread's first renewal."""
        self.lease.start()
        assert self._running.wait(TIMEOUT_S)
        self.beats.beat()
        return self

    def wait_until_lost(self) -> str:
        """Return why the lease was lost."""
        assert self.told.wait(TIMEOUT_S)
        return self.lost[0]

    def write(self, work: Work[Any]) -> None:
        """Do work as another process would."""
        other = SqliteThreadStore(self.path)
        other.write(work)
        other.close()

    def _open(self) -> Beats:
        self._opened.append(Beats(self.path, self._wait_for_an_answer))
        if len(self._opened) > 1:
            self._running.set()
        return self._opened[-1]

    def _wait_for_an_answer(self) -> None:
        self.clock.now += self.answer_s

    def _lose(self, why: str) -> None:
        self.lost.append(why)
        self.told.set()


@pytest.fixture
def holding(database: Path) -> Iterator[Holding]:
    holding = Holding(database)
    yield holding
    holding.lease.stop()


def raised(check: Callable[[], None]) -> bool:
    try:
        check()
    except FencedError:
        return True
    return False


def test_the_lease_is_renewed_while_the_loop_stands_still(holding: Holding) -> None:
    holding.start()

    holding.clock.now += 10  # This very thread, which is the loop's, does nothing but wait.
    holding.beats.beat()
    holding.clock.now += 10
    holding.beats.beat()

    assert not raised(holding.lease.check)
    assert holding.lost == []


def test_nothing_may_begin_a_margin_before_the_lease_lapses(holding: Holding) -> None:
    holding.start()
    holding.beats.error = MilepostError("the database is away")
    holding.beats.beat()

    holding.clock.now += TTL_S - 2.1
    assert not raised(holding.lease.check)
    holding.clock.now += 0.2

    assert raised(holding.lease.check)


def test_a_lease_is_held_from_its_start_and_counts_from_when_it_was_asked_for(
    database: Path,
) -> None:
    """Others count from when the database has written it, which may be long before it answers."""
    holding = Holding(database)
    holding.answer_s = TTL_S - 2.1
    lease = LeaseThread(
        "w1", holding._open, holding._lose, ttl_s=TTL_S, renew_s=TIMEOUT_S, clock=holding.clock
    )

    lease.start()

    assert lease.held
    holding.clock.now += 0.2
    assert not lease.held
    lease.stop()


def test_a_renewal_counts_from_when_it_was_asked_for(holding: Holding) -> None:
    lease = LeaseThread("w1", holding._open, holding._lose, ttl_s=TTL_S, clock=holding.clock)
    store = holding._open()
    store.write(queue.register("w1", 1_000))
    holding.answer_s = TTL_S - 2.1

    lease._renew(store)

    store.close()
    assert lease.held
    holding.clock.now += 0.2
    assert not lease.held


def test_a_renewal_that_comes_when_the_lease_may_have_lapsed_leaves_a_gap(
    holding: Holding,
) -> None:
    """Whoever believed it steady would sweep others that came back no sooner than it did."""
    lease = LeaseThread("w1", holding._open, holding._lose, ttl_s=TTL_S, clock=holding.clock)
    store = holding._open()
    store.write(queue.register("w1", 1_000))
    lease._renew(store)

    holding.clock.now += TTL_S - 2
    lease._renew(store)
    holding.clock.now += 2

    store.close()
    assert lease.held
    assert not lease.steady


def test_a_worker_that_was_declared_dead_is_told_once_and_may_begin_nothing(
    holding: Holding,
) -> None:
    holding.start()

    holding.write(queue.dismiss("w1"))

    assert "declared dead" in holding.wait_until_lost()
    assert raised(holding.lease.check)
    holding.lease.stop()
    assert len(holding.lost) == 1


def test_a_database_that_is_away_for_a_while_costs_nothing(holding: Holding) -> None:
    holding.start()
    holding.beats.error = MilepostError("the database is away")
    holding.beats.beat()

    holding.clock.now += 5
    holding.beats.error = None
    holding.beats.beat()
    holding.clock.now += TTL_S - 3

    assert not raised(holding.lease.check)
    assert holding.lease.steady


def test_a_lease_that_could_not_be_renewed_is_tried_again_soon(holding: Holding) -> None:
    """The database may be back long before the next renewal, and runs that go on need the lease."""
    lease = LeaseThread("w1", holding._open, holding._lose, ttl_s=TTL_S, renew_s=5)
    store = holding._open()
    store.write(queue.register("w1", 1_000))
    renewed = lease._renew(store)
    store.error = MilepostError("the database is away")

    missed = lease._renew(store)

    store.close()
    assert (renewed, missed) == (5, AGAIN_S)


def test_a_lease_is_steady_once_it_stood_for_its_whole_time(holding: Holding) -> None:
    holding.start()
    assert not holding.lease.steady

    for _ in range(3):
        holding.clock.now += TTL_S / 3
        holding.beats.beat()

    assert holding.lease.steady


def test_a_lease_that_had_a_gap_must_stand_as_long_again(holding: Holding) -> None:
    """After an outage of the database everybody has lapsed: nobody may sweep anybody yet."""
    holding.start()
    for _ in range(3):
        holding.clock.now += TTL_S / 3
        holding.beats.beat()

    holding.beats.error = MilepostError("the database is away")
    holding.beats.beat()
    holding.clock.now += TTL_S
    assert not holding.lease.steady
    holding.beats.error = None
    holding.beats.beat()

    assert not raised(holding.lease.check)
    assert not holding.lease.steady
    for _ in range(3):
        holding.clock.now += TTL_S / 3
        holding.beats.beat()
    assert holding.lease.steady


def test_a_loop_that_stands_still_for_long_is_looked_into(
    holding: Holding, capfd: pytest.CaptureFixture[str]
) -> None:
    holding.start()

    holding.clock.now += LAG_LOG_S + 1
    holding.beats.beat()

    assert "test_a_loop_that_stands_still_for_long_is_looked_into" in capfd.readouterr().err
    assert holding.lost == []


def test_a_loop_that_is_looked_into_in_vain_keeps_it(
    holding: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service may be started without anywhere to say what it sees."""
    monkeypatch.setattr(sys, "stderr", None)
    holding.start()

    holding.clock.now += LAG_LOG_S + 1
    holding.beats.beat()

    assert holding.lost == []
    assert not raised(holding.lease.check)


def test_a_loop_that_stands_still_for_too_long_loses_the_lease(holding: Holding) -> None:
    holding.start()

    holding.clock.now += LAG_EXIT_S + 1

    assert "stands still for 301 s" in holding.wait_until_lost()


def test_a_loop_that_turns_keeps_it(holding: Holding) -> None:
    holding.start()

    for _ in range(3):
        holding.clock.now += LAG_EXIT_S - 1
        holding.lease.pulse()
        holding.beats.beat()

    assert holding.lost == []


def test_a_thread_that_dies_says_so(holding: Holding) -> None:
    """Else the worker would go on for ever, able to begin nothing."""
    holding.start()

    holding.beats.error = RuntimeError("a bug in the driver")

    assert "a bug in the driver" in holding.wait_until_lost()
    assert raised(holding.lease.check)


def test_a_database_that_is_away_at_the_start_is_said_at_the_start(tmp_path: Path) -> None:
    holding = Holding(tmp_path / "not migrated.db")

    with pytest.raises(MilepostError):
        holding.lease.start()

    holding.lease.stop()
