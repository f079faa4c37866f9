"""The commands that talk to a server: what they show, and how they end."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.typed import FAILED, MISCONFIGURED, Said, command, environment, served, typed
from tests.store.making_schedules import let_come

MAIL = "Send an email to ann@example.com saying 你好"
INTERRUPTED = 128 + signal.SIGINT
LOOKS_MAX = 100


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


def test_what_became_of_a_run_s_tool_calls_is_listed(
    base_url: str, tmp_path: Path, parked: str
) -> None:
    [call] = lines(asked(base_url, tmp_path, "runs", "tool-calls", parked, "--json"))
    table = asked(base_url, tmp_path, "runs", "tool-calls", parked, "--state", "waiting").out

    assert (call["tool"], call["state"]) == ("send_email", "waiting")
    assert table.split()[:6] == ["CALL", "TOOL", "STATE", "TRIES", "CAME", "TO"]
    assert "send_email" in table
    assert "send_email" not in asked(
        base_url, tmp_path, "runs", "tool-calls", parked, "--state", "failed"
    ).out  # fmt: skip


def test_runs_are_listed_by_the_key_that_asked_for_them(
    base_url: str, tmp_path: Path, parked: str
) -> None:
    ours = lines(asked(base_url, tmp_path, "runs", "list", "--made-by", "local", "--json"))
    theirs = lines(asked(base_url, tmp_path, "runs", "list", "--made-by", "key_0", "--json"))

    assert parked in [run["id"] for run in ours]
    assert theirs == []


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


def test_whoever_watches_a_new_run_that_does_not_complete_is_told_by_the_exit_code(
    base_url: str, tmp_path: Path
) -> None:
    create = ("runs", "create", "demo", MAIL, "--deadline-s", "0.2")

    made = asked(base_url, tmp_path, *create)
    watched = asked(base_url, tmp_path, *create, "--stream")

    assert (made.code, watched.code, watched.err) == (0, FAILED, "")
    assert "run.expired" in watched.out.splitlines()[-1]


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


def test_a_run_is_forked_and_its_log_is_played_again(base_url: str, tmp_path: Path) -> None:
    told = asked(base_url, tmp_path, "runs", "create", "demo", "What is 17 + 25?", "--stream")
    [run, *_] = lines(asked(base_url, tmp_path, "runs", "list", "--json"))
    words = ["--input", "And 1 + 2?", "--metadata", "a=b", "--agent", "demo"]

    fork = asked(base_url, tmp_path, "runs", "fork", run["id"], "1", *words)
    replayed = asked(base_url, tmp_path, "runs", "replay", run["id"])
    refused = asked(base_url, tmp_path, "runs", "fork", run["id"], "9999")

    assert told.code == 0
    shown = json.loads(fork.out)
    assert (shown["forked_from"], shown["metadata"]) == (
        {"run_id": run["id"], "at_seq": 1}, {"a": "b"},
    )  # fmt: skip
    assert json.loads(replayed.out)["identical"]
    assert replayed.code == 0
    assert refused.code == FAILED
    assert "the log ends at" in refused.err


def test_a_replay_that_differs_fails(base_url: str, tmp_path: Path, parked: str) -> None:
    declared = {"name": "careless", "model": "demo/offline", "tools": ["send_email"],
                "policy": {"deny": ["send_email"]}}  # fmt: skip
    made = httpx2.post(f"{base_url}/v1/agents", json=declared)
    replayed = asked(base_url, tmp_path, "runs", "replay", parked, "--agent", "careless")
    assert made.is_success
    assert replayed.code == FAILED
    assert not json.loads(replayed.out)["identical"]


def test_a_question_is_answered_once(base_url: str, tmp_path: Path, parked: str) -> None:
    approval_id = question(base_url, tmp_path, parked)
    words = ["approvals", "decide", approval_id]

    first = asked(base_url, tmp_path, *words, "deny", "--comment", "not today")
    second = asked(base_url, tmp_path, *words, "approve")

    assert json.loads(first.out)["comment"] == "not today"
    assert second.complaint == f"approval {approval_id} was denied by local"
    assert second.code == FAILED


def test_a_question_is_looked_at_before_it_is_answered(
    base_url: str, tmp_path: Path, parked: str
) -> None:
    words = ("approvals", "list", "--run", parked, "--tool", "send_email", "--mine", "--json")
    [listed] = lines(asked(base_url, tmp_path, *words))

    shown = json.loads(asked(base_url, tmp_path, "approvals", "get", listed["id"]).out)

    assert shown["context"] == [{"role": "user", "text": MAIL}]
    assert (shown["digest"], shown["answers"]) == (listed["digest"], ["approve", "deny"])
    assert lines(asked(base_url, tmp_path, "approvals", "list", "--tool", "add", "--json")) == []


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_an_inbox_is_watched(
    base_url: str, tmp_path: Path, parked: str, flags: tuple[str, ...]
) -> None:
    words = ("approvals", "tail", "--run", parked, "--base-url", base_url, *flags)
    with subprocess.Popen(
        command(*words), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        waits = watching.stdout.readline()
        approval_id = question(base_url, tmp_path, parked)
        asked(base_url, tmp_path, "approvals", "decide", approval_id, "deny")
        decided = watching.stdout.readline()
        watching.send_signal(signal.SIGINT)

        assert watching.wait(timeout=60) == INTERRUPTED
    if flags:
        said = [json.loads(line) for line in (waits, decided)]
        assert [each["type"] for each in said] == ["snapshot", "approval.decided"]
        assert [each["approval"]["id"] for each in said] == [approval_id] * 2
    else:
        assert waits.split()[:3] == ["snapshot", "pending", approval_id]
        assert decided.split()[:3] == ["decided", "denied", approval_id]


def test_rules_are_put_read_and_asked(base_url: str, tmp_path: Path, parked: str) -> None:
    listed = lines(asked(base_url, tmp_path, "runs", "list", "--json"))
    [session] = [each["session_id"] for each in listed if each["id"] == parked]
    here = ("--session", session)
    file = tmp_path / "policy.json"
    file.write_text('{"deny": [{"tool": "add", "reason": "no sums"}]}')
    check = ("policies", "check", "demo", "add", '{"a": 1, "b": 2}')

    put = asked(base_url, tmp_path, "policies", "put", str(file), *here)
    got = asked(base_url, tmp_path, "policies", "get", *here)
    denied, allowed = (asked(base_url, tmp_path, *check, *more) for more in (here, ()))

    assert (put.code, json.loads(put.out)) == (0, json.loads(got.out))
    assert json.loads(denied.out)["reason"] == "session's policy: deny add: no sums"
    assert (denied.code, allowed.code) == (FAILED, 0)


def test_grants_are_listed(base_url: str, tmp_path: Path) -> None:
    shown = asked(base_url, tmp_path, "grants", "list", "--tool", "add", "--all")
    as_json = asked(base_url, tmp_path, "grants", "list", "--json")

    assert (shown.code, shown.out.split()) == (0, ["GRANT", "SESSION", "TOOL", "BY"])
    assert (as_json.code, as_json.out) == (0, "")


def test_a_run_is_waited_for_and_printed(base_url: str, tmp_path: Path) -> None:
    made = json.loads(asked(base_url, tmp_path, "runs", "create", "demo", "What is 2 + 5?").out)

    waited = asked(base_url, tmp_path, "runs", "get", made["id"], "--wait", "60")
    shown = asked(base_url, tmp_path, "runs", "get", made["id"])

    run = json.loads(shown.out)
    assert (run["id"], run["status"], run["output"]["text"]) == (
        made["id"], "completed", "2 + 5 = 7.",
    )  # fmt: skip
    assert waited == shown
    assert (shown.code, shown.err) == (0, "")


@pytest.mark.parametrize("flags", [(), ("--wait", "0"), ("--wait", "0.1")])
def test_a_run_that_is_not_over_is_printed_as_it_is(
    base_url: str, tmp_path: Path, parked: str, flags: tuple[str, ...]
) -> None:
    said = asked(base_url, tmp_path, "runs", "get", parked, *flags)

    run = json.loads(said.out)
    assert (run["id"], run["status"]) == (parked, "waiting")
    assert (said.code, said.err) == (0, "")


def test_a_run_that_is_under_way_reads_what_is_said_to_it(
    base_url: str, tmp_path: Path, parked: str
) -> None:
    said = asked(base_url, tmp_path, "runs", "say", parked, "And what is 3 + 4?")
    approval_id = question(base_url, tmp_path, parked)
    asked(base_url, tmp_path, "approvals", "decide", approval_id, "deny")

    words = ("runs", "tail", parked, "--types", "steer.*", "--json")
    received, applied = lines(asked(base_url, tmp_path, *words))
    message = json.loads(said.out)
    assert (said.code, message["run_id"]) == (0, parked)
    assert received["data"]["message_id"] == message["message_id"]
    assert received["data"]["content"] == "And what is 3 + 4?"
    assert applied["data"]["message_ids"] == [message["message_id"]]


def test_a_run_that_is_over_hears_nothing(base_url: str, tmp_path: Path, parked: str) -> None:
    asked(base_url, tmp_path, "runs", "cancel", parked)

    said = asked(base_url, tmp_path, "runs", "say", parked, "Wait!")

    assert "is over" in said.complaint
    assert (said.code, said.out) == (FAILED, "")


def test_a_run_that_waits_is_cancelled(base_url: str, tmp_path: Path, parked: str) -> None:
    said = asked(base_url, tmp_path, "runs", "cancel", parked, "--reason", "not needed")

    assert json.loads(said.out)["status"] == "cancelled"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["runs", "tail", "run_x"], "there is no run run_x"),
        (["runs", "get", "run_x"], "there is no run run_x"),
        (["runs", "get", "run_x", "--wait", "60"], "there is no run run_x"),
        (["runs", "say", "run_x", "hi"], "there is no run run_x"),
        (["runs", "create", "nobody", "hello"], "there is no agent 'nobody'"),
        (["runs", "create", "demo", ""], "/input: "),
        (["approvals", "decide", "apr_x", "deny"], "there is no approval apr_x"),
        (["grants", "revoke", "gra_x"], "there is no grant gra_x"),
        (["policies", "check", "nobody", "add"], "there is no agent 'nobody'"),
        (["memories", "delete", "mem_x"], "there is no memory mem_x"),
        (["batches", "get", "bat_x"], "there is no batch bat_x"),
        (["batches", "tail", "bat_x"], "there is no batch bat_x"),
        (["batches", "results", "bat_x"], "there is no batch bat_x"),
        (["batches", "cancel", "bat_x"], "there is no batch bat_x"),
        (["batches", "delete", "bat_x"], "there is no batch bat_x"),
        (["schedules", "pause", "sch_x"], "there is no schedule sch_x"),
        (["schedules", "update", "sch_x", "--name", "x"], "there is no schedule sch_x"),
        (["schedules", "update", "sch_x", "--input", "x"], "there is no schedule sch_x"),
        (["schedules", "delete", "sch_x"], "there is no schedule sch_x"),
        (["schedules", "create", "demo", "hi", "--cron", "every day"], "/cron: "),
        (
            ["schedules", "create", "demo", "hi", "--cron", "0 9 * * *", "--timezone", "Mars"],
            "/timezone: ",
        ),
        (["retention", "set", "--runs-s", "5"], "/runs_s: "),
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
        (["runs", "get", "run_x", "--wait", "inf"], "inf is no number of seconds"),
        (["runs", "get", "run_x", "--wait", "-1"], "greater than or equal to 0"),
        (["runs", "say", "run_x"], "Missing argument 'TEXT'"),
        (["runs", "list", "--status", "gone"], "'gone' is not one of 'queued'"),
        (["memories", "list", "--scope", "all"], "'all' is not one of 'session'"),
        (["batches", "create", "demo", "nowhere.ndjson"], "nowhere.ndjson cannot be read"),
        (["schedules", "create", "demo", "hi"], "Missing option '--cron'"),
        (
            ["schedules", "create", "demo", "hi", "--cron", "0 9 * * *", "--overlap", "queue"],
            "'queue' is not one of 'skip', 'allow'",
        ),
        (
            ["schedules", "create", "demo", "hi", "--cron", "0 9 * * *", "--late-max-s", "inf"],
            "inf is no number of seconds",
        ),
        (
            ["schedules", "create", "demo", "hi", "--cron", "0 9 * * *", "--metadata", "team"],
            "'team' is not of the form key",
        ),
        (["schedules", "update", "sch_x"], "name what is to change"),
        (["schedules", "update", "sch_x", "--metadata", "=a"], "'=a' is not of the form key"),
        (["retention", "set"], "name what is to be kept"),
        (["retention", "set", "--runs-s", "a day"], "'a day' is neither seconds nor forever"),
        (["policies", "put", "nowhere.json"], "nowhere.json cannot be read"),
        (["policies", "check", "demo", "add", "{"], "what the tool would get is not JSON"),
        (["policies", "check", "demo", "add", "[]"], "is a JSON object, such"),
        (["approvals", "decide", "apr_x", "maybe"], "'maybe' is not one of 'approve', 'deny'"),
        (["approvals", "decide", "a", "happened", "--result", "{"], "--result is not JSON"),
        (["approvals", "decide", "a", "approve", "--remember-s", "nan"], "no number of seconds"),
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["schedules", "update", "sch_x", "--overlap", "maybe"],
            "'--overlap': 'maybe' is not one of 'skip', 'allow'.",
        ),
        (
            ["approvals", "decide", "apr_x", "maybe"],
            (
                "'approve|deny|happened|not_happened|stop': 'maybe' is not one of"
                " 'approve', 'deny', 'happened', 'not_happened', 'stop'."
            ),
        ),
        (
            ["runs", "list", "--limit", "500"],
            "'--limit': Input should be less than or equal to 100; not '500'",
        ),
        (
            ["runs", "create", "demo", "hi", "--delay-s", "soon"],
            (
                "'--delay-s': Input should be a valid number, unable to parse string as a number;"
                " not 'soon'"
            ),
        ),
        (
            ["runs", "create", "demo", "hi", "--metadata", "team"],
            "'--metadata': 'team' is not of the form key=value",
        ),
    ],
)
def test_what_was_mistyped_is_said_with_its_flag_and_what_would_do(
    tmp_path: Path, words: list[str], told: str
) -> None:
    said = asked("http://127.0.0.1:1", tmp_path, *words)

    assert said.err.splitlines()[-1] == f"Error: Invalid value for {told}"
    assert said.code == MISCONFIGURED


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


def test_a_key_is_made_over_http_while_a_service_holds_the_file(tmp_path: Path) -> None:
    admin = typed(tmp_path, "keys", "create", "mine", "--scope", "admin").out.strip()
    theirs = {"name": "theirs", "scopes": ["runs:read"]}
    with served(tmp_path) as base_url:
        refused = typed(tmp_path, "keys", "create", "theirs", "--scope", "runs:read")
        bearer = {"Authorization": f"Bearer {admin}"}
        made = httpx2.post(f"{base_url}/v1/keys", json=theirs, headers=bearer).json()
        listed = asked(base_url, tmp_path, "runs", "list", "--json", MILEPOST_API_KEY=made["key"])

    assert "SQLite serves one process at a time: stop that one, " in refused.complaint
    assert "meanwhile a service that runs on it takes POST /v1/keys, from a key" in (
        refused.complaint
    )
    assert (refused.code, refused.out) == (MISCONFIGURED, "")
    assert lines(listed) == []


def test_the_first_key_is_made_over_http_while_an_open_service_holds_the_file(
    tmp_path: Path,
) -> None:
    with served(tmp_path) as base_url:
        refused = typed(tmp_path, "keys", "create", "mine")
        mine = {"name": "mine", "scopes": ["admin"]}
        made = httpx2.post(f"{base_url}/v1/keys", json=mine)

    assert refused.complaint.endswith("or from anybody while there are no keys")
    assert made.status_code == 201


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


def test_a_session_is_found_watched_forked_and_taken_elsewhere(
    base_url: str, tmp_path: Path
) -> None:
    run = json.loads(asked(base_url, tmp_path, "runs", "create", "demo", "What is 1 + 2?").out)
    session = run["session_id"]

    told = asked(base_url, tmp_path, "sessions", "tail", session, "--until-idle")
    archived = json.loads(asked(base_url, tmp_path, "sessions", "archive", session).out)
    fork = json.loads(
        asked(base_url, tmp_path, "sessions", "fork", session, "--at", "1.0", "--title", "x").out
    )
    exported = asked(base_url, tmp_path, "sessions", "export", session).out
    (tmp_path / "talk.json").write_text(exported)
    imported = json.loads(asked(base_url, tmp_path, "sessions", "import", "talk.json").out)
    found = lines(asked(base_url, tmp_path, "sessions", "list", "--archived", "--json"))

    assert "      | 1 + 2 = 3.\n" in told.out
    assert "run.completed        finish_reason=stop" in told.out.splitlines()[-1]
    assert (archived["archived"], fork["forked_from"]["at"]) == (True, "1.0")
    assert imported["runs_ended"] == 1
    assert session in {each["id"] for each in found}
    assert imported["id"] in asked(base_url, tmp_path, "sessions", "list").out
    assert lines(asked(base_url, tmp_path, "sessions", "list", "--kind", "child", "--json")) == []


def test_what_is_known_is_listed_looked_for_exported_and_forgotten(
    base_url: str, tmp_path: Path
) -> None:
    for said in ("Eva likes green tea.", "Eva lives in Bergen."):
        fact = {"scope": "user", "owner": "eva", "kind": "fact", "content": said}
        assert httpx2.post(f"{base_url}/v1/memories", json=fact).is_success

    listed = lines(asked(base_url, tmp_path, "memories", "list", "--user", "eva", "--json"))
    table = asked(base_url, tmp_path, "memories", "list", "--owner", "eva", "--limit", "1")
    [found] = lines(asked(base_url, tmp_path, "memories", "search", "bergen", "--json"))
    nothing = asked(base_url, tmp_path, "memories", "search", "bergen", "--scope", "tenant")
    exported = lines(asked(base_url, tmp_path, "memories", "export", "eva"))
    deleted = asked(base_url, tmp_path, "memories", "delete", found["id"])

    assert listed == exported
    assert [each["content"] for each in listed] == ["Eva lives in Bergen.", "Eva likes green tea."]
    assert table.out.split()[:5] == ["MEMORY", "SCOPE", "OWNER", "KIND", "SAYS"]
    assert "Eva lives in Bergen." in table.out
    assert "There are more: --after mem_" in table.err
    assert nothing.out.split() == ["MEMORY", "SCOPE", "OWNER", "KIND", "SAYS"]
    assert (deleted.code, deleted.out) == (0, "")
    [left] = lines(asked(base_url, tmp_path, "memories", "list", "--user", "eva", "--json"))
    assert left["content"] == "Eva likes green tea."


def test_a_batch_is_made_of_a_file_watched_listed_and_erased(base_url: str, tmp_path: Path) -> None:
    second = '{"input": "What is 2 + 2?", "custom_id": "b", "metadata": {"c": "\u2028"}}'
    file = tmp_path / "items.ndjson"
    file.write_text(f'"What is 1 + 2?"\n\n{second}\n', "utf-8")
    words = ("batches", "create", "demo", str(file), "--concurrency", "1", "--metadata", "a=b")

    told = asked(base_url, tmp_path, *words, "--user", "zoe", "--priority", "3", "--stream")
    [batch] = lines(asked(base_url, tmp_path, "batches", "list", "--metadata", "a=b", "--json"))
    results = lines(asked(base_url, tmp_path, "batches", "results", batch["id"], "--json"))
    table = asked(base_url, tmp_path, "batches", "results", batch["id"], "--done").out
    again = asked(base_url, tmp_path, "batches", "tail", batch["id"]).out
    cancelled = asked(base_url, tmp_path, "batches", "cancel", batch["id"])
    deleted = asked(base_url, tmp_path, "batches", "delete", batch["id"])

    assert (told.code, told.err) == (0, "")
    assert told.out.splitlines()[-1] == "completed  2 of 2: 2 completed" == again.splitlines()[-1]
    assert (batch["concurrency"], batch["user"], batch["priority"]) == (1, "zoe", 3)
    assert [result["output"]["text"] for result in results] == ["1 + 2 = 3.", "2 + 2 = 4."]
    assert [result["custom_id"] for result in results] == [None, "b"]
    assert table.splitlines()[0].split() == ["INDEX", "ID", "STATUS", "RUN", "OUTPUT"]
    assert json.loads(cancelled.out)["status"] == "completed"
    assert (deleted.code, deleted.out) == (0, "")
    assert lines(asked(base_url, tmp_path, "batches", "list", "--metadata", "a=b", "--json")) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [('"hi"\nhello', "line 2 of items is not JSON"), ("[1]", "line 1 of items is no item")],
)
def test_a_file_that_holds_no_items_is_refused_with_its_line(
    base_url: str, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "items").write_text(text)

    said = asked(base_url, tmp_path, "batches", "create", "demo", "items")

    assert said.code == MISCONFIGURED
    assert told in " ".join(said.err.split())


def test_a_schedule_is_made_looked_at_paused_resumed_and_forgotten(
    base_url: str, tmp_path: Path
) -> None:
    timing = ("--cron", "59 23 31 12 *", "--timezone", "Asia/Kolkata", "--late-max-s", "60")
    words = ("schedules", "create", "demo", "What is 1 + 2?", *timing, "--name", "sums")
    made = json.loads(asked(base_url, tmp_path, *words, "--user", "zoe", "--overlap", "allow").out)
    schedule = made["id"]

    got = asked(base_url, tmp_path, "schedules", "get", schedule)
    listed = asked(base_url, tmp_path, "schedules", "list", "--user", "zoe")
    paused = json.loads(asked(base_url, tmp_path, "schedules", "pause", schedule).out)
    while_paused = asked(base_url, tmp_path, "schedules", "list", "--paused").out
    resumed = json.loads(asked(base_url, tmp_path, "schedules", "resume", schedule).out)
    deleted = asked(base_url, tmp_path, "schedules", "delete", schedule)

    assert json.loads(got.out) == made
    assert (made["name"], made["overlap"], made["late_max_s"]) == ("sums", "allow", 60)
    assert (made["run"]["input"], made["run"]["user"]) == ("What is 1 + 2?", "zoe")
    headings, row = listed.out.splitlines()
    assert headings.split() == [
        "SCHEDULE", "NAME", "AGENT", "CRON", "TIMEZONE", "NEXT", "LAST",
    ]  # fmt: skip
    assert [cell.strip() for cell in row.split("  ") if cell] == [
        schedule, "sums", "demo", "59 23 31 12 *", "Asia/Kolkata", made["next_at"],
    ]  # fmt: skip
    assert (paused["enabled"], resumed["next_at"]) == (False, made["next_at"])
    assert while_paused.split()[-1] == "paused"
    assert (deleted.code, deleted.out) == (0, "")
    assert lines(asked(base_url, tmp_path, "schedules", "list", "--json")) == []


def test_a_schedule_is_changed_in_what_is_named_alone(base_url: str, tmp_path: Path) -> None:
    run = {"agent": "demo", "input": "What is 1 + 2?", "priority": 7, "metadata": {"a": "b"}}
    timing = {"cron": "59 23 31 12 *", "timezone": "Asia/Kolkata", "overlap": "allow"}
    made = httpx2.post(f"{base_url}/v1/schedules", json={**timing, "name": "sums", "run": run})
    schedule = made.json()["id"]
    update = ("schedules", "update", schedule)

    moved = json.loads(asked(base_url, tmp_path, *update, "--cron", "0 9 * * MON").out)
    words = ("--input", "What is 3 + 4?", "--user", "zoe", "--late-max-s", "60", "--disabled")
    rewritten = json.loads(asked(base_url, tmp_path, *update, *words).out)
    asked(base_url, tmp_path, "schedules", "delete", schedule)

    assert told_anew(made.json(), moved) == {"cron": "0 9 * * MON"}
    assert told_anew(moved, rewritten) == {
        "run": {**moved["run"], "input": "What is 3 + 4?", "user": "zoe"},
        "late_max_s": 60,
        "enabled": False,
    }


def test_a_schedule_is_changed_in_all_that_it_was_made_with(base_url: str, tmp_path: Path) -> None:
    session = httpx2.post(f"{base_url}/v1/sessions", json={}).json()["id"]
    httpx2.post(f"{base_url}/v1/agents", json={"name": "other", "model": "demo/offline"})
    first = ("--cron", "0 9 * * *", "--disabled", "--metadata", "team=a", "--metadata", "floor=1")
    made = json.loads(asked(base_url, tmp_path, "schedules", "create", "demo", "hi", *first).out)
    named = ("--name", "morning", "--timezone", "Asia/Tokyo", "--agent", "other", "--enabled")
    more = ("--session", session, "--overlap", "allow", "--metadata", "team=b")

    said = asked(base_url, tmp_path, "schedules", "update", made["id"], *named, *more)
    asked(base_url, tmp_path, "schedules", "delete", made["id"])

    assert (made["enabled"], made["metadata"]) == (False, {"team": "a", "floor": "1"})
    assert said.code == 0
    assert told_anew(made, json.loads(said.out)) == {
        "name": "morning",
        "timezone": "Asia/Tokyo",
        "run": {**made["run"], "agent": "other", "session_id": session},
        "overlap": "allow",
        "enabled": True,
        "metadata": {"team": "b"},
    }


def test_what_a_schedule_has_is_taken_away_by_its_name(base_url: str, tmp_path: Path) -> None:
    session = httpx2.post(f"{base_url}/v1/sessions", json={"user": "zoe"}).json()["id"]
    timing = ("--cron", "0 9 * * *", "--disabled", "--late-max-s", "60", "--name", "morning")
    words = ("--user", "zoe", "--session", session, "--metadata", "team=a")
    made = json.loads(
        asked(base_url, tmp_path, "schedules", "create", "demo", "hi", *timing, *words).out
    )
    update = ("schedules", "update", made["id"])

    whose = json.loads(asked(base_url, tmp_path, *update, "--unset", "user").out)
    both = asked(base_url, tmp_path, *update, "--late-max-s", "5", "--unset", "late-max-s")
    unset = [w for n in ("name", "session", "late-max-s", "metadata") for w in ("--unset", n)]
    bare = json.loads(asked(base_url, tmp_path, *update, *unset).out)
    asked(base_url, tmp_path, "schedules", "delete", made["id"])

    assert told_anew(made, whose) == {"run": {**made["run"], "user": None}}
    assert told_anew(whose, bare) == {
        "name": None,
        "late_max_s": None,
        "metadata": {},
        "run": {**whose["run"], "session_id": None},
    }
    assert both.code == MISCONFIGURED
    assert "--late-max-s gives what --unset late-max-s takes away; name one" in both.err


def test_schedules_are_listed_by_what_they_are_marked_with(base_url: str, tmp_path: Path) -> None:
    create = ("schedules", "create", "demo", "hi", "--cron", "0 9 * * *", "--disabled")
    marks = (("team=a", "floor=1"), ("team=a", "floor=2"), ("team=b", "floor=1"))
    made = [
        json.loads(asked(base_url, tmp_path, *create, "--metadata", one, "--metadata", other).out)[
            "id"
        ]
        for one, other in marks
    ]
    wanted = ("--metadata", "team=a", "--metadata", "floor=1", "--json")

    listed = lines(asked(base_url, tmp_path, "schedules", "list", *wanted))
    for schedule in made:
        asked(base_url, tmp_path, "schedules", "delete", schedule)

    assert [each["id"] for each in listed] == made[:1]


def told_anew(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return what people may set of a schedule and is another now."""
    follows = {"version", "updated_at", "next_at", "upcoming"}
    return {k: v for k, v in after.items() if k not in follows and before[k] != v}


