"""How what is asked of models beside a run's conversation is known within the run.

It is told by what it is about, and by what it is for.
"""

from milepost.core.effects import CompressResult, ScreenCall, SummarizeHistory
from milepost.runtime.settle import Call


def of_summary(stretch_id: str) -> str:
    """Return the subject of what is told of messages out of sight."""
    return f"{stretch_id}/summary"


def of_judgement(call_id: str) -> str:
    """Return the subject of whether a call is what the user asked for."""
    return f"{call_id}/coherence"


def of_short_form(call_id: str) -> str:
    """Return the subject of a shorter form of a call's result."""
    return f"{call_id}/compressed"


def subject_of(effect: Call) -> str:
    """Return the subject of what a call asks beside the conversation; of most there is none."""
    match effect:
        case SummarizeHistory(opening):
            return of_summary(opening.id)
        case ScreenCall(call):
            return of_judgement(call.id)
        case CompressResult(call):
            return of_short_form(call.id)
        case _:
            return ""
