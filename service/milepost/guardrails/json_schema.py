"""Values that must fit a JSON Schema."""

import json
from collections.abc import Callable
from typing import Literal

from milepost.core.guardrails import OnError
from milepost.core.json import Json, clean
from milepost.guardrails.verdicts import PASS, Block, Subject, Verdict, Warn

Misfit = Callable[[Json], str | None]
"""Says what is wrong with a value by the schema, None where it fits."""


class JsonSchema:
    """Denies what does not fit. What a person or a model says must be JSON that does."""

    name = "json_schema"
    on_error: OnError = "block"

    def __init__(self, misfit: Misfit, action: Literal["block", "warn"] = "block") -> None:
        self._misfit = misfit
        self._action = action

    async def check(self, subject: Subject) -> Verdict:
        """Judge the subject's value."""
        issue = self._issue(subject)
        if issue is None:
            return PASS
        return Block(issue) if self._action == "block" else Warn(issue)

    def _issue(self, subject: Subject) -> str | None:
        """The model is told what is wrong with its arguments; the rest is not to be repeated."""
        if subject.place == "tool_arguments":
            return self._misfit(subject.value)
        value = subject.value
        if subject.place != "tool_results":
            try:
                value = clean(json.loads(subject.text))
            except (ValueError, RecursionError):
                return "it is no JSON"
        return None if self._misfit(value) is None else "it does not fit the schema"
