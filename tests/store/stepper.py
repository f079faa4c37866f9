"""Two open transactions on a real Postgres, in every order in which one can come into the other."""

import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import psycopg

from milepost.core.errors import MilepostError
from milepost.store.engine_postgres import translated
from milepost.store.postgres_session import connect
from milepost.store.work import Call, Rows, Work

S = TypeVar("S")
T = TypeVar("T")

WAIT_MAX_S = 20
POLL_S = 0.001


class Stepper:
    """Drives work on a connection of its own, one statement at a time."""

    def __init__(self, url: str, work: Work[Any]) -> None:
        self._connection = connect(url)
        self._connection.execute("BEGIN")
        self._work = work
        self._begun = False
        self._single = False
        self._calls: deque[Call] = deque()
        self._answers: list[Rows] = []
        self._result: Any = None
        self.ended = False

    @property
    def pid(self) -> int:
        """The server process behind the connection."""
        return self._connection.info.backend_pid

    def step(self) -> None:
        """Execute the next statement, or find that there is none."""
        if not self._calls:
            self._ask()
        if self.ended:
            return
        text, values = self._calls.popleft().rendered("postgresql")
        with translated():
            cursor = self._connection.execute(text.encode(), values)
            self._answers.append(cursor.fetchall() if cursor.description else [])

    def conclude(self) -> Any:
        """Do the rest and commit; return the result, or the error for which it was rolled back."""
        try:
            while not self.ended:
                self.step()
            with translated():
                self._connection.execute("COMMIT")
        except MilepostError as error:
            self._connection.execute("ROLLBACK")
            return error
        return self._result

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _ask(self) -> None:
        """Hand over the answers, and see what is wanted next."""
        try:
            asked = self._work.send(self._reply())
        except StopIteration as finished:
            self._result = finished.value
            self.ended = True
            return
        self._single = isinstance(asked, Call)
        self._calls.extend((asked,) if isinstance(asked, Call) else asked)
        self._answers = []

    def _reply(self) -> Any:
        if not self._begun:
            self._begun = True
            return None
        return self._answers[0] if self._single else self._answers


@dataclass(frozen=True, slots=True)
class Contest(Generic[S]):
    """Two pieces of work that want the same; `subject` is what it is about.

    `meanwhile` is what happens after the first has begun and before the second comes in.
    """

    subject: S
    one: Work[Any]
    other: Work[Any]
    meanwhile: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Raced(Generic[S]):
    """How a contest went: each side's result, or its error."""

    subject: S
    one: Any
    other: Any
    order: str


async def orders(url: str, prepare: Callable[[], Awaitable[Contest[S]]]) -> AsyncIterator[Raced[S]]:
    """Run the contest anew for each statement of one side before which the other comes in whole.

    The last order is that in which all statements of one side are done but for its COMMIT.
    """
    for one_begins in (True, False):
        for pause_at in itertools.count():
            contest = await prepare()
            works = (contest.one, contest.other) if one_begins else (contest.other, contest.one)
            begun, came_in, paused_at_end = _race(url, *works, pause_at, contest.meanwhile)
            one, other = (begun, came_in) if one_begins else (came_in, begun)
            order = f"{'one' if one_begins else 'other'} paused after {pause_at}"
            yield Raced(contest.subject, one, other, order)
            if paused_at_end:
                break


def together(url: str, holding: Work[Any], *works: Work[Any]) -> list[Any]:
    """Have works come one after the other to locks that `holding` has; return their outcomes.

    Each stands at its first lock that another one has when the next comes, and all go on at once.
    """
    with (
        contextlib.ExitStack() as opened,
        psycopg.connect(url, autocommit=True) as observer,
        ThreadPoolExecutor(len(works)) as threads,
    ):
        holder, *others = (opened.enter_context(_stepper(url, each)) for each in (holding, *works))
        while not holder.ended:
            holder.step()
        running = []
        for other in others:
            running.append(threads.submit(other.conclude))
            _await_ended_or_blocked(observer, other.pid, running[-1])
        holder.conclude()
        return [each.result(WAIT_MAX_S) for each in running]


def _race(
    url: str,
    begins: Work[Any],
    comes_in: Work[Any],
    pause_at: int,
    meanwhile: Callable[[], object],
) -> tuple[Any, Any, bool]:
    """Let the first do some statements, then the second all; return both outcomes."""
    with (
        _stepper(url, begins) as first,
        _stepper(url, comes_in) as second,
        psycopg.connect(url, autocommit=True) as observer,
        ThreadPoolExecutor(1) as thread,
    ):
        failure = _steps(first, pause_at)
        meanwhile()
        running = thread.submit(second.conclude)
        _await_ended_or_blocked(observer, second.pid, running)
        paused_at_end = first.ended or failure is not None
        outcome = failure or first.conclude()
        return outcome, running.result(WAIT_MAX_S), paused_at_end


def _steps(stepper: Stepper, count: int) -> MilepostError | None:
    """Do `count` statements, and look whether that was all."""
    try:
        for _ in range(count):
            stepper.step()
        if not stepper._calls:
            stepper._ask()
    except MilepostError as error:
        stepper._connection.execute("ROLLBACK")
        return error
    return None


@contextlib.contextmanager
def _stepper(url: str, work: Work[T]) -> Iterator[Stepper]:
    stepper = Stepper(url, work)
    try:
        yield stepper
    finally:
        stepper.close()


def _await_ended_or_blocked(
    observer: psycopg.Connection[Any], pid: int, running: "Future[Any]"
) -> None:
    """Wait until the second side is through, or stands at a lock that the first one holds."""
    deadline = time.monotonic() + WAIT_MAX_S
    while not wait([running], POLL_S).done:
        row = observer.execute("SELECT cardinality(pg_blocking_pids(%s))", [pid]).fetchone()
        if row and row[0]:
            return
        assert time.monotonic() < deadline, "the second transaction neither ended nor was blocked"
