"""Files inside one folder. Every part of a path is opened by itself, and no link is followed."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from milepost.core.errors import ToolError
from milepost.core.json import Json
from milepost.tools.decorator import tool, tool_of
from milepost.tools.definition import Tool

FILE_BYTES_MAX = 1_000_000
ENTRIES_MAX = 1_000

Inside = Annotated[str, "A path inside the folder, such as notes/today.txt"]
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe would wait for whoever writes into it.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MODE = 0o644
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def file_tools(root: Path) -> list[Tool]:
    """Return the tools that read, list and write below `root`, and nowhere else."""

    @tool(effect="read")
    def read_file(path: Inside) -> str:
        """Read a text file."""
        with _told(path), _parent(root, _parts(path)) as (folder, name):
            return _read(folder, name)

    @tool(effect="read")
    def list_files(
        path: Annotated[str, "A folder inside the folder; . is all of it"] = ".",
    ) -> list[dict[str, Json]]:
        """List the files and folders of a folder, by name: the first 1,000 of them."""
        with _told(path), _opened(root, _parts(path, may_be_root=True)) as folder:
            with os.scandir(folder) as found:
                names = sorted(entry.name for entry in found)
            return [*_entries(folder, names[:ENTRIES_MAX])]

    @tool(effect="idempotent")
    def write_file(path: Inside, content: str) -> str:
        """Write a text file, in the place of one that is there; its folders are made."""
        data = content.encode()
        if len(data) > FILE_BYTES_MAX:
            raise ToolError(f"{path} would have more than {FILE_BYTES_MAX} bytes; write less")
        with _told(path), _parent(root, _parts(path), make=True) as (folder, name):
            _write(folder, name, data)
        return f"{path} has {len(data)} bytes now"

    return [tool_of(function) for function in (read_file, list_files, write_file)]


def _parts(path: str, *, may_be_root: bool = False) -> list[str]:
    """Return the names of a path that stays inside; raise `ToolError` for another."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts or "\x00" in path:
        raise ToolError(f"{path!r} leads out of the folder; name a path inside, without ..")
    if not parts and not may_be_root:
        raise ToolError(f"{path!r} names no file")
    return parts


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Say in words what the system says in numbers."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolError(f"there is no {path}; list_files shows what there is") from error
    except OSError as error:
        raise ToolError(
            f"{path} cannot be used: {error.strerror or error}; links are not followed"
        ) from error


@contextmanager
def _opened(root: Path, parts: list[str], *, make: bool = False) -> Iterator[int]:
    """Open a folder below `root`, one name after the other."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
                    os.fsync(folder)
            below = os.open(part, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _parent(root: Path, parts: list[str], *, make: bool = False) -> Iterator[tuple[int, str]]:
    with _opened(root, parts[:-1], make=make) as folder:
        yield folder, parts[-1]


def _read(folder: int, name: str) -> str:
    file = os.open(name, _READ, dir_fd=folder)
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ToolError(f"{name} is no file")
        data = opened.read(FILE_BYTES_MAX + 1)
    text = data[:FILE_BYTES_MAX].decode(errors="replace")
    cut = f"\n[cut: {name} has more than {FILE_BYTES_MAX} bytes]"
    return text + cut if len(data) > FILE_BYTES_MAX else text


def _write(folder: int, name: str, data: bytes) -> None:
    """Put a whole file in the place of the old one, durably: nobody ever reads half of it.

    Who may use the old one may use the new one, and nobody else.
    """
    kept = _mode(folder, name)
    draft = f".{secrets.token_hex(8)}.draft"
    file = os.open(draft, _WRITE, _MODE if kept is None else 0, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as opened:
            if kept is not None:
                os.fchmod(file, kept)
            opened.write(data)
            opened.flush()
            os.fsync(file)
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(draft, dir_fd=folder)
        raise
    os.fsync(folder)


def _mode(folder: int, name: str) -> int | None:
    """Return who may use the file, None without one. Raises `ToolError` for what is no file."""
    try:
        told = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(told.st_mode):
        raise ToolError(f"{name} is no file, and nothing else is written over")
    return told.st_mode & 0o777


def _entries(folder: int, names: list[str]) -> Iterator[dict[str, Json]]:
    for name in names:
        # Others write meanwhile, and drafts of theirs go as they become files.
        with suppress(FileNotFoundError):
            yield _entry(folder, name)


def _entry(folder: int, name: str) -> dict[str, Json]:
    told = os.stat(name, dir_fd=folder, follow_symlinks=False)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(told.st_mode), "other")
    return {"name": name, "kind": kind, "bytes": told.st_size if kind == "file" else None}
