"""What cannot work is refused before anything begins: one line, a remedy, the right exit code."""

import socket
from importlib.metadata import version
from pathlib import Path

import pytest

from milepost.store import lockfile
from milepost.store.address import parse_address
from tests.cli.typed import FAILED, MISCONFIGURED, typed


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--port", "70000"], "--port (MILEPOST_PORT) cannot be 70000"),
        (["--database-url", "postgresql://a:b@localhost:x/y"], "user:password@host:port/name"),
        (["--redis-url", "localhost"], "--redis-url (MILEPOST_REDIS_URL) cannot be 'localhost'"),
        (["--redis-url", "redis://localhost:x"], "write it as redis://host:port/0"),
        (["--redis-url", "redis://localhost/cache"], "'cache' is no number of a database; write"),
        (["--host", "0.0.0.0"], "create one with `milepost keys create`, or bind to 127.0.0.1"),
        (["--tools", "nowhere.py"], "there is no file nowhere.py"),
        (["--guardrails", "nowhere.py"], "there is no file nowhere.py"),
        (["--tools", "broken.py"], "broken.py cannot be loaded at line 1: SyntaxErr"),
        (["--agents", "broken.toml"], "agents file broken.toml: "),
        (["--no-migrate"], "run `milepost migrate`, or start without --no-migrate"),
        (["--secret-key", "short"], "MILEPOST_SECRET_KEY has 5 characters"),
        (["--tools", "\udcff.py"], "'\\udcff.py' is not text in this terminal's encoding"),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_what_would_do(
    tmp_path: Path, words: list[str], told: str
) -> None:
    (tmp_path / "broken.py").write_text("def broken(:")
    (tmp_path / "broken.toml").write_text("[[agents\n")

    said = typed(tmp_path, "serve", "--port", "0", *words)

    assert told in said.complaint
    assert (said.code, said.out) == (MISCONFIGURED, "")


def test_a_version_is_told_to_whoever_asks(tmp_path: Path) -> None:
    said = typed(tmp_path, "--version")

    assert (said.code, said.out.strip(), said.err) == (0, f"milepost {version('milepost')}", "")


def test_a_variable_is_refused_as_its_flag_is(tmp_path: Path) -> None:
    said = typed(tmp_path, "serve", MILEPOST_PORT="eighty")

    assert said.complaint.startswith("--port (MILEPOST_PORT) cannot be 'eighty'")
    assert said.code == MISCONFIGURED


def test_a_port_that_is_taken_is_left_to_its_owner(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as owner:
        said = typed(tmp_path, "serve", "--port", str(owner.getsockname()[1]))

    assert "something listens there already; choose another --port" in said.complaint
    assert said.code == MISCONFIGURED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["serve", "--port", "0"], ["keys", "list"]])
def test_a_file_has_one_process(tmp_path: Path, words: list[str]) -> None:
    url = f"sqlite:///{tmp_path}/milepost.db"

    with lockfile.held(parse_address(url)):
        said = typed(tmp_path, *words, "--database-url", url)

    assert "SQLite serves one process at a time" in said.complaint
    assert said.code == MISCONFIGURED


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    said = typed(tmp_path, "migrate", "--database-url", "sqlite:///file/milepost.db")

    assert "file/milepost.db.lock cannot be written" in said.complaint
    assert "name another place with --database-url" in said.complaint
    assert said.code == MISCONFIGURED


@pytest.mark.parametrize("words", [["serve", "--port", "0"], ["worker"]])
def test_a_folder_in_which_no_artifact_could_be_kept_is_named(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "file").touch()

    said = typed(tmp_path, *words, "--artifacts-dir", "file/artifacts")

    assert said.complaint.startswith("nothing can be kept in file/artifacts: file is no folder;")
    assert "name another folder with --artifacts-dir" in said.complaint
    assert said.code == MISCONFIGURED


def test_a_postgres_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{nobody.getsockname()[1]}/milepost"
        said = typed(tmp_path, "worker", "--database-url", f"postgresql://ann:sesame@{place}")

    assert said.complaint.startswith(f"Postgres at {place} does not answer: ")
    assert "--database-url names another" in said.complaint
    assert "sesame" not in said.err
    assert said.code == FAILED


def test_a_redis_that_cannot_be_is_named_without_its_password(tmp_path: Path) -> None:
    said = typed(tmp_path, "serve", "--redis-url", "http://ann:sesame@localhost")

    assert said.complaint.startswith("--redis-url (MILEPOST_REDIS_URL) cannot be 'http://ann:")
    assert "sesame" not in said.err
    assert said.code == MISCONFIGURED


def test_a_worker_without_slots_is_refused(tmp_path: Path) -> None:
    said = typed(tmp_path, "worker", "--slots", "0")

    assert "give it some --slots" in said.complaint
    assert said.code == MISCONFIGURED


def test_a_variable_that_counts_for_nothing_is_named_though_the_command_goes_on(
    tmp_path: Path,
) -> None:
    said = typed(tmp_path, "migrate", MILEPOST_DATABSE_URL="postgresql://ann:sesame@localhost/x")

    assert "MILEPOST_DATABSE_URL" in said.err
    assert "nearest=MILEPOST_DATABASE_URL" in said.err
    assert "sesame" not in said.err
    assert said.code == 0
