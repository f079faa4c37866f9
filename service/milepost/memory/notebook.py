"""A notebook: what is known in one's own process, each thing once, and on disk if it has a folder.

The folder is for people, too: facts stand in `facts.md`, the log in a file a day under `logs/`, a
line each; entities and relations in JSON. What people write there is read at the next opening, and
what of it is in no list stays where it is, before the list.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import orjson

from milepost.core.errors import ConfigurationError
from milepost.core.memories import (
    CONTENT_CHARS_MAX,
    Finding,
    MemoryKind,
    likeness,
    line,
    sought,
)
from milepost.memory import entities, knowledge, telling
from milepost.memory.extraction import KEPT_MAX
from milepost.memory.ranking import fused
from milepost.memory.telling import Noted

FACTS = "facts.md"
LOGS = "logs"
ENTITIES = "entities.json"
RELATIONS = "relations.json"
FOUND_MAX = 20
_BULLETS = ("- ", "* ", "+ ")

Key = tuple[MemoryKind, str]


class Notebook:
    """What is known. What was not mentioned for longest goes first where there is too much.

    `clock` tells Unix milliseconds. Only one process may have a folder open.
    """

    def __init__(
        self,
        folder: Path | None,
        clock: Callable[[], int],
        *,
        recent_days: int = knowledge.RECENT_DAYS,
        entities_max: int = entities.ENTITIES_MAX,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._recent_days = recent_days
        self._most = {**KEPT_MAX, "entity": entities_max}
        self._known: dict[Key, Noted] = {}
        # Those that are ours to write, also once nothing is left for one of them.
        self._logs: set[Path] = set()
        self._beside: dict[Path, str] = {}
        if folder is not None:
            self._open(folder)

    def of(self, kind: MemoryKind) -> list[Finding]:
        """Return what is known of a kind, what was mentioned last coming last."""
        return [noted.finding for noted in self._known.values() if noted.finding.kind == kind]

    def add(self, findings: Iterable[Finding]) -> None:
        """Note what was found; what is known already was mentioned once more."""
        now_ms, touched = self._clock(), set()
        for finding in findings:
            self._note(finding, now_ms)
            touched.add(finding.kind)
        for kind in touched:
            self._prune(kind)
            self._save(kind)

    def forget(self, finding: Finding) -> bool:
        """Forget it; say whether it was known."""
        known = self._known.pop((finding.kind, finding.key), None)
        if known is not None:
            self._save(finding.kind)
        return known is not None

    def told(self, query: str) -> str:
        """Return what a run is told that is asked this."""
        asked = sought(query)
        recent_ms = knowledge.since_ms(self._clock(), self._recent_days)
        return telling.told(self._ranked(asked), asked, recent_ms)

    def found(self, query: str) -> list[str]:
        """Return what is known about it, the best first, a line each."""
        asked = {*sought(query)}
        best = [noted for noted in self._ranked([*asked]) if likeness(noted.finding, asked)]
        return [telling.in_a_line(noted) for noted in best[:FOUND_MAX]]

    def _note(self, finding: Finding, now_ms: int) -> None:
        key = (finding.kind, finding.key)
        earlier = self._known.pop(key, None)
        both = entities.merged([*([earlier.finding] if earlier else []), finding])
        self._known[key] = Noted(both[-1], now_ms)

    def _prune(self, kind: MemoryKind) -> None:
        keys = [key for key in self._known if key[0] == kind]
        for key in keys[: max(0, len(keys) - self._most[kind])]:
            del self._known[key]

    def _ranked(self, asked: Sequence[str]) -> list[Noted]:
        """Return all that is known, what has most of the words first, then what is newest."""
        wanted = {*asked}
        latest = [*reversed(self._known)]
        scored = {key: likeness(self._known[key].finding, wanted) for key in latest}
        matching = sorted((key for key in latest if scored[key]), key=lambda key: -scored[key])
        return [self._known[key] for key in fused(matching, latest, weights=(2.0, 1.0))]

    # --- On disk ---

    def _open(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            now_ms = self._clock()
            for kind, name in (("entity", ENTITIES), ("relation", RELATIONS)):
                self._read_json(folder / name, kind)
            for said in self._read_list(folder / FACTS):
                self._note(Finding("fact", said), now_ms)
            for day_ms in self._days(now_ms):
                file = self._log_of(folder, day_ms)
                for said in self._read_list(file):
                    self._note(Finding("log", said), day_ms)
                    self._logs.add(file)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"what is known in {folder} cannot be read: {error}"
            ) from error

    def _read_json(self, file: Path, kind: str) -> None:
        if not file.is_file():
            return
        for each in orjson.loads(file.read_bytes()):
            said = dict(each)
            seen_ms = int(said.pop("seen_ms"))
            finding = Finding(**said)
            if finding.kind != kind:
                raise ValueError(f"{file.name} has something of kind {finding.kind}")
            self._known[finding.kind, finding.key] = Noted(finding, seen_ms)

    def _days(self, now_ms: int) -> list[int]:
        first_ms = knowledge.since_ms(now_ms, self._recent_days)
        return [*range(first_ms, now_ms + 1, knowledge.DAY_MS)]

    def _log_of(self, folder: Path, said_ms: int) -> Path:
        day = datetime.fromtimestamp(said_ms / 1000, UTC).date().isoformat()
        return folder / LOGS / f"{day}.md"

    def _save(self, kind: MemoryKind) -> None:
        if (folder := self._folder) is None:
            return
        noted = [each for each in self._known.values() if each.finding.kind == kind]
        match kind:
            case "entity" | "relation":
                told = [{**asdict(each.finding), "seen_ms": each.seen_ms} for each in noted]
                name = ENTITIES if kind == "entity" else RELATIONS
                _write(folder / name, orjson.dumps(told, option=orjson.OPT_INDENT_2))
            case "fact":
                self._write_list(folder / FACTS, [each.finding.content for each in noted])
            case "log":
                by_day: dict[Path, list[str]] = {file: [] for file in self._logs}
                for each in noted:
                    file = self._log_of(folder, each.seen_ms)
                    by_day.setdefault(file, []).append(each.finding.content)
                for file, said in by_day.items():
                    self._write_list(file, said)
                self._logs = {file for file, said in by_day.items() if said}

    def _read_list(self, file: Path) -> list[str]:
        """Return what stands in a list, as people write one, and keep what stands beside it."""
        if not file.is_file():
            return []
        listed, beside = list[str](), list[str]()
        for each in file.read_text(encoding="utf-8").splitlines():
            said = line(each[2:], len(each)) if each.startswith(_BULLETS) else ""
            if 0 < len(said) <= CONTENT_CHARS_MAX:
                listed.append(said)
            elif each.strip() != "-":
                beside.append(each)
        self._beside[file] = "\n".join(beside).strip("\n")
        return listed

    def _write_list(self, file: Path, said: Iterable[str]) -> None:
        beside = self._beside.get(file)
        listed = "".join(f"- {line(each)}\n" for each in said)
        _write(file, (f"{beside}\n\n{listed}" if beside else listed).encode())


def _write(file: Path, content: bytes) -> None:
    """Put a whole file in the place of the old one, so that a crash leaves one of them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(content)
    new.replace(file)
