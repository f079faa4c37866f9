"""`{name}` in a declared URL, header or body, and the arguments that take its place."""

import json
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from milepost.core.errors import ToolError
from milepost.core.json import Json

PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


def placeholders(template: Json) -> Iterator[str]:
    """Yield the names that `template`, at any depth, has room for."""
    match template:
        case str():
            yield from PLACEHOLDER.findall(template)
        case dict():
            for part in template.values():
                yield from placeholders(part)
        case list():
            for part in template:
                yield from placeholders(part)
        case _:
            pass


def has_open_host(url: str) -> bool:
    """Say whether a URL's host, or the port behind it, has room for an argument."""
    host = url.partition("://")[2].partition("/")[0].partition("?")[0]
    return PLACEHOLDER.search(host) is not None


def fill_path(template: str, arguments: Mapping[str, Json]) -> str:
    """Return a URL's path and what is before it, with each argument as one quoted segment part.

    Raises ToolError for an argument that would change which path it is.
    """

    def segment(found: re.Match[str]) -> str:
        value = as_word(arguments.get(found[1]))
        if value in {"", ".", ".."}:
            raise ToolError(f"{found[1]} cannot be {value!r}: it names a part of the URL's path")
        return quote(value, safe="")

    return PLACEHOLDER.sub(segment, template)


def fill(template: Json, arguments: Mapping[str, Json]) -> Json:
    """Return `template` with the arguments in place; those not given leave their members out."""
    match template:
        case str():
            return _fill_text(template, arguments)
        case dict():
            kept = {key: part for key, part in template.items() if not _is_absent(part, arguments)}
            return {key: fill(part, arguments) for key, part in kept.items()}
        case list():
            return [fill(part, arguments) for part in template if not _is_absent(part, arguments)]
        case _:
            return template


def as_word(value: Json) -> str:
    """Return a value as it stands in a URL or a header."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case _:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def pointed(document: Json, pointer: str) -> Json:
    """Return what a JSON pointer (RFC 6901) points at. Raises `KeyError` where that is nothing."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        match document:
            case dict():
                document = document[key]
            case list() if key.isdecimal() and int(key) < len(document):
                document = document[int(key)]
            case _:
                raise KeyError(key)
    return document


def _fill_text(template: str, arguments: Mapping[str, Json]) -> Json:
    if (whole := PLACEHOLDER.fullmatch(template)) is not None:
        return arguments.get(whole[1])
    return PLACEHOLDER.sub(lambda found: as_word(arguments.get(found[1])), template)


def _is_absent(part: Json, arguments: Mapping[str, Json]) -> bool:
    if not isinstance(part, str) or (whole := PLACEHOLDER.fullmatch(part)) is None:
        return False
    return whole[1] not in arguments
