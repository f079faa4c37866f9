"""What a docstring says to a model: what the function does, and what each parameter means.

Read in the three styles that people write: Google (`Args:`), NumPy (`Parameters` underlined) and
reST (`:param name:`).
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_GOOGLE_PARAMETERS = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments",
     "other parameters"}
)  # fmt: skip
_GOOGLE_OTHERS = frozenset(
    {"returns", "return", "yields", "yield", "raises", "example", "examples", "note", "notes",
     "warning", "warnings", "attributes", "todo", "see also", "references"}
)  # fmt: skip
_NUMPY_PARAMETERS = frozenset({"parameters", "other parameters"})

# `city (str, optional): The town.`, or `*more: The rest.`
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^:]*\))?\s*:(?P<words>(?:\s.*)?)$")
# `city : str`, `a, b : int`, or `city`
_NUMPY_ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
# `:param city: The town.`, or `:param str city: The town.`
_REST_ENTRY = re.compile(r":(?:param|parameter|arg|argument)\s+[^:]*?\*{0,2}(?P<name>\w+)\s*:")
_REST_FIELD = re.compile(r":(?:\w+)(?:\s[^:]*)?:(?:\s|$)")
_UNDERLINE = re.compile(r"-{3,}\s*$")


@dataclass(frozen=True, slots=True)
class Documentation:
    """`summary` is the first paragraph on one line, `text` all of it, `parameters` by name."""

    summary: str
    text: str
    parameters: Mapping[str, str]


def documentation(function: Callable[..., Any]) -> Documentation:
    """Return what `function`'s own docstring says; all of it is empty where there is none."""
    texts = [inspect.cleandoc(text) for text in _docstrings(function)]
    text = texts[0] if texts else ""
    parameters: dict[str, str] = {}
    for source in reversed(texts):
        parameters.update(_parameters(source.splitlines()))
    return Documentation(_summary(text.splitlines()), text, parameters)


def _docstrings(function: Any) -> Iterator[str]:
    """Yield what was written about what is called, the most telling first."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        written = [function.__doc__]
    elif inspect.isclass(function):
        written = [function.__doc__, vars(function).get("__init__", function).__doc__]
    else:
        written = [function.__doc__, type(function).__call__.__doc__]
    yield from dict.fromkeys(text for text in written if text and text.strip())


def _summary(lines: list[str]) -> str:
    paragraph: list[str] = []
    for index, line in enumerate(lines):
        if not line.strip() or _begins_section(lines, index):
            break
        paragraph.append(line)
    return " ".join(" ".join(paragraph).split())


def _begins_section(lines: list[str], index: int) -> bool:
    line = lines[index]
    return bool(_google_section(line) or _REST_FIELD.match(line) or _is_underlined(lines, index))


def _google_section(line: str) -> str:
    """Return the section that `line` opens, in lower case; empty for a line of text."""
    words = line.rstrip().lower()
    known = words.endswith(":") and words[:-1] in _GOOGLE_PARAMETERS | _GOOGLE_OTHERS
    return words[:-1] if known else ""


def _is_underlined(lines: list[str], index: int) -> bool:
    follows = lines[index + 1] if index + 1 < len(lines) else ""
    return bool(lines[index].strip() and _UNDERLINE.match(follows))


def _parameters(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for index, line in enumerate(lines):
        if _google_section(line) in _GOOGLE_PARAMETERS:
            found.update(_google(lines[index + 1 :]))
        elif line.strip().lower() in _NUMPY_PARAMETERS and _is_underlined(lines, index):
            found.update(_numpy(lines, index + 2))
        elif entry := _REST_ENTRY.match(line):
            found[entry["name"]] = [line[entry.end() :], *_rest_of_field(lines[index + 1 :])]
    joined = {name: " ".join(" ".join(words).split()) for name, words in found.items()}
    return {name: words for name, words in joined.items() if words}


def _google(lines: list[str]) -> dict[str, list[str]]:
    """Read entries up to the first line that is not indented; deeper lines continue an entry."""
    found: dict[str, list[str]] = {}
    depth = 0
    words: list[str] = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.strip() and not indent:
            break
        depth = depth or indent
        if indent == depth and (entry := _GOOGLE_ENTRY.match(line.strip())):
            words = found.setdefault(entry["name"], [])
            words.append(entry["words"])
        else:
            words.append(line)
    return found


def _numpy(lines: list[str], start: int) -> dict[str, list[str]]:
    """Read entries up to the next underlined heading; indented lines describe."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for index in range(start, len(lines)):
        line = lines[index]
        if _is_underlined(lines, index):
            break
        if line[:1].strip():
            entry = _NUMPY_ENTRY.match(line)
            names = [name.strip(" *") for name in entry["names"].split(",")] if entry else []
            found.update({name: [] for name in names})
            continue
        for name in names:
            found[name].append(line)
    return found


def _rest_of_field(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if not line[:1].isspace():
            return
        yield line
