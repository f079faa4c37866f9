"""Models that a worker had asked beside a run's conversation as it died."""

from milepost.core.events import (
    Event,
    MemorySummarized,
    MemorySummarizing,
    MemoryTrimmed,
    RunRetrying,
    SideCallAborted,
    ToolCallScreened,
    ToolCallScreening,
    ToolResultCompressed,
    ToolResultCompressing,
)
from milepost.core.usage import UNKNOWN
from milepost.runtime.subjects import of_judgement, of_short_form, of_summary


class LostSideCalls:
    """Takes in a log; `told` are those of which it says that they were begun, and no more.

    How far they were went with their worker, so that each may be billed.
    """

    def __init__(self) -> None:
        self._begun: dict[str, str] = {}

    def feed(self, event: Event) -> None:
        """Take the next event in."""
        match event:
            case MemorySummarizing(id=stretch_id, model=model):
                self._begun[of_summary(stretch_id)] = model
            case ToolCallScreening(call_id, str(model)):
                self._begun[of_judgement(call_id)] = model
            case ToolResultCompressing(call_id, model):
                self._begun[of_short_form(call_id)] = model
            case RunRetrying():
                self._begun.clear()  # Whoever hands a run back has told of what was sent.
            case _:
                self._begun.pop(_ended_by(event), None)

    def told(self) -> list[SideCallAborted]:
        """Return what tells of each."""
        return [SideCallAborted(subject, model, UNKNOWN) for subject, model in self._begun.items()]


def _ended_by(event: Event) -> str:
    """Return the subject of the call of which the event tells the end; most tell of none."""
    match event:
        case MemorySummarized(id=stretch_id) | MemoryTrimmed(id=stretch_id):
            return of_summary(stretch_id)
        case ToolCallScreened(call_id):
            return of_judgement(call_id)
        case ToolResultCompressed(call_id):
            return of_short_form(call_id)
        case SideCallAborted(subject):
            return subject
        case _:
            return ""
