"""The commands that talk to a server: what they show, and how they end."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.typed import FAILED, MISCONFIGURED, Said, command, environment, served, typed

MAIL = "Send an email to ann@example.com saying 你好"
INTERRUPTED = 128 + signal.SIGINT


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service without keys."""
    folder = tmp_path_factory.mktemp("served")
    with served(folder, "--demo-word-delay-s", "0") as address:
        yield address


@pytest.fixture
def parked(base_url: str, tmp_path: Path) -> str:
    """The id of a run that waits for a person."""
    run = json.loads(asked(base_url, tmp_path, "runs", "create", "demo", MAIL).out)
    asked(base_url, tmp_path, "runs", "tail", run["id"], "--until-waiting")
    run_id: str = run["id"]
    return run_id


def asked(base_url: str, folder: Path, *words: str, **settings: str) -> Said:
    return typed(folder, *words, MILEPOST_BASE_URL=base_url, **settings)


def lines(said: Said) -> list[dict[str, Any]]:
    """Return what was printed as JSON, a value a line."""
    assert (said.code, said.err) == (0, "")
    return [json.loads(line) for line in said.out.splitlines()]


def question(base_url: str, folder: Path, run_id: str) -> str:
    """Return the id of what waits in the run."""
    listed = lines(asked(base_url, folder, "approvals", "list", "--json"))
    [approval_id] = [str(each["id"]) for each in listed if each["run_id"] == run_id]
    return approval_id


def test_a_run_is_started_watched_and_listed(base_url: str, tmp_path: Path) -> None:
    told = asked(
        base_url, tmp_path,
        "runs", "create", "demo", "What is 17 + 25?", "--metadata", "team=a", "--stream",
    )  # fmt: skip

    [run] = lines(asked(base_url, tmp_path, "runs", "list", "--metadata", "team=a", "--json"))
    assert (told.code, told.err) == (0, "")
    assert "      | 17 + 25 = 42.\n" in told.out
    assert "run.completed        finish_reason=stop" in told.out.splitlines()[-1]
    assert (run["status"], run["output"]["text"]) == ("completed", "17 + 25 = 42.")


def test_a_run_is_watched_as_json_from_where_one_was(
    base_url: str, tmp_path: Path, parked: str
) -> None:
    words = ["runs", "tail", parked, "--until-waiting", "--json"]

    whole = lines(asked(base_url, tmp_path, *words))
    rest = lines(asked(base_url, tmp_path, *words, "--after", "3"))
    chosen = lines(asked(base_url, tmp_path, *words, "--types", "approval.*"))

    assert [event["seq"] for event in whole] == [*range(1, len(whole) + 1)]
    assert rest == whole[3:]
    assert [event["type"] for event in chosen] == ["approval.requested"]


def test_a_question_is_answered_once(base_url: str, tmp_path: Path, parked: str) -> None:
    approval_id = question(base_url, tmp_path, parked)
    words = ["approvals", "decide", approval_id]

    first = asked(base_url, tmp_path, *words, "deny", "--comment", "not today")
    second = asked(base_url, tmp_path, *words, "approve")

    assert json.loads(first.out)["comment"] == "not today"
    assert second.complaint == f"approval {approval_id} was denied by local"
    assert second.code == FAILED


