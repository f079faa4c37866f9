"""Loading guardrails in Python: from where, and where they run."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.core.errors import ConfigurationError
from milepost.guardrails import Block, Subject
from milepost.guardrails.python_rails import FunctionRail
from milepost.runtime.python_rails import load_rails
from milepost.tools import ToolThreads

RAILS = """
import threading

from milepost.guardrails import Block, Warn, rail


@rail
def short(subject):
    return Block(threading.current_thread().name) if len(subject.text) > 3 else None


@rail(timeout_s=0.05)
def hanging(subject):
    waits.wait(5)


@rail(name="polite")
async def polite_one(subject):
    return None if "please" in subject.text else Warn("impolite")


waits = threading.Event()
"""


@pytest.fixture
def threads() -> Iterator[ToolThreads]:
    """Threads for what may block."""
    threads = ToolThreads(1)
    yield threads
    threads.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of rails."""
    file = tmp_path / "rails.py"
    file.write_text(RAILS)
    return file


@pytest.mark.parametrize("as_folder", [False, True])
def test_the_rails_of_a_file_or_folder_are_found_by_name(
    file: Path, threads: ToolThreads, *, as_folder: bool
) -> None:
    found = load_rails([str(file.parent if as_folder else file)], threads)

    assert {*found} == {"short", "hanging", "polite"}


async def test_a_plain_function_runs_in_the_threads_of_tools(
    file: Path, threads: ToolThreads
) -> None:
    found = load_rails([str(file)], threads)

    verdict = await found["short"].check(Subject("input", "hello"))

    assert verdict == Block("milepost-tool")


async def test_one_that_hangs_fails_in_time_and_is_left_to_itself(
    file: Path, threads: ToolThreads
) -> None:
    found = load_rails([str(file)], threads)
    hanging = found["hanging"]

    with pytest.raises(TimeoutError):
        await hanging.check(Subject("input", "hello"))

    assert threads.hung == 1
    assert isinstance(hanging, FunctionRail)
    waits: threading.Event = hanging.function.__globals__["waits"]
    waits.set()


async def test_what_a_rail_raises_comes_out_as_it_is(tmp_path: Path, threads: ToolThreads) -> None:
    file = tmp_path / "broken.py"
    file.write_text(
        "from milepost.guardrails import rail\n@rail\ndef broken(subject): return 1 / 0\n"
    )

    with pytest.raises(ZeroDivisionError):
        await load_rails([str(file)], threads)["broken"].check(Subject("input", "hello"))


def test_a_file_without_rails_is_refused(tmp_path: Path, threads: ToolThreads) -> None:
    (tmp_path / "none.py").write_text("x = 1\n")

    with pytest.raises(ConfigurationError, match="holds no guardrails; decorate its functions"):
        load_rails([str(tmp_path / "none.py")], threads)


def test_two_files_with_a_rail_of_the_same_name_are_refused(
    file: Path, tmp_path: Path, threads: ToolThreads
) -> None:
    other = tmp_path / "other.py"
    other.write_text(RAILS)

    with pytest.raises(ConfigurationError, match="there is a guardrail 'hanging' already"):
        load_rails([str(file), str(other)], threads)


def test_what_is_not_there_is_refused(threads: ToolThreads) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no file nowhere\.py"):
        load_rails(["nowhere.py"], threads)
