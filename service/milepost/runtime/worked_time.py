"""How long workers have been at a run: the time between a claim and what lets go of it."""

from milepost.core.events import Event, RunResumed, RunRetrying, RunStarted, RunWaiting


class WorkedTime:
    """Folds the moments of a log; waiting and queueing cost nothing."""

    def __init__(self) -> None:
        self._worked_ms = 0
        self._since_ms: int | None = None
        self._latest_ms = 0

    def feed(self, event: Event, time_ms: int) -> None:
        """Take the next event, which happened at `time_ms` (Unix time)."""
        match event:
            case RunStarted() | RunResumed():
                self._let_go(self._latest_ms)  # Whoever died had it until its last word.
                self._since_ms = time_ms
            case RunWaiting() | RunRetrying():
                self._let_go(time_ms)
            case _:
                pass
        self._latest_ms = time_ms

    def until_ms(self, active_s: float) -> int:
        """Return when (Unix time) the run will have been worked at for `active_s`, if it is now."""
        since_ms = self._latest_ms if self._since_ms is None else self._since_ms
        return since_ms + round(active_s * 1000) - self._worked_ms

    def _let_go(self, time_ms: int) -> None:
        if self._since_ms is not None:
            self._worked_ms += max(0, time_ms - self._since_ms)
            self._since_ms = None