def test_a_schedule_whose_time_has_come_says_what_became_of_it(tmp_path: Path) -> None:
    with served(tmp_path, "--demo-word-delay-s", "0") as base_url:
        session = httpx2.post(f"{base_url}/v1/sessions", json={}).json()["id"]
        words = ("schedules", "create", "demo", "hello", "--cron", "0 0 1 1 *")
        made = json.loads(asked(base_url, tmp_path, *words, "--session", session).out)
        asyncio.run(let_come(f"sqlite:///{tmp_path}/.milepost/milepost.db"))

        last = what_became_of(base_url, tmp_path, made["id"])
        table = asked(base_url, tmp_path, "schedules", "list", "--agent", "demo", "--enabled").out
        mark = f"schedule_id={made['id']}"
        [run] = lines(asked(base_url, tmp_path, "runs", "list", "--metadata", mark, "--json"))

    assert (last["result"], last["run_id"]) == ("started", run["id"])
    assert table.split()[-1] == "started"
    assert run["session_id"] == session


def what_became_of(base_url: str, folder: Path, schedule: str) -> dict[str, Any]:
    """Return what became of the schedule's last time, once it has come."""
    for _ in range(LOOKS_MAX):
        shown = json.loads(asked(base_url, folder, "schedules", "get", schedule).out)
        if shown["last"] is not None:
            last: dict[str, Any] = shown["last"]
            return last
    raise AssertionError("its time has not come")


