"""What the tools really did, as they wrote it down themselves."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import orjson


@dataclass(frozen=True, slots=True)
class Effect:
    """One execution of a tool that came as far as its effect."""

    tool: str
    effect: str
    run_id: str
    call_id: str
    key: str
    attempt: int
    pid: int


def read(path: Path) -> list[Effect]:
    """Return all that was done."""
    if not path.exists():
        return []
    return [Effect(**orjson.loads(line)) for line in path.read_bytes().splitlines()]


def by_call(effects: Iterable[Effect]) -> dict[tuple[str, str], list[Effect]]:
    """Return the effects of each call."""
    found: dict[tuple[str, str], list[Effect]] = defaultdict(list)
    for effect in effects:
        found[effect.run_id, effect.call_id].append(effect)
    return found
