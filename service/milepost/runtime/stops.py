"""Tool results that end the run, although their tool is not terminal."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from milepost.core.agents import StopRule
from milepost.core.events import Event, Failure, RunFailing, ToolCallCompleted
from milepost.core.json import Json
from milepost.core.messages import told
from milepost.core.state import State

StopCondition = Callable[[str, Json], bool]
"""Says of a tool's name and its result whether the run ends with it."""


class Stops:
    """An agent's rules for that, and a condition in Python.

    A result is judged as its tool gave it, before it is shortened.
    """

    def __init__(self, rules: Sequence[StopRule], condition: StopCondition | None = None) -> None:
        self._rules = rules
        self._condition = condition

    def stopped(self, events: Iterable[Event], state: State) -> Iterable[Event]:
        """Return the events, with the results that end the run marked as such.

        A condition that raises fails the run: what it would have stopped must not go on.
        """
        return self._judged(events, state) if self._rules or self._condition else events

    def _judged(self, events: Iterable[Event], state: State) -> Iterator[Event]:
        for event in events:
            if not isinstance(event, ToolCallCompleted):
                yield event
                continue
            tool = state.calls[event.call_id].call.name
            try:
                ends = self._fits_rule(tool, event.result) or self._fits_condition(tool, event)
            except Exception as error:
                yield event
                yield RunFailing(
                    Failure("stop_rule_failed", f"the stop condition raised {error!r}")
                )
                continue
            yield replace(event, terminal=True) if ends else event

    def _fits_rule(self, tool: str, result: Json) -> bool:
        text = told(result)
        return any(
            fnmatchcase(tool, rule.tool) and (rule.contains is None or rule.contains in text)
            for rule in self._rules
        )

    def _fits_condition(self, tool: str, event: ToolCallCompleted) -> bool:
        return self._condition is not None and self._condition(tool, event.result)