def test_how_long_things_are_kept_is_shown_and_changed_by_what_is_named(
    base_url: str, tmp_path: Path
) -> None:
    words = ("retention", "set")
    first = asked(base_url, tmp_path, *words, "--runs-s", "86400", "--traces-s", "3600")
    second = asked(base_url, tmp_path, *words, "--traces-s", "forever", "--memories-s", "90")

    shown = json.loads(asked(base_url, tmp_path, "retention", "show").out)

    kept = ("runs_s", "events_s", "artifacts_s", "traces_s", "memories_s")
    assert [json.loads(first.out)[name] for name in kept] == [86_400, None, None, 3_600, None]
    assert shown == json.loads(second.out)
    assert [shown[name] for name in kept] == [86_400, None, None, None, 90]
    forever = [f"--{name.replace('_', '-')}=forever" for name in kept]
    assert asked(base_url, tmp_path, *words, *forever).code == 0


def test_a_time_beyond_all_numbers_is_refused_in_one_line(base_url: str, tmp_path: Path) -> None:
    said = asked(base_url, tmp_path, "retention", "set", "--runs-s", str(2**64))

    assert said.code == FAILED
    assert "cannot be sent as JSON" in said.complaint


def test_all_that_there_is_of_a_user_is_exported(base_url: str, tmp_path: Path) -> None:
    asked(base_url, tmp_path, "runs", "create", "demo", "What is 2 + 4?", "--user", "ida")

    things = lines(asked(base_url, tmp_path, "export-user", "ida"))

    assert {"session", "run", "event"} <= {each["kind"] for each in things}


