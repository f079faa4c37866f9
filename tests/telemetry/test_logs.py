"""Log lines: their form, and that no secret gets into them."""

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from milepost.telemetry.logs import OUTSIDE, WORDY, configure, logger, mask

KEY = "mp_Zm9vYmFyYmF6cXV4"


@pytest.fixture(autouse=True)
def root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
    root.setLevel(level)
    for name in (*WORDY, *OUTSIDE):
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [orjson.loads(line) for line in captured.err.splitlines()]


def test_a_line_says_who_said_what_when_and_how_grave_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("info", json=True)

    logger("worker").warning("took over", run_id="run_1", runs=3)

    [line] = lines(capsys)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line.pop("timestamp"))
    assert line == {
        "event": "took over",
        "level": "warning",
        "logger": "milepost.worker",
        "run_id": "run_1",
        "runs": 3,
    }


def test_a_logger_that_was_made_before_heeds_the_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    early = logger("early")

    configure("warning", json=True)
    early.info("not this")
    early.error("but this")

    assert [line["event"] for line in lines(capsys)] == ["but this"]


def test_libraries_speak_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", json=True)

    logging.getLogger("aiohttp.client").info("listening on %s", "127.0.0.1")

    [line] = lines(capsys)
    assert (line["event"], line["logger"]) == ("listening on 127.0.0.1", "aiohttp.client")


def test_what_libraries_tell_of_themselves_is_heard_at_debug_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wordy = logging.getLogger("alembic.runtime.migration")

    configure("info", json=True)
    wordy.info("Context impl SQLiteImpl.")
    wordy.warning("Something is wrong.")
    configure("debug", json=True)
    wordy.info("Will assume non-transactional DDL.")

    assert [line["event"] for line in lines(capsys)] == [
        "Something is wrong.",
        "Will assume non-transactional DDL.",
    ]


@pytest.mark.parametrize("name", ["mcp.client.streamable_http", "httpx2"])
def test_what_libraries_tell_of_a_tenants_server_is_heard_at_debug_only(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    client = logging.getLogger(name)

    configure("info", json=True)
    client.info("Received session ID: a1b2")
    client.error("Error parsing SSE message")
    configure("debug", json=True)
    client.error("Error parsing JSON response")

    assert [line["event"] for line in lines(capsys)] == ["Error parsing JSON response"]


def test_a_second_configuration_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", json=False)
    configure("info", json=True)

    logger("worker").info("once")

    assert [line["event"] for line in lines(capsys)] == ["once"]


def test_people_read_columns(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", json=False)

    logger("worker").info("took over", run_id="run_1")

    assert re.search(r"Z \[info +\] took over +\[milepost.worker\] run_id=run_1", said(capsys))


HOSTILE = "a\x1b[2J\x9b\nFORGED [info] all is well"


@pytest.mark.parametrize("text", [HOSTILE, "a\x1b[31mred", "a\u2028b\x85c\u202ed"])
def test_what_a_client_sent_neither_forges_a_line_nor_commands_a_terminal(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    configure("info", json=False)

    logger("channels").warning("an intent is not known", intent=text)
    logging.getLogger("library").warning("got %s", text)

    own, foreign = said(capsys).removesuffix("\n").split("\n")
    assert own.isprintable()
    assert foreign.isprintable()
    assert repr(text) in own
    assert f"got {repr(text)[1:-1]}" in foreign


def fail(why: str) -> None:
    raise ValueError(why)


def test_a_traceback_is_shown_in_lines_and_commands_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("info", json=False)

    try:
        fail("no\x1b[2J")
    except ValueError:
        logger("worker").exception("it failed")

    shown = said(capsys).removesuffix("\n").split("\n")
    assert shown[-1] == r"ValueError: no\x1b[2J"
    assert all(line.isprintable() for line in shown)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "key",
    ["api_key", "apiKey", "X-API-Key", "Authorization", "password", "client_secret", "set-cookie",
     "access_token", "MILEPOST_SECRET_KEY"],
)  # fmt: skip
@pytest.mark.parametrize("json", [True, False])
def test_what_a_secret_name_holds_is_masked_at_any_depth(
    capsys: pytest.CaptureFixture[str], key: str, json: bool
) -> None:
    configure("info", json=json)

    logger("api").info("called", headers=[{key: "hunter2"}], **{key: "hunter2"})

    shown = said(capsys)
    assert "hunter2" not in shown
    assert shown.count("***") == 2


@pytest.mark.parametrize("key", ["input_tokens", "keyword", "idempotency_key", "run_id"])
def test_what_is_no_secret_is_shown(capsys: pytest.CaptureFixture[str], key: str) -> None:
    configure("info", json=True)

    logger("api").info("called", **{key: "hunter2"})

    assert lines(capsys)[0][key] == "hunter2"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"key {KEY} is unknown", "key *** is unknown"),
        (f"Authorization: Bearer {KEY}", "Authorization: ***"),
        ("sent Bearer eyJhbGciOi.J9-_=", "sent Bearer ***"),
        ("{'authorization': 'Basic Zm9vOmJhcg=='}", "{'authorization': '***'}"),
        ("api_key=hunter2&n=1", "api_key=***"),
        ("postgresql://me:hunter2@db:5432/x", "postgresql://me:***@db:5432/x"),
        ("sk-proj-abcdefghijklmnop", "***"),
        ("the bearer of news, https://host:8000/a@b", "the bearer of news, https://host:8000/a@b"),
        ("run_0190 used 42 tokens of sk-learn", "run_0190 used 42 tokens of sk-learn"),
    ],
)
def test_a_secret_within_a_text_is_masked_and_the_rest_is_kept(text: str, masked: str) -> None:
    assert mask(text) == masked


