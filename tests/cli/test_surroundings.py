"""What a command finds around it: a disk without room, a folder that is gone, no terminal."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.typed import ENDS_S, FAILED, MISCONFIGURED, command, environment, typed

# Root may write everywhere, unless it gives that right away.
_UNPRIVILEGED = (
    "setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps",
    "-dac_override,-dac_read_search",
)  # fmt: skip


def ended(folder: Path, words: list[str], **given: object) -> tuple[int, str]:
    """Return how a command ended, and what it complained of."""
    done = subprocess.run(  # type: ignore[call-overload]  # what is given differs
        words,
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        timeout=ENDS_S,
        check=False,
        text=True,
        **given,
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
def test_an_output_that_has_no_room_is_said_in_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        told = ended(tmp_path, command("--help"), stdout=full)

    assert told == (FAILED, "milepost: the output cannot be written: No space left on device\n")


def test_a_command_without_an_input_says_that_nothing_is_piped_in(tmp_path: Path) -> None:
    words = ["sh", "-c", '"$@" <&-', "sh", *command("policies", "put", "-")]

    code, complaint = ended(tmp_path, words)

    assert code == MISCONFIGURED
    assert "nothing is piped in" in complaint
    assert "Traceback" not in complaint


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_what_is_piped_in_is_utf_8_whatever_the_terminal_is(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "piped").write_bytes(mark + b'"\xc3\xa9"\nno item')

    with (tmp_path / "piped").open() as piped:
        code, complaint = ended(
            tmp_path,
            ["env", "PYTHONIOENCODING=ascii", *command("batches", "create", "demo", "-")],
            stdin=piped,
        )

    assert code == MISCONFIGURED
    assert "line 2 of - is not JSON" in complaint


@pytest.mark.parametrize("file", ["-", "piped"])
def test_what_is_no_utf_8_is_said_so(tmp_path: Path, file: str) -> None:
    (tmp_path / "piped").write_bytes(b"\xff\xfe")

    with (tmp_path / "piped").open() as piped:
        words = command("batches", "create", "demo", file)
        code, complaint = ended(tmp_path, words, stdin=piped)

    assert code == MISCONFIGURED
    assert f"{file} cannot be read: 'utf-8' codec can't decode" in complaint


def test_a_folder_that_is_gone_is_named_as_the_trouble(tmp_path: Path) -> None:
    words = ["sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; "$@"', "sh"]

    code, complaint = ended(tmp_path, [*words, *command("serve", "--port", "0")])

    assert code == MISCONFIGURED
    assert "the current folder cannot be seen" in complaint
    assert len(complaint.splitlines()) == 1


@pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write everywhere"
)
@pytest.mark.parametrize("protect", [lambda db: db.chmod(0o444), lambda db: db.parent.chmod(0o555)])
def test_a_database_that_may_only_be_read_is_named_at_once(
    tmp_path: Path, protect: Callable[[Path], None]
) -> None:
    database = tmp_path / "data" / "milepost.db"
    database.parent.mkdir()
    url = f"sqlite:///{database}"
    assert typed(tmp_path, "migrate", "--database-url", url).code == 0
    protect(database)

    unprivileged = _UNPRIVILEGED if os.geteuid() == 0 else ()
    told = ended(tmp_path, [*unprivileged, *command("keys", "list", "--database-url", url)])
    database.parent.chmod(0o755)

    assert told[0] in (FAILED, MISCONFIGURED)
    assert str(database.parent) in told[1]
    assert len(told[1].splitlines()) == 1


def test_a_demo_that_is_told_to_end_does(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        command("demo"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with demo:
        assert demo.stdout is not None
        assert "runs at" in demo.stdout.readline()
        demo.send_signal(signal.SIGTERM)
        _, complaint = demo.communicate(timeout=ENDS_S)

    assert (demo.returncode, complaint) == (143, "")
