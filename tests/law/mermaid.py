"""A light look at Mermaid pictures: enough to catch what would be drawn as an error."""

import re
from collections.abc import Callable, Iterator

_PARTICIPANT = re.compile(r"(?:participant|actor) (?P<id>\w+)(?: as \S.*)?")
_MESSAGE = re.compile(r"(?P<left>\w+)(?:->>|-->>|-x|--x|-\)|--\))[+-]?(?P<right>\w+): \S.*")
_NOTE = re.compile(r"Note (?:over|left of|right of) (?P<ids>\w+(?:,\w+)*): \S.*")
_OPENS = re.compile(r"(?:loop|alt|opt|par|critical|rect|box|subgraph)\b.*")
_TURNS = re.compile(r"(?:else|and|option)\b.*")
_TRANSITION = re.compile(r"(?P<left>\[\*\]|\w+) --> (?P<right>\[\*\]|\w+)(?:: \S.*)?")
_STATE = re.compile(r"state \"[^\"]+\" as \w+|note (?:left|right) of \w+: \S.*|direction (?:LR|TB)")
_EDGE = re.compile(
    r"\w+(?:\[\"[^\"]*\"\]|\(\[\"[^\"]*\"\]\))?"
    r"(?: (?:-->|-\.->|---)(?:\|\"?[^|]+\"?\|)? \w+(?:\[\"[^\"]*\"\])?)*"
)


def faults_of(picture: str) -> list[str]:
    """Return what is wrong with a picture; nothing, if nothing is."""
    kind, *lines = [line.strip() for line in picture.splitlines() if line.strip()]
    readers: dict[str, Callable[[list[str]], Iterator[str]]] = {
        "sequenceDiagram": _sequence_faults,
        "stateDiagram-v2": _state_faults,
        "flowchart TB": _flow_faults,
        "flowchart LR": _flow_faults,
    }
    if kind not in readers:
        return [f"{kind!r} is no known kind of picture"]
    # To Mermaid a semicolon ends a line, and a hash begins an entity.
    unsafe = [f"{line!r} has a ; or a #" for line in lines if ";" in line or "#" in line]
    return [*unsafe, *_unbalanced(lines), *readers[kind](lines)]


def states_of(picture: str) -> set[str]:
    """Return the states of a state diagram."""
    found = (_TRANSITION.fullmatch(line.strip()) for line in picture.splitlines())
    ends = {end for match in found if match for end in (match["left"], match["right"])}
    return ends - {"[*]"}


def _unbalanced(lines: list[str]) -> Iterator[str]:
    depth = 0
    for line in lines:
        depth += bool(_OPENS.fullmatch(line)) - (line == "end")
        if depth < 0:
            yield "an end without a beginning"
            return
    if depth:
        yield f"{depth} blocks without an end"


def _sequence_faults(lines: list[str]) -> Iterator[str]:
    known: set[str] = set()
    for line in lines:
        if line in {"autonumber", "end"} or _OPENS.fullmatch(line) or _TURNS.fullmatch(line):
            continue
        if participant := _PARTICIPANT.fullmatch(line):
            known.add(participant["id"])
        elif message := _MESSAGE.fullmatch(line):
            yield from _unknown({message["left"], message["right"]} - known, line)
        elif note := _NOTE.fullmatch(line):
            yield from _unknown(set(note["ids"].split(",")) - known, line)
        else:
            yield f"{line!r} cannot be read"


def _unknown(ids: set[str], line: str) -> Iterator[str]:
    if ids:
        yield f"{line!r} names {', '.join(sorted(ids))}, which was not introduced"


def _state_faults(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if not (_TRANSITION.fullmatch(line) or _STATE.fullmatch(line)):
            yield f"{line!r} cannot be read"


def _flow_faults(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line != "end" and not (_OPENS.fullmatch(line) or _EDGE.fullmatch(line)):
            yield f"{line!r} cannot be read"
