"""Files of tools that change while the service runs."""

import os
from pathlib import Path

import pytest
import structlog

from milepost.core.errors import ConfigurationError
from milepost.tools import Registry, tool, tool_of
from milepost.tools.reload import ReloadedTools

ADD = '''
from milepost.tools import tool

@tool(effect="read")
def {name}(a: int) -> int:
    """{words}"""
    return a
'''


@tool
def own(a: int) -> int:
    """Stay."""
    return a


def write(path: Path, name: str = "add", words: str = "Add.") -> None:
    """Write a file of one tool, and have it look as young as its latest change is."""
    path.write_text(ADD.format(name=name, words=words))
    touch(path)


def touch(path: Path) -> None:
    """Give the file a time of its own, within the second of the one it had."""
    told = path.stat()
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns + 1_000))


def described(registry: Registry | None) -> dict[str, str]:
    """Return the tools' descriptions."""
    assert registry is not None
    return {each.name: each.description for each in registry}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file of one tool."""
    write(tmp_path / "adding.py")
    return tmp_path


def test_a_file_that_changed_is_loaded_anew_and_handed_out_registries_stay(folder: Path) -> None:
    tools = ReloadedTools([f"{folder}/adding.py"], [tool_of(own)])
    first = tools.load()
    same = tools.look()

    write(folder / "adding.py", words="ADD.")  # As long as before, and in the same second.
    second = tools.look()

    assert same is None
    assert described(first) == {"own": "Stay.", "add": "Add."}
    assert described(second) == {"own": "Stay.", "add": "ADD."}
    assert tools.look() is None


def test_files_come_to_a_folder_and_go(folder: Path) -> None:
    tools = ReloadedTools([str(folder)])
    tools.load()

    write(folder / "more.py", "more")
    with_more = tools.look()
    (folder / "adding.py").unlink()
    without = tools.look()

    assert list(described(with_more)) == ["add", "more"]
    assert list(described(without)) == ["more"]


@pytest.mark.parametrize(
    "broken",
    [
        "def broken(:\n",
        "raise SystemExit(3)\n",
        ADD.format(name="own", words="Take a name."),
        "from milepost.tools import tool\n@tool\ndef add(x: print):\n    'F.'\n",
        "class Panic(BaseException):\n    pass\nraise Panic('below')\n",
    ],
)
def test_a_broken_file_keeps_the_last_good_version_and_says_why_once(
    folder: Path, broken: str
) -> None:
    tools = ReloadedTools([str(folder)], [tool_of(own)])
    tools.load()

    (folder / "adding.py").write_text(broken)
    with structlog.testing.capture_logs() as said:
        looks = [tools.look(), tools.look()]
    write(folder / "adding.py", words="Mended.")
    mended = tools.look()

    assert looks == [None, None]
    [warning] = said
    assert warning["log_level"] == "warning"
    assert "those it had are kept" in warning["event"]
    assert warning["error"]
    assert described(mended) == {"own": "Stay.", "add": "Mended."}


@pytest.mark.parametrize("other", ["a_first.py", "z_last.py"])
def test_a_tool_moves_from_one_file_to_another_in_one_look(folder: Path, other: str) -> None:
    write(folder / other, "more")
    tools = ReloadedTools([str(folder)])
    tools.load()

    write(folder / other, "add", "Moved.")
    write(folder / "adding.py", "sub", "Subtract.")

    assert described(tools.look()) == {"add": "Moved.", "sub": "Subtract."}


def test_a_tool_moves_in_one_look_beside_a_file_that_goes_with_no_other(folder: Path) -> None:
    for name in ("a_first", "other", "third"):
        write(folder / f"{name}.py", name)
    tools = ReloadedTools([str(folder)])
    tools.load()

    write(folder / "a_first.py", "add", "Moved.")
    write(folder / "adding.py", "sub", "Subtract.")
    write(folder / "other.py", "third", "Taken.")

    assert described(tools.look()) == {
        "add": "Moved.",
        "sub": "Subtract.",
        "other": "Add.",
        "third": "Add.",
    }


def test_two_files_trade_tools_beside_a_third_that_goes_with_no_other(folder: Path) -> None:
    write(folder / "taking.py", "take")
    write(folder / "splitting.py", "split")
    tools = ReloadedTools([str(folder)], [tool_of(own)])
    tools.load()

    write(folder / "adding.py", "take", "Traded.")
    write(folder / "taking.py", "add", "Traded.")
    write(folder / "splitting.py", "own", "Not ours.")

    traded = {"add": "Traded.", "take": "Traded."}
    assert described(tools.look()) == {"own": "Stay.", **traded, "split": "Add."}
    write(folder / "splitting.py", "split", "Split.")
    assert described(tools.look()) == {"own": "Stay.", **traded, "split": "Split."}


def test_two_files_trade_tools_beside_a_third_that_wants_one_of_them(folder: Path) -> None:
    write(folder / "taking.py", "take")
    write(folder / "zipping.py", "zip")
    tools = ReloadedTools([str(folder)])
    tools.load()

    write(folder / "adding.py", "take", "Traded.")
    write(folder / "taking.py", "add", "Traded.")
    write(folder / "zipping.py", "add", "Wanted.")

    assert described(tools.look()) == {"add": "Traded.", "take": "Traded.", "zip": "Add."}


def test_a_tool_that_two_files_had_for_a_while_is_had_from_the_one_that_is_left(
    folder: Path,
) -> None:
    write(folder / "a_first.py", "more")
    tools = ReloadedTools([str(folder)])
    tools.load()

    write(folder / "a_first.py", "add", "Moved.")
    at_once = tools.look()
    write(folder / "adding.py", "sub", "Subtract.")
    later = tools.look()

    assert at_once is None
    assert described(later) == {"add": "Moved.", "sub": "Subtract."}


def test_a_named_file_that_is_gone_for_a_moment_keeps_its_tools(folder: Path) -> None:
    tools = ReloadedTools([f"{folder}/adding.py"])
    tools.load()

    (folder / "adding.py").unlink()

    assert tools.look() is None
    write(folder / "adding.py", words="Back.")
    assert described(tools.look()) == {"add": "Back."}


def test_a_folder_that_is_gone_keeps_its_tools(folder: Path) -> None:
    tools = ReloadedTools([str(folder)])
    tools.load()

    moved = folder.rename(folder.with_name("moved"))

    assert tools.look() is None
    moved.rename(folder)
    write(folder / "adding.py", words="Back.")
    assert described(tools.look()) == {"add": "Back."}


def test_what_is_broken_from_the_start_is_a_configuration_error(folder: Path) -> None:
    write(folder / "again.py")
    with pytest.raises(ConfigurationError, match="'add' already"):
        ReloadedTools([str(folder)]).load()
    (folder / "again.py").write_text("x = ")
    with pytest.raises(ConfigurationError, match="SyntaxError"):
        ReloadedTools([str(folder)]).load()
