"""Whether the database does what it is asked: counted, and told of in the log.

A database that answers may refuse all the same, because its disk is full or it is a standby. Then
clients get 503 and runs wait, and no loop of this process may have anything to complain about.
"""

import time
from collections.abc import Callable

from milepost.telemetry.logs import logger
from milepost.telemetry.metrics import Metrics

AGAIN_S = 30.0
CALM_S = 10.0


class DatabaseUp:
    """Told by the stores what became of what they asked: None, or why nothing did.

    A disk that is nearly full takes this and refuses that, a hundred times a second. So trouble is
    told of as it begins and every `AGAIN_S` seconds, and is over when something was answered after
    `CALM_S` seconds in which nothing failed.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._failures = 0
        self._begun_s = self._failed_s = self._told_s = 0.0
        self._log = logger("database")

    def __call__(self, error: Exception | None) -> None:
        """Take what became of it."""
        if error is not None:
            self._failed(error)
        elif self._failures and self._clock() - self._failed_s >= CALM_S:
            self._calmed()

    def _failed(self, error: Exception) -> None:
        now_s = self._failed_s = self._clock()
        self._metrics.count_database_failure()
        self._failures += 1
        if self._failures == 1:
            self._begun_s = now_s
        elif now_s - self._told_s < AGAIN_S:
            return
        self._told_s = now_s
        # The lines behind the first are hints for who wrote the statement, and may quote it.
        why = str(error).partition("\n")[0] or type(error).__name__
        self._log.warning(
            "the database cannot be used: clients get 503 and runs wait, until it can",
            error=why,
            failures=self._failures,
        )

    def _calmed(self) -> None:
        lasted_s = round(self._failed_s - self._begun_s, 1)
        self._log.info("the database can be used again", lasted_s=lasted_s, failures=self._failures)
        self._failures = 0
