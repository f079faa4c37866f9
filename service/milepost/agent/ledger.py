"""What all runs of one agent have taken so far."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from milepost.core.codec import dollars
from milepost.core.events import Event, ToolCallRequested, ToolCallStarted
from milepost.core.usage import Usage


class Ledger:
    """Counts what runs took, in whichever thread they ended."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._runs = 0
        self._usage = Usage()
        self._tools: Counter[str] = Counter()

    @property
    def usage(self) -> Usage:
        """What the models took."""
        return self._usage

    @property
    def tools(self) -> Mapping[str, int]:
        """How often each tool was run."""
        return dict(self._tools)

    def add(self, usage: Usage, events: Iterable[Event]) -> None:
        """Count a run."""
        tools = _tools_run(events)
        with self._turn:
            self._runs += 1
            self._usage += usage
            self._tools.update(tools)

    def reset(self) -> None:
        """Count from zero."""
        with self._turn:
            self._runs, self._usage = 0, Usage()
            self._tools.clear()

    def summary(self) -> str:
        """Return it for people, a line each."""
        with self._turn:
            usage, tools = self._usage, self._tools.most_common()
            lines = [
                f"runs: {self._runs}",
                f"model calls: {usage.model_calls}",
                f"tokens: {usage.input_tokens} in, {usage.output_tokens} out",
                f"cost: ${dollars(usage.cost_nanos)}",
            ]
        if usage.unpriced_calls:
            lines.append(f"calls without a known price: {usage.unpriced_calls}")
        return "\n".join([*lines, *(f"tool {name}: {count}" for name, count in tools)])


def _tools_run(events: Iterable[Event]) -> list[str]:
    names: dict[str, str] = {}
    run: list[str] = []
    for event in events:
        match event:
            case ToolCallRequested(call_id, name):
                names[call_id] = name
            case ToolCallStarted(call_id):
                run.append(names[call_id])
            case _:
                pass  # No tool is run.
    return run
