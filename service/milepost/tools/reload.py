"""Tools of files that are being worked on: what changes is loaded anew, what breaks is kept."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """A file's tools, from when it last loaded; `stamp` is of what was last looked at."""

    stamp: Stamp
    tools: Sequence[Tool]


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
        changed = len(files) != len(before)
        for path, stamp in stamps.items():
            known = files.get(path)
            if known is not None and known.stamp == stamp:
                continue
            files[path] = anew = self._loaded_anew(path, stamp, files)
            changed = changed or known is None or anew.tools != known.tools
        self._files = files
        return self._registry(files) if changed else None

    async def watch(self, install: Callable[[Registry], None]) -> None:
        """Look once a second, for as long as it is not cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if (registry := await asyncio.to_thread(self.look)) is not None:
                install(registry)

    def _loaded_anew(self, path: Path, stamp: Stamp, files: Mapping[Path, _Loaded]) -> _Loaded:
        kept = files[path].tools if path in files else ()
        try:
            loaded = _Loaded(stamp, load_file(path, fresh=True))
            self._registry({**files, path: loaded})
        except (ConfigurationError, ToolValidationError) as error:
            _LOG.warning("a file of tools is broken; those it had are kept", error=str(error))
            return _Loaded(stamp, kept)
        names = [tool.name for tool in loaded.tools]
        _LOG.info("a file of tools was loaded anew", file=str(path), tools=names)
        return loaded

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
