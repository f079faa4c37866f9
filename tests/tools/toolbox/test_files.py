"""Files inside one folder, and nowhere else."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milepost.core.errors import ToolError
from milepost.tools.toolbox import files
from milepost.tools.toolbox.files import file_tools


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with something in it, and something beside it that is nobody's business."""
    (tmp_path / "outside.txt").write_text("secret")
    root = tmp_path / "root"
    (root / "notes").mkdir(parents=True)
    (root / "notes" / "today.txt").write_text("sunny")
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    (root / "up").symlink_to(tmp_path)
    (root / "inside").symlink_to(root / "notes")
    return root


@pytest.fixture
def use(root: Path) -> Callable[..., Any]:
    """Call a tool by its name."""
    tools = {tool.name: tool.function for tool in file_tools(root)}
    return lambda name, *given: tools[name](*given)


def test_a_file_is_written_read_and_listed(use: Callable[..., Any]) -> None:
    use("write_file", "notes/new/plan.txt", "plant a tree")
    use("write_file", "notes/new/plan.txt", "plant two")

    assert use("read_file", "./notes//new/plan.txt") == "plant two"
    assert use("list_files", "notes") == [
        {"name": "new", "kind": "folder", "bytes": None},
        {"name": "today.txt", "kind": "file", "bytes": 5},
    ]
    assert use("list_files", "notes/new") == [{"name": "plan.txt", "kind": "file", "bytes": 9}]
    kinds = {each["name"]: each["kind"] for each in use("list_files", ".")}
    assert kinds == {"notes": "folder", "link.txt": "link", "up": "link", "inside": "link"}


@pytest.mark.parametrize(
    "path",
    [
        "../outside.txt", "notes/../../outside.txt", "/etc/passwd", "link.txt", "up/outside.txt",
        "up/root/notes/today.txt", "inside/today.txt", "", ".", "notes", "a\0b",
        "notes/today.txt/x",
    ],
)  # fmt: skip
def test_no_path_leads_out_nor_to_what_is_no_file(
    use: Callable[..., Any], root: Path, path: str
) -> None:
    with pytest.raises(ToolError):
        use("read_file", path)
    with pytest.raises(ToolError):
        use("write_file", path, "changed")

    assert (root.parent / "outside.txt").read_text() == "secret"
    assert (root / "notes" / "today.txt").read_text() == "sunny"


@pytest.mark.parametrize("path", ["..", "up", "/", "inside", "notes/today.txt"])
def test_no_folder_outside_is_listed(use: Callable[..., Any], path: str) -> None:
    with pytest.raises(ToolError):
        use("list_files", path)


def test_a_pipe_holds_nobody_up(use: Callable[..., Any], root: Path) -> None:
    os.mkfifo(root / "pipe")

    with pytest.raises(ToolError, match="pipe is no file"):
        use("read_file", "pipe")
    with pytest.raises(ToolError, match="pipe is no file"):
        use("write_file", "pipe", "x")


def test_what_is_not_there_is_said_with_where_to_look(use: Callable[..., Any]) -> None:
    with pytest.raises(ToolError, match=r"there is no notes/gone\.txt; list_files shows"):
        use("read_file", "notes/gone.txt")


def test_files_are_read_and_written_up_to_a_bound(
    use: Callable[..., Any], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 4)

    assert use("read_file", "notes/today.txt") == "sunn\n[cut: today.txt has more than 4 bytes]"
    with pytest.raises(ToolError, match="more than 4 bytes"):
        use("write_file", "notes/today.txt", "rainy")
    assert (root / "notes" / "today.txt").read_text() == "sunny"


def test_what_goes_while_it_is_listed_keeps_nothing_else_from_being_shown(
    use: Callable[..., Any], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, stat = root / "notes" / "a.draft", os.stat
    draft.write_text("cloudy")

    def look(name: str, **options: Any) -> os.stat_result:
        if name == draft.name:
            draft.unlink()
        return stat(name, **options)

    monkeypatch.setattr(os, "stat", look)

    assert use("list_files", "notes") == [{"name": "today.txt", "kind": "file", "bytes": 5}]


def test_nothing_is_left_behind_by_writing(use: Callable[..., Any], root: Path) -> None:
    use("write_file", "notes/today.txt", "rainy")

    assert os.listdir(root / "notes") == ["today.txt"]  # noqa: PTH208 - names are what counts


def test_who_may_use_a_file_stays_as_it_was(use: Callable[..., Any], root: Path) -> None:
    written = root / "notes" / "today.txt"
    written.chmod(0o600)

    use("write_file", "notes/today.txt", "rain")

    assert written.read_text() == "rain"
    assert written.stat().st_mode & 0o777 == 0o600


def test_what_is_written_is_durable_with_the_folders_that_were_made_for_it(
    use: Callable[..., Any], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", fsync)

    use("write_file", "plans/year/trees.txt", "plant two")

    *folders, draft, last = synced
    assert folders == [root, root / "plans"]
    assert draft.name.endswith(".draft")
    assert draft.parent == last == root / "plans" / "year"


def test_reading_repeats_and_writing_may_be_repeated(root: Path) -> None:
    effects = {tool.name: tool.effect for tool in file_tools(root)}

    assert effects == {"read_file": "read", "list_files": "read", "write_file": "idempotent"}
