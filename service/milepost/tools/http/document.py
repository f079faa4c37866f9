"""What an OpenAPI document refers to, found within the document and nowhere else."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from yarl import URL

from milepost.core.errors import InvalidError
from milepost.core.json import Json
from milepost.tools.foreign import understood
from milepost.tools.http.templates import has_open_host, pointed

HOPS_MAX = 20
DEFINITIONS_MAX = 500
"""To how many schemas one operation may refer."""
EXPANDED_CHARS_MAX = 4_000_000
"""How long the schemas of all operations are as JSON, each with all that it refers to."""


def invalid(where: str, issue: str) -> InvalidError:
    """Return the error for an operation that cannot be a tool, with what to do about it."""
    return InvalidError(
        f"{where}: {issue}; choose others with tags or operations, or mend the document"
    )


def resolved(document: Mapping[str, Any], part: Any, where: str) -> Mapping[str, Any]:
    """Return `part`, or what it refers to. Raises `InvalidError` where that is not an object."""
    for _ in range(HOPS_MAX):
        if not isinstance(part, Mapping):
            raise invalid(where, f"an object is due where {part!r:.80} stands")
        if "$ref" not in part:
            return part
        part = pointed_at(document, str(part["$ref"]), where)
    raise invalid(where, "its references refer to one another")


def pointed_at(document: Mapping[str, Any], reference: str, where: str) -> Any:
    """Return what a reference points at. Raises `InvalidError` if that is not in the document."""
    if not reference.startswith("#/"):
        raise invalid(where, f"it refers to {reference!r}, outside of the document")
    try:
        return pointed(dict(document), unquote(reference.removeprefix("#")))
    except KeyError:
        raise invalid(where, f"it refers to {reference!r}, which is not in the document") from None


def server_of(document: Mapping[str, Any]) -> str:
    """Return where the document says that its API is."""
    servers = document.get("servers") or [{}]
    server = servers[0] if isinstance(servers, list) else {}
    url = str(server.get("url", "")) if isinstance(server, Mapping) else ""
    for name, told in (server.get("variables") or {}).items():
        url = url.replace(f"{{{name}}}", str(told.get("default", "")))
    try:
        is_absolute = URL(url).scheme in {"http", "https"} and URL(url).host
    except ValueError:
        is_absolute = None
    if not is_absolute:
        raise InvalidError(f"the document's server is {url or 'not named'!r}; set base_url")
    return url


def require_fixed_host(url: str) -> None:
    """Raise `InvalidError` for a URL whose host an argument would be part of."""
    if has_open_host(url):
        raise InvalidError(
            f"the model may not choose the host, as in {url!r}; set base_url to where the API is"
        )


def operation_id(path: str, method: str, operation: Mapping[str, Any]) -> str:
    """Return what an operation is called: by its author, or after its method and path."""
    named = str(operation.get("operationId") or "")
    return named or re.sub(r"[^A-Za-z0-9]+", "_", f"{method} {path}").strip("_")


@dataclass(frozen=True, slots=True)
class _Read:
    """A schema as it was read: how long it is, and the references that it makes itself."""

    schema: dict[str, Json]
    chars: int
    refers_to: tuple[str, ...]


class Schemas:
    """The schemas of a document. Each is read once, however many operations have it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._taken: dict[str, int] = {}
        self._parts: dict[int, tuple[Mapping[str, Any], _Read]] = {}
        self._definitions: dict[str, _Read] = {}
        self._room = EXPANDED_CHARS_MAX

    def of(self, where: str) -> "OperationSchemas":
        """Return the schemas of the operation that errors call `where`."""
        return OperationSchemas(self, where)

    def part(self, schema: Mapping[str, Any], where: str) -> _Read:
        """Return a part of the document as it reads, the same each time."""
        if id(schema) not in self._parts:
            # With the part itself, so that no other can come to have the number.
            self._parts[id(schema)] = (schema, self._read(schema, where))
        return self._parts[id(schema)][1]

    def reached(self, references: Iterable[str], where: str) -> dict[str, Json]:
        """Return what is referred to, and all that this refers to, by the names it has here."""
        found: dict[str, Json] = {}
        ahead = [*references]
        while ahead:
            reference = ahead.pop()
            if (name := self._names[reference]) in found:
                continue
            if len(found) >= DEFINITIONS_MAX:
                raise invalid(where, f"it refers to more than {DEFINITIONS_MAX} schemas")
            read = self._definition(reference, where)
            self.take_room(read.chars, where)
            found[name] = read.schema
            ahead += read.refers_to
        return found

    def take_room(self, chars: int, where: str) -> None:
        """Count what an operation brings along; raise `InvalidError` where it is too much."""
        self._room -= chars
        if self._room < 0:
            raise invalid(
                where,
                "with it the schemas of all operations, each with what it refers to, have more"
                f" than {EXPANDED_CHARS_MAX} characters",
            )

    def _definition(self, reference: str, where: str) -> _Read:
        if reference not in self._definitions:
            target = resolved(self._document, {"$ref": reference}, where)
            self._definitions[reference] = self._read(target, where)
        return self._definitions[reference]

    def _read(self, schema: Mapping[str, Any], where: str) -> _Read:
        refers_to: dict[str, None] = {}

        def rename(reference: str) -> str:
            refers_to[reference] = None
            return f"#/$defs/{self._name(reference)}"

        try:
            read = understood(schema, rename)
        except ValueError as error:
            raise invalid(where, str(error)) from error
        return _Read(read, chars_of(read), tuple(refers_to))

    def _name(self, reference: str) -> str:
        """Return what is referred to by its own name; another of that name gets a number."""
        if reference not in self._names:
            own = re.sub(r"[^A-Za-z0-9_-]", "_", reference.rpartition("/")[2]) or "_"
            name = own
            while name in self._taken:
                self._taken[own] += 1
                name = f"{own}_{self._taken[own]}"
            self._taken[name] = 1
            self._names[reference] = name
        return self._names[reference]


class OperationSchemas:
    """The schemas of one operation: what they refer to becomes definitions of its own."""

    def __init__(self, schemas: Schemas, where: str) -> None:
        self._schemas = schemas
        self._where = where
        self._references: dict[str, None] = {}

    def read(self, schema: Any) -> dict[str, Json]:
        """Return `schema` with references that stay within the tool's own schema."""
        if not isinstance(schema, Mapping):
            return {}
        read = self._schemas.part(schema, self._where)
        self._references |= dict.fromkeys(read.refers_to)
        return read.schema

    def whole(self, schema: dict[str, Json]) -> dict[str, Json]:
        """Return the operation's own schema with the definitions that it needs."""
        self._schemas.take_room(chars_of(schema), self._where)
        definitions = self._schemas.reached(self._references, self._where)
        return {**schema, "$defs": definitions} if definitions else schema


def chars_of(schema: Mapping[str, Json]) -> int:
    """Return how long a schema is as JSON."""
    return len(json.dumps(schema, default=str))
