"""What a run's open spans are known by. A message and a call are known by their ids."""

HISTORY_SUMMARY = "history/summary"
INPUT_SCREENING = "input/screening"


def screening_of(call_id: str) -> str:
    """Return the key of the look that the guardrails take at a call."""
    return f"{call_id}/screening"


def summary_of(call_id: str) -> str:
    """Return the key of the model call that makes a result shorter."""
    return f"{call_id}/summary"
