"""Tools of files that are being worked on: what changes is loaded anew, what breaks is kept."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from structlog.stdlib import BoundLogger, get_logger

from milepost.core.errors import ConfigurationError, ToolValidationError
from milepost.tools.definition import Tool
from milepost.tools.loader import files_of, load_file
from milepost.tools.registry import Registry

LOOK_S = 1.0

Stamp = tuple[int, int]

_LOG: BoundLogger = get_logger("milepost.tools")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A file's tools, from when it last loaded; `stamp` is of what was last looked at.

    `is_held_up`: it loads, but does not go with the other files as they were then.
    """

    stamp: Stamp
    tools: Sequence[Tool]
    is_held_up: bool = False


class ReloadedTools:
    """The tools of files and folders, beside `others` that stay as they are.

    A registry that was handed out is never changed: whoever works with it keeps what it has.
    """

    def __init__(self, specs: Iterable[str], others: Iterable[Tool] = ()) -> None:
        self._specs = tuple(specs)
        self._others = tuple(others)
        self._files: dict[Path, _Loaded] = {}

    def load(self) -> Registry:
        """Load all files. Raises `ConfigurationError` for one that cannot be."""
        for path, stamp in self._stamps().items():
            self._files[path] = _Loaded(stamp, load_file(path))
        try:
            return self._registry(self._files)
        except ToolValidationError as error:
            raise ConfigurationError(str(error)) from error

    def look(self) -> Registry | None:
        """Load what has changed; return the tools as they are now, None if they are the same.

        A file that does not load is told of once, and keeps its tools until it changes again.
        """
        before = self._files
        try:
            stamps = self._stamps()
        except ConfigurationError:
            return None  # A folder is gone: whoever moves it about puts another in its place.
        files = {path: loaded for path, loaded in before.items() if path in stamps}
        due = {path: stamp for path, stamp in stamps.items() if _is_new(files.get(path), stamp)}
        if not due and len(files) == len(before):
            return None
        # What did not go with the others may go with what they are now.
        due |= {path: stamps[path] for path, known in files.items() if known.is_held_up}
        self._files = self._loaded_anew(files, due)
        is_same = _tools_of(self._files) == _tools_of(before)
        return None if is_same else self._registry(self._files)

    async def watch(self, install: Callable[[Registry], None]) -> None:
        """Look once a second, for as long as it is not cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if (registry := await asyncio.to_thread(self.look)) is not None:
                install(registry)

    def _loaded_anew(
        self, files: Mapping[Path, _Loaded], due: Mapping[Path, Stamp]
    ) -> dict[Path, _Loaded]:
        """Return the files with those that are due, as far as they load and go with the others.

        They are taken together if they can be: a tool may have moved from one to the other.
        """
        loaded, anew = {**files}, dict[Path, _Loaded]()
        for path, stamp in due.items():
            try:
                anew[path] = _Loaded(stamp, load_file(path, fresh=True))
            except Exception as error:  # Whatever it is, runs go on with what they have.
                loaded[path] = _kept(files.get(path), stamp, error)
        while going := self._going(loaded, anew):
            loaded |= going
            anew = {path: each for path, each in anew.items() if path not in going}
            for path, each in going.items():
                names = [tool.name for tool in each.tools]
                _LOG.info("a file of tools was loaded anew", file=str(path), tools=names)
        for path, each in anew.items():
            complaint = self._complaint({**loaded, path: each})
            assert complaint is not None, "it did not go with the others"
            loaded[path] = replace(_kept(files.get(path), each.stamp, complaint), is_held_up=True)
        return loaded

    def _going(
        self, loaded: Mapping[Path, _Loaded], anew: Mapping[Path, _Loaded]
    ) -> Mapping[Path, _Loaded]:
        """Return those of the new ones that go with one another and with what stays.

        What does not go with what stays is left out, and with that stays what it had. Where the new
        ones only do not go with one another, the last is.
        """
        going = dict(anew)
        while going and self._complaint({**loaded, **going}):
            stays = {path: each for path, each in loaded.items() if path not in going}
            misfits = [p for p, each in going.items() if self._complaint({**stays, p: each})]
            for path in misfits or [*going][-1:]:
                del going[path]
        return going

    def _complaint(self, files: Mapping[Path, _Loaded]) -> ToolValidationError | None:
        """Return why the tools of these files cannot be had together, None if they can."""
        try:
            self._registry(files)
        except ToolValidationError as error:
            return error
        return None

    def _registry(self, files: Mapping[Path, _Loaded]) -> Registry:
        tools = chain(self._others, *(files[path].tools for path in self._ordered(files)))
        return Registry(dict.fromkeys(tools))

    def _ordered(self, files: Mapping[Path, _Loaded]) -> Iterator[Path]:
        """Yield the files by their specs, and by name in a folder."""
        return iter(sorted(files, key=lambda path: (self._place(path), path)))

    def _place(self, path: Path) -> int:
        named = (Path(spec) for spec in self._specs)
        return next((at for at, each in enumerate(named) if each in (path, path.parent)), 0)

    def _stamps(self) -> dict[Path, Stamp]:
        """Return what tells a changed file from an unchanged one; one that is named stays."""
        found: dict[Path, Stamp] = {}
        for path in chain.from_iterable(files_of(spec) for spec in self._specs):
            try:
                told = path.stat()
                found[path] = (told.st_mtime_ns, told.st_size)
            except OSError:
                # Editors put a new file in the old one's place, and for a moment there is none.
                if path in self._files and str(path) in {str(Path(spec)) for spec in self._specs}:
                    found[path] = self._files[path].stamp
        return found


def _is_new(known: _Loaded | None, stamp: Stamp) -> bool:
    return known is None or known.stamp != stamp


def _tools_of(files: Mapping[Path, _Loaded]) -> dict[Path, Sequence[Tool]]:
    return {path: loaded.tools for path, loaded in files.items()}


def _kept(known: _Loaded | None, stamp: Stamp, error: Exception) -> _Loaded:
    """Return a file that cannot be taken as it is now, with the tools that it had."""
    _LOG.warning("a file of tools is broken; those it had are kept", error=str(error))
    return _Loaded(stamp, known.tools if known else ())
