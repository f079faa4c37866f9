"""Whether Temporal answers: a gauge, a line in the log when it is lost, and one when it is back.

Runs go on without it, so that nobody would notice.
"""

from milepost.telemetry.logs import logger
from milepost.telemetry.metrics import Metrics


class TemporalUp:
    """Told by the dispatcher what became of Temporal: None, or why it does not answer."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._log = logger("dispatch")
        metrics.set_temporal_up(up=False)

    def __call__(self, error: Exception | None) -> None:
        """Take what was found out."""
        self._metrics.set_temporal_up(up=error is None)
        if error is None:
            self._log.info("Temporal answers: it delivers the runs")
        else:
            why = f"{type(error).__name__}: {error}"
            self._log.warning("Temporal does not answer: workers look for runs", error=why)
