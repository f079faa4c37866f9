"""What an OpenAPI document refers to, found within the document and nowhere else."""

import re
from collections.abc import Mapping
from typing import Any

from yarl import URL

from milepost.core.errors import InvalidError
from milepost.core.json import Json
from milepost.tools.foreign import understood
from milepost.tools.http.templates import has_open_host

HOPS_MAX = 20
DEFINITIONS_MAX = 500


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
    part: Any = document
    for step in reference.removeprefix("#/").split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(part, Mapping) or key not in part:
            raise invalid(where, f"it refers to {reference!r}, which is not in the document")
        part = part[key]
    return part


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


class Schemas:
    """The schemas of one operation: what they refer to becomes definitions of its own."""

    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        self._document = document
        self._where = where
        self._names: dict[str, str] = {}
        self.definitions: dict[str, Json] = {}

    def read(self, schema: Any) -> dict[str, Json]:
        """Return `schema` with references that stay within the tool's own schema."""
        if not isinstance(schema, Mapping):
            return {}
        try:
            return understood(schema, self._define)
        except (ValueError, RecursionError) as error:
            raise invalid(self._where, str(error)) from error

    def _define(self, reference: str) -> str:
        if reference not in self._names:
            if len(self._names) >= DEFINITIONS_MAX:
                raise invalid(self._where, f"it refers to more than {DEFINITIONS_MAX} schemas")
            self._names[reference] = name = self._free_name(reference)
            target = resolved(self._document, {"$ref": reference}, self._where)
            self.definitions[name] = understood(target, self._define)
        return f"#/$defs/{self._names[reference]}"

    def _free_name(self, reference: str) -> str:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", reference.rpartition("/")[2]) or "_"
        while name in self._names.values():
            name += "_"
        return name
