"""A tool call as text: how it is written, where it begins and ends, and what it asks for.

    TOOL_CALL: {"name": "add", "arguments": {"a": 17, "b": 25}}

A marker begins a line, and a JSON object follows. It may go over several lines, and stand in a code
fence, with its marker or behind it.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from milepost.core.json import Json

CALL_MARKER = "TOOL_CALL:"
RESULT_MARKER = "TOOL_RESULT:"
FENCE = "```"

# Bounded, so that no line is held back for long.
_FENCE_LINE = re.compile(r"```[\w-]{0,20}[ \t\r]{0,8}(?P<end>\n?)")
_BLANKS = re.compile(r"[ \t]{0,16}")
_BEGINNING = re.compile(r"\n|\S")
_STRUCTURE = re.compile(r'[\n"{}]')
_IN_STRING = re.compile(r'[\n"]|\\.', re.DOTALL)
_NAME = re.compile(r"""\bname\b["']?\s*[:=]\s*["']([^"']*)["']""")
_BARE_NAME = re.compile(r"\s*([\w.-]+(?::[\w.-]+)*):?\s*(?:[({]|$)", re.MULTILINE)


def written(name: str, arguments: Mapping[str, Json]) -> str:
    """Return a call as a model is to write it."""
    called = {"name": name, "arguments": dict(arguments)}
    return f"{CALL_MARKER} {json.dumps(called, ensure_ascii=False)}"


class Found(Enum):
    """What a line begins with."""

    ANSWER = auto()
    CALL = auto()
    RESULT = auto()
    UNSURE = auto()  # What comes next will tell.


@dataclass(frozen=True, slots=True)
class Line:
    """What a line begins with, and where it goes on behind that."""

    found: Found
    end: int = 0
    fenced: bool = False


_ANSWER, _UNSURE = Line(Found.ANSWER), Line(Found.UNSURE)


def line_at(text: str, start: int) -> Line:
    """Return what the line at `start` begins with; a marker may have a fence over it."""
    at, fenced = _behind_blanks(text, start), False
    if fence := _FENCE_LINE.match(text, at):
        if not fence["end"]:
            return _UNSURE if fence.end() == len(text) else _ANSWER
        at, fenced = _behind_blanks(text, fence.end()), True
    for marker, found in ((CALL_MARKER, Found.CALL), (RESULT_MARKER, Found.RESULT)):
        if text.startswith(marker, at):
            return Line(found, at + len(marker), fenced)
    begun = text[at : at + len(RESULT_MARKER)]
    wholes = (CALL_MARKER, RESULT_MARKER, FENCE)
    return _UNSURE if any(whole.startswith(begun) for whole in wholes) else _ANSWER


def _behind_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


class CallBody:
    """What stands behind a marker, read as it comes."""

    def __init__(self, marker: Line) -> None:
        self.fenced = marker.fenced
        self._starts = marker.end
        self._at = marker.end
        self._depth = 0
        self._quoted = False
        self._bare = False

    def end_in(self, text: str) -> int | None:
        """Return where the call ends in a text that only grows; None where that is open yet.

        An object ends with its last brace, what is none with its line, and both where another
        marker begins a line: no JSON has one there.
        """
        while mark := self._next_mark(text):
            self._at = mark.end()
            if mark[0] == "\n":
                if self._bare:
                    return mark.start()
                line = line_at(text, mark.end())
                if line.found is Found.UNSURE:
                    self._at = mark.start()
                    return None
                if line.found is not Found.ANSWER:
                    return mark.end()
            elif self._depth:
                if self._closes(mark[0]):
                    return mark.end()
            elif not self._begins(text, mark):
                return None
        self._at = len(text) - (1 if self._half_escaped(text) else 0)
        return None

    def said_in(self, text: str, end: int) -> str:
        """Return what the call says that ends at `end`."""
        return text[self._starts : end].strip()

    def _next_mark(self, text: str) -> re.Match[str] | None:
        if self._quoted:
            pattern = _IN_STRING
        elif self._depth or self._bare:
            pattern = _STRUCTURE
        else:
            pattern = _BEGINNING
        return pattern.search(text, self._at)

    def _begins(self, text: str, mark: re.Match[str]) -> bool:
        """Take what the call begins with; say whether there is enough of it to tell."""
        if self._bare:
            return True
        if mark[0] == "{":
            self._depth, self._starts = 1, mark.start()
            return True
        if mark[0] == "`" and not self.fenced:
            return self._opens_fence(text, mark.start())
        self._bare = True
        return True

    def _opens_fence(self, text: str, at: int) -> bool:
        fence = _FENCE_LINE.match(text, at)
        if fence and fence["end"]:
            self.fenced = True
            self._starts, self._at = fence.end(), fence.end() - 1
            return True
        if (fence and fence.end() == len(text)) or FENCE.startswith(text[at : at + len(FENCE)]):
            self._at = at
            return False
        self._bare = True
        return True

    def _closes(self, mark: str) -> bool:
        """Take a brace, a quote or what is escaped; say whether it ends the object."""
        if mark == '"':
            self._quoted = not self._quoted
        elif mark == "{":
            self._depth += 1
        elif mark == "}":
            self._depth -= 1
        return not self._depth

    def _half_escaped(self, text: str) -> bool:
        return self._quoted and text.endswith("\\", self._at)


def read_call(said: str, names: Collection[str]) -> tuple[str, str] | None:
    """Return the tool that is called, one of `names`, and its arguments; None where none is.

    What is no JSON, but names a tool, is called with all of what was said.
    """
    try:
        call = json.loads(said, strict=False)
        if isinstance(call, dict):
            return (call["name"], _arguments(call)) if _names_one(call, names) else None
    except (ValueError, RecursionError):
        pass  # What is no JSON may name its tool all the same.
    named = _NAME.search(said) or _BARE_NAME.match(said)
    return (named[1], said) if named and named[1] in names else None


def _names_one(call: Mapping[str, Json], names: Collection[str]) -> bool:
    name = call.get("name")
    return isinstance(name, str) and name in names


def _arguments(call: Mapping[str, Json]) -> str:
    """Return a call's arguments as text; they may have another name, or none of their own."""
    rest: Json = {key: value for key, value in call.items() if key != "name"}
    arguments = call.get("arguments", call.get("parameters", rest))
    match arguments:
        case None:
            return ""
        case str():
            return arguments
        case _:
            return json.dumps(arguments)
