"""Whether Redis answers: a gauge, a line in the log when it is lost, and one when it is back.

Nothing fails without Redis, so that nobody would notice.
"""

from milepost.telemetry.logs import logger
from milepost.telemetry.metrics import Metrics


class RedisUp:
    """Told by those who use Redis what became of it: None, or why it does not answer.

    The gauge is the link's, which asks all the time; the cache only sees what its callers ask.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lost: set[str] = set()
        self._log = logger("redis")
        metrics.set_redis_up(up=False)

    def link(self, error: Exception | None) -> None:
        """Take what the link to other processes found out."""
        self._metrics.set_redis_up(up=error is None)
        consequence = "live text does not reach other processes, and events are found by polling"
        self._say("the link", consequence, error)

    def cache(self, error: Exception | None) -> None:
        """Take what the cache of replies found out."""
        self._say("the cache", "models are asked instead", error)

    def limits(self, error: Exception | None) -> None:
        """Take what those who count model calls found out."""
        self._say("the count of calls", "each process keeps to its limits alone", error)

    def requests(self, error: Exception | None) -> None:
        """Take what those who count requests found out."""
        self._say("the count of requests", "each process counts those of its own", error)

    def _say(self, part: str, consequence: str, error: Exception | None) -> None:
        if error is not None:
            self._lost.add(part)
            why = f"{type(error).__name__}: {error}"
            self._log.warning(f"{part} has lost Redis: {consequence}", error=why)
        elif part in self._lost:
            self._lost.remove(part)
            self._log.info(f"{part} has Redis back")
