"""Structured answers on their way: what can be read of a value while its text is being written."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson

from milepost.core.json import Json
from milepost.live.frames import ephemeral
from milepost.live.hub import LiveText
from milepost.runtime.direct import ID_PREFIX as DIRECT
from milepost.runtime.memory_runs import ID_PREFIX as MEMORY
from milepost.runtime.partial_values import partial_value
from milepost.store import agents, log
from milepost.store.runs import RunRow
from milepost.store.work import Work

PARTIAL = "output.partial"
INTERVAL_S = 0.1


class Partials:
    """The values of one stream: at most one each `interval_s`, and only where it is another.

    `wake` is called when a text has waited long enough to be looked at again.
    """

    def __init__(
        self, run_id: str, wake: Callable[[], None], interval_s: float = INTERVAL_S
    ) -> None:
        self._run_id = run_id
        self._wake = wake
        self._interval_s = interval_s
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._looked_at = ("", 0)
        self._shown: tuple[str, Json] = ("", None)

    def frames(self, text: LiveText) -> list[bytes]:
        """Return what is to be sent of the text's value now."""
        present = (text.id, len(text.text))
        if present == self._looked_at:
            return []
        loop = asyncio.get_running_loop()
        if loop.time() < self._next_s:
            self._timer = self._timer or loop.call_at(self._next_s, self._ring)
            return []
        self._next_s = loop.time() + self._interval_s
        self._looked_at = present
        value = partial_value(text.text)
        if value is None or (text.id, value) == self._shown:
            return []
        self._shown = (text.id, value)
        told = {"message_id": text.id, "value": value}
        return [ephemeral(PARTIAL, self._run_id, told, None)]

    def close(self) -> None:
        """Wake nobody any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        self._wake()


def is_structured(row: RunRow) -> Work[bool]:
    """Say whether the run's answer is to fit a schema: its own, or its agent's.

    One whose log is gone has no answer that could be shown.
    """
    beginning = yield from log.read(row.tenant, row.id, limit=1)
    if not beginning:
        return False
    if _format_in(beginning[0].data) is not None:
        return True
    if row.agent_id.startswith(DIRECT):
        return False
    if row.agent_id.startswith(MEMORY):
        return True
    definition = yield from agents.definition(row.tenant, row.agent_id, row.agent_version)
    return _format_in(definition) is not None


def _format_in(encoded: str) -> Any:
    return orjson.loads(encoded).get("response_format")