def test_a_run_that_waits_is_cancelled(base_url: str, tmp_path: Path, parked: str) -> None:
    said = asked(base_url, tmp_path, "runs", "cancel", parked, "--reason", "not needed")

    assert json.loads(said.out)["status"] == "cancelled"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["runs", "tail", "run_x"], "there is no run run_x"),
        (["runs", "create", "nobody", "hello"], "there is no agent 'nobody'"),
        (["runs", "create", "demo", ""], "/input: "),
        (["approvals", "decide", "apr_x", "deny"], "there is no approval apr_x"),
    ],
)
def test_what_the_server_refuses_is_said_in_one_line(
    base_url: str, tmp_path: Path, words: list[str], told: str
) -> None:
    said = asked(base_url, tmp_path, *words)

    assert said.complaint.startswith(told)
    assert (said.code, said.out) == (FAILED, "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["runs", "create", "demo", "hi", "--metadata", "team"], "'team' is not of the form key"),
        (["runs", "create", "demo", "hi", "--deadline-s", "nan"], "nan is no number of seconds"),
        (["runs", "create", "demo", "hi", "--delay-s", "inf"], "inf is no number of seconds"),
        (["runs", "list", "--status", "gone"], "'gone' is not one of 'queued'"),
        (["approvals", "decide", "apr_x", "maybe"], "'maybe' is not one of 'approve', 'deny'"),
        (["approvals", "decide", "a", "approve", "--arguments", "{"], "--arguments is not JSON"),
        (["approvals", "decide", "a", "approve", "--arguments", "[]"], "is a JSON object, such"),
    ],
)
def test_what_was_mistyped_is_named_before_a_server_is_asked(
    tmp_path: Path, words: list[str], told: str
) -> None:
    said = asked("http://127.0.0.1:1", tmp_path, *words)

    assert told in said.err.splitlines()[-1]
    assert said.err.startswith("Usage: ")
    assert (said.code, said.out) == (MISCONFIGURED, "")


def test_a_server_that_is_not_there_is_asked_for(tmp_path: Path) -> None:
    said = asked("http://127.0.0.1:1", tmp_path, "runs", "list")

    assert said.complaint.startswith("no answer from http://127.0.0.1:1 (")
    assert said.complaint.endswith("); is the server running there?")
    assert said.code == FAILED


def test_keys_are_made_asked_for_listed_and_revoked(tmp_path: Path) -> None:
    key = typed(tmp_path, "keys", "create", "mine").out.strip()
    with served(tmp_path, "--host", "0.0.0.0") as address:
        base_url = address.replace("0.0.0.0", "127.0.0.1")
        without = asked(base_url, tmp_path, "runs", "list")
        wrong = asked(base_url, tmp_path, "runs", "list", "--api-key", "mp_wrong")
        right = asked(base_url, tmp_path, "runs", "list", "--json", MILEPOST_API_KEY=key)
    [key_id] = [line.split()[0] for line in typed(tmp_path, "keys", "list").out.splitlines()[1:]]
    revoked = typed(tmp_path, "keys", "revoke", key_id)

    assert (without.code, wrong.code) == (FAILED, FAILED)
    assert "key" in without.complaint
    assert "mp_wrong" not in wrong.complaint
    assert lines(right) == []
    assert revoked.out == f"{key_id} (mine) is revoked.\n"


def test_a_reader_that_leaves_ends_a_watch_in_silence(
    base_url: str, tmp_path: Path, parked: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)

    with open(writing, "wb") as nobody:  # noqa: PTH123 - it has no path
        ended = subprocess.run(
            command("runs", "tail", parked, "--base-url", base_url),
            cwd=tmp_path,
            env=environment(),
            stdout=nobody,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )

    assert (ended.returncode, ended.stderr) == (FAILED, b"")


def test_an_interrupt_ends_a_watch_in_silence(base_url: str, tmp_path: Path, parked: str) -> None:
    watching = subprocess.Popen(
        command("runs", "tail", parked, "--base-url", base_url),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        _, complaint = watching.communicate(timeout=60)

    assert b"run.queued" in first
    assert (watching.returncode, complaint) == (INTERRUPTED, b"")


def test_characters_that_the_terminal_lacks_are_escaped(
    base_url: str, tmp_path: Path, parked: str
) -> None:
    said = asked(base_url, tmp_path, "approvals", "list", PYTHONIOENCODING="latin-1")

    assert parked in said.out
    assert "body='\\u4f60\\u597d'" in said.out
    assert (said.code, said.err) == (0, "")