def refuse(variable: str) -> None:
    raise ValueError(f"key {KEY} after {len(variable)}")


@pytest.mark.parametrize("json", [True, False])
def test_a_secret_in_an_exception_is_masked_and_no_variable_is_shown(
    capsys: pytest.CaptureFixture[str], json: bool
) -> None:
    configure("info", json=json)

    try:
        refuse("in a " + "variable only")
    except ValueError:
        logger("api").exception("refused")

    shown = said(capsys)
    assert "ValueError: key *** after 18" in shown
    assert KEY not in shown
    assert "in a variable only" not in shown


def test_a_library_that_logs_a_secret_is_masked_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", json=True)

    logging.getLogger("lib").info("sending %s", {"Authorization": f"Bearer {KEY}"})

    assert KEY not in said(capsys)


def test_a_text_that_cannot_be_encoded_is_logged_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("info", json=True)

    logger("api").info("odd", text="\ud800", thing=object)

    assert '"odd"' in said(capsys)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="LOUD"):
        configure("loud", json=True)


SPEAKING = """
from milepost.telemetry.logs import logger

logger("runs").warning("a run failed", run="run_1", error="no key: Bearer mp_Zm9vYmFyYmF6cXV4")
"""


def said_by(program: str) -> str:
    """Return what a program with no logging but its own writes, on either stream."""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=60,
    )
    return ran.stdout


def test_nothing_is_said_in_a_program_that_has_set_up_no_logging() -> None:
    assert said_by(SPEAKING) == ""


def test_a_program_with_logging_of_its_own_gets_lines_that_people_can_read() -> None:
    said = said_by("import logging; logging.basicConfig()" + SPEAKING)

    assert said == "WARNING:milepost.runs:a run failed run=run_1 error='no key: Bearer ***'\n"


def test_an_exception_stands_below_such_a_line() -> None:
    program = """
import logging
from milepost.telemetry.logs import logger

logging.basicConfig()
try:
    1 / 0
except ZeroDivisionError:
    logger("runs").exception("oh", run="run_1")
"""

    first, second, *_, last = said_by(program).splitlines()

    assert (first, second) == (
        "ERROR:milepost.runs:oh run=run_1",
        "Traceback (most recent call last):",
    )
    assert last.startswith("ZeroDivisionError")
