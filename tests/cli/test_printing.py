"""What the commands say of an event, on one line."""

from milepost.cli.printing import WIDTH_MAX, summary
from milepost.client import Event

REMEDY = "check the model's name"


def test_a_failure_is_told_whole_since_the_remedy_stands_at_its_end() -> None:
    message = f"local answered 404:\n{'no such model, ' * WIDTH_MAX}{REMEDY}"
    error = {"code": "provider_bad_request", "message": message, "retryable": False}

    said = summary(Event("run.failed", "run_1", {"error": error, "usage": {}}, "6", 6))

    assert said.startswith("provider_bad_request: local answered 404: no such model, ")
    assert said.endswith(REMEDY)


def test_whatever_else_is_long_is_cut() -> None:
    said = summary(Event("tool_call.completed", "run_1", {"result": "x" * 2 * WIDTH_MAX}, "6", 6))

    assert (len(said), said[-1]) == (WIDTH_MAX, "…")