def test_what_takes_the_space_is_printed(base_url: str, tmp_path: Path) -> None:
    told = json.loads(asked(base_url, tmp_path, "storage", "--json").out)
    table = asked(base_url, tmp_path, "storage").out

    assert {"runs", "events"} <= {each["name"] for each in told["tables"]}
    assert table.splitlines()[0].split() == ["TABLE", "ROWS", "MIB", "INDEX", "MIB"]
    assert "MiB in all" in table


def test_a_user_is_erased_from_the_command_line(base_url: str, tmp_path: Path) -> None:
    asked(base_url, tmp_path, "runs", "create", "demo", "What is 2 + 3?", "--user", "ann")

    erasure = json.loads(asked(base_url, tmp_path, "erase-user", "ann").out)

    assert (erasure["status"], erasure["erased"]["runs"]) == ("completed", 1)
    assert '"ann"' not in asked(base_url, tmp_path, "runs", "list", "--json").out


def test_an_erasure_that_takes_longer_than_it_is_waited_for_goes_on(
    base_url: str, tmp_path: Path
) -> None:
    asked(base_url, tmp_path, "runs", "create", "demo", "What is 2 + 3?", "--user", "eve")

    brief = asked(base_url, tmp_path, "erase-user", "eve", "--wait-s", "0")
    erasure = json.loads(asked(base_url, tmp_path, "erase-user", "eve").out)

    assert brief.code == FAILED
    assert "after 0 s not all of 'eve' is erased; the erasure goes on" in brief.complaint
    assert erasure["status"] == "completed"
    assert '"eve"' not in asked(base_url, tmp_path, "runs", "list", "--json").out
