"""What the commands say of an event, on one line."""

import pytest

from milepost.cli.printing import WIDTH_MAX, Telling, show_table, summary
from milepost.client import Event

REMEDY = "check the model's name"


def test_a_failure_is_told_whole_since_the_remedy_stands_at_its_end() -> None:
    message = f"local answered 404:\n{'no such model, ' * WIDTH_MAX}{REMEDY}"
    error = {"code": "provider_bad_request", "message": message, "retryable": False}

    said = summary(Event("run.failed", "run_1", {"error": error, "usage": {}}, "6", 6))

    assert said.startswith("provider_bad_request: local answered 404: no such model, ")
    assert said.endswith(REMEDY)


def test_a_failure_of_somebody_elses_run_is_told_as_it_is() -> None:
    assert summary(Event("run.failed", "run_1", {"error": "gone"}, "6", 6)) == "error=gone"


def test_whatever_else_is_long_is_cut() -> None:
    said = summary(Event("tool_call.completed", "run_1", {"result": "x" * 2 * WIDTH_MAX}, "6", 6))

    assert (len(said), said[-1]) == (WIDTH_MAX, "…")


def test_a_row_is_a_line_whatever_stands_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("RUN", "OUTPUT"), [("run_1", "one\r\ntwo\u2028three\x1b[2K"), ("run_2", None)])

    assert capsys.readouterr().out.splitlines() == [
        "RUN    OUTPUT",
        r"run_1  one two three\x1b[2K",
        "run_2",
    ]


def test_what_a_model_says_is_no_command_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    telling = Telling()
    written = {"text": "One\n\ttwo\x1b[1A\x9b2K\rthree 你好 👩\u200d🚀"}
    called = {"name": "look", "arguments": {"at": "\x9b2K"}}

    telling.show(Event("message.delta", "run_1", written, "1~msg_1:9"))
    telling.show(Event("tool_call.requested", "run_1", called, "2", 2))

    assert capsys.readouterr().out.split("\n") == [
        "      | One",
        "\ttwo\\x1b[1A\\x9b2K\\rthree 你好 👩\u200d🚀",
        '   2  tool_call.requested  name=look  arguments={"at":"\\x9b2K"}',
        "",
    ]
