"""An OpenAPI 3 document as tools: one for each operation that is wanted."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import Field

from milepost.core.errors import InvalidError
from milepost.core.json import Json
from milepost.tools.declaration import (
    Declaration,
    DeclaredEffect,
    Headers,
    HttpUrl,
    Patterns,
    Prefix,
    TimeoutS,
)
from milepost.tools.definition import Tool
from milepost.tools.egress import Egress
from milepost.tools.foreign import UNREADABLE
from milepost.tools.http.document import (
    Schemas,
    invalid,
    operation_id,
    require_fixed_host,
    resolved,
    server_of,
)
from milepost.tools.http.operation import Described, Operation, http_tool
from milepost.tools.http.templates import PLACEHOLDER
from milepost.tools.references import Secrets

OPERATIONS_MAX = 500
NAME_CHARS_MAX = 64
DESCRIPTION_CHARS_MAX = 8_000
SHOWN_MAX = 20
_METHODS = ("get", "put", "post", "delete", "patch", "head")
_PLACES = ("path", "query", "header")
# What frames the request, or says who makes it: by us or by the declaration, never by a model.
_NOT_THE_MODELS = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "cookie", "idempotency-key",
        "accept-encoding",
    }
)  # fmt: skip
# A path, a method, and what the document says of them.
_Chosen = tuple[str, str, Mapping[str, Any]]


class OpenApiSpec(Declaration):
    """Which operations of a document become tools, and where they are sent.

    `tags` and `operations` (globs over operation ids) choose; without either all are taken.
    """

    document: dict[str, Any]
    base_url: HttpUrl | None = None
    prefix: Prefix | None = None
    tags: Patterns = Field(default_factory=list)
    operations: Patterns = Field(default_factory=list)
    headers: Headers = Field(default_factory=dict)
    timeout_s: TimeoutS = 30.0
    effects: Annotated[dict[str, DeclaredEffect], Field(max_length=OPERATIONS_MAX)] = Field(
        default_factory=dict
    )
    requires_approval: Patterns = Field(default_factory=list)

    def tools(self, egress: Egress, secrets: Secrets) -> list[Tool]:
        """Return the tools. Raises `InvalidError` that names the operation which cannot be one."""
        try:
            read = operations_of(self)
        except UNREADABLE as error:
            raise InvalidError(
                f"the document does not read as OpenAPI 3: {error!r:.200}"
            ) from error
        tools = [http_tool(described, request, egress, secrets) for described, request in read]
        if not tools:
            raise InvalidError(
                "no operation of the OpenAPI document is chosen; see its tags and operations"
            )
        return tools


def operations_of(spec: OpenApiSpec) -> list[tuple[Described, Operation]]:
    """Return what each chosen operation is called, takes and sends."""
    version = str(spec.document.get("openapi", ""))
    if not version.startswith("3."):
        raise InvalidError(f"the document says openapi: {version or 'nothing'!r}; it must be 3.x")
    base = spec.base_url or server_of(spec.document)
    require_fixed_host(base)
    schemas = Schemas(spec.document)
    found = [_Read(spec, base, chosen, schemas) for chosen in _chosen(spec)]
    if len(found) > OPERATIONS_MAX:
        raise InvalidError(
            f"{len(found)} operations are chosen, and {OPERATIONS_MAX} may be;"
            " name tags or operations"
        )
    unused = sorted(set(spec.effects) - {each.id for each in found})
    if unused:
        raise InvalidError(f"effects names {unused[0]!r}, which is none of the chosen operations")
    _require_there(spec)
    return [each.read() for each in found]


def _require_there(spec: OpenApiSpec) -> None:
    """Raise for a glob of `requires_approval` that fits nothing: a slip would have nobody asked."""
    named = [operation_id(path, method, item) for path, method, item in _operations(spec)]
    for glob in spec.requires_approval:
        if not any(fnmatchcase(each, glob) for each in named):
            raise InvalidError(
                f"requires_approval has {glob!r}, which fits no operation of the document;"
                f" these are there: {', '.join(sorted(named)[:SHOWN_MAX])}"
            )


def _chosen(spec: OpenApiSpec) -> Iterator[_Chosen]:
    for path, method, operation in _operations(spec):
        if _is_chosen(spec, path, method, operation):
            yield path, method, operation


def _operations(spec: OpenApiSpec) -> Iterator[_Chosen]:
    paths = spec.document.get("paths")
    if not isinstance(paths, Mapping):
        raise InvalidError("the OpenAPI document has no paths")
    for path, given in paths.items():
        item = resolved(spec.document, given, f"path {path}")
        for method in _METHODS:
            operation = item.get(method)
            if isinstance(operation, Mapping):
                shared = item.get("parameters", [])
                yield path, method, {**operation, "shared": shared}


def _is_chosen(spec: OpenApiSpec, path: str, method: str, operation: Mapping[str, Any]) -> bool:
    if not spec.tags and not spec.operations:
        return True
    named = operation_id(path, method, operation)
    tags = operation.get("tags", [])
    return any(fnmatchcase(named, glob) for glob in spec.operations) or any(
        tag in spec.tags for tag in tags
    )


class _Read:
    """One operation while it is being read."""

    def __init__(self, spec: OpenApiSpec, base: str, chosen: _Chosen, schemas: Schemas) -> None:
        path, method, item = chosen
        self.id = operation_id(path, method, item)
        self._spec = spec
        self._url = base.rstrip("/") + "/" + path.lstrip("/")
        self._method = method.upper()
        self._item = item
        self._schemas = schemas.of(f"operation {self.id}")
        self._properties: dict[str, Json] = {}
        self._required: list[Json] = []
        self._query: list[tuple[str, Json]] = []
        self._headers: dict[str, str] = dict(spec.headers)
        self._body: Json = None

    def read(self) -> tuple[Described, Operation]:
        """Return the operation as a tool's description and a request."""
        for parameter in self._parameters():
            self._take(parameter)
        for name in PLACEHOLDER.findall(self._url):
            if name not in self._properties:
                raise self._invalid(f"its path has {{{name}}}, and no parameter of that name")
        self._take_body()
        schema: dict[str, Json] = {
            "type": "object",
            "properties": self._properties,
            "required": self._required,
        }
        described = Described(
            self._name(),
            self._description(),
            self._schemas.whole(schema),
            self._spec.effects.get(self.id),
            any(fnmatchcase(self.id, glob) for glob in self._spec.requires_approval),
        )
        return described, Operation(
            method=self._method,
            url=self._url,
            query=tuple(self._query),
            headers=self._headers,
            body=self._body,
            timeout_s=self._spec.timeout_s,
        )

    def _name(self) -> str:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", (self._spec.prefix or "") + self.id)
        if len(name) > NAME_CHARS_MAX:
            raise self._invalid(
                f"as a tool it is called {name}, which has more than {NAME_CHARS_MAX} characters"
            )
        return name if name[0].isalpha() else f"_{name}"[:NAME_CHARS_MAX]

    def _description(self) -> str:
        told = [str(self._item.get(key) or "").strip() for key in ("summary", "description")]
        words = "\n\n".join(dict.fromkeys(filter(None, told))) or f"{self._method} {self._url}"
        return words[:DESCRIPTION_CHARS_MAX]

    def _parameters(self) -> list[Mapping[str, Any]]:
        """Return the parameters; an operation's own go before those of its path."""
        listed = [*self._item["shared"], *self._item.get("parameters", [])]
        found = [self._resolved(each) for each in listed]
        return [*{(each.get("name"), each.get("in")): each for each in found}.values()]

    def _take(self, parameter: Mapping[str, Any]) -> None:
        name, place = str(parameter.get("name")), parameter.get("in")
        required = parameter.get("required") is True
        if place not in _PLACES or "schema" not in parameter:
            if not required:
                return  # The server does without, and so do we.
            raise self._invalid(f"its parameter {name!r} in {place} cannot be sent from here")
        if place == "header" and not self._is_free_header(name, required=required):
            return
        if place == "query" and not self._is_known_style(parameter):
            if not required:
                return
            raise self._invalid(f"its query parameter {name!r} is sent in a style not known here")
        self._offer(name, parameter["schema"], parameter.get("description"), required=required)
        if place == "query":
            self._query.append((name, f"{{{name}}}"))
        elif place == "header":
            self._headers[name] = f"{{{name}}}"

    def _is_free_header(self, name: str, *, required: bool) -> bool:
        """Say whether the model gives this header. Raises `InvalidError` if nobody could."""
        key = name.lower()
        if key in {"accept", "content-type", "authorization"}:
            return False  # OpenAPI says so: these are described elsewhere.
        if key in {given.lower() for given in self._headers}:
            return False  # The declaration sets it.
        if key in _NOT_THE_MODELS and required:
            raise self._invalid(f"its header {name} is not for a model to set")
        return key not in _NOT_THE_MODELS

    def _is_known_style(self, parameter: Mapping[str, Any]) -> bool:
        """Say whether it is sent as one word, an array as several, or an object by its members."""
        style, kind = (
            parameter.get("style", "form"),
            self._resolved(parameter["schema"]).get("type"),
        )
        if kind == "object":
            return bool(style == "deepObject")
        return bool(kind != "array" or (style == "form" and parameter.get("explode", True)))

    def _offer(
        self, name: str, schema: Mapping[str, Any], told: object = None, *, required: bool
    ) -> None:
        if not PLACEHOLDER.fullmatch(f"{{{name}}}"):
            raise self._invalid(f"the name of its parameter {name!r} cannot be used")
        if name in self._properties:
            raise self._invalid(f"it has two parameters called {name!r}")
        read = self._schemas.read(schema)
        self._properties[name] = {**read, "description": str(told)} if told else read
        if required:
            self._required.append(name)

    def _take_body(self) -> None:
        if "requestBody" not in self._item:
            return
        body = self._resolved(self._item["requestBody"])
        content = body.get("content", {})
        media = next(
            (m for m in content if m.partition(";")[0].strip() == "application/json"), None
        )
        required = body.get("required") is True
        if media is None:
            if required:
                raise self._invalid(
                    f"its body is {', '.join(content)}; only application/json is sent"
                )
            return
        schema = content[media].get("schema", {})
        members = self._members(schema) if required else None
        if members is None:
            self._offer("body", schema, body.get("description"), required=required)
            self._body = "{body}"
            return
        wanted = self._resolved(schema).get("required", [])
        for name, part in members.items():
            self._offer(name, part, required=name in wanted)
        self._body = {name: f"{{{name}}}" for name in members}

    def _members(self, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return a body's members if they can stand beside the other parameters."""
        plain = self._resolved(schema)
        members = plain.get("properties")
        if not members or {"allOf", "anyOf", "oneOf", "additionalProperties"} & {
            key for key in plain if plain[key] is not False
        }:
            return None
        fits = all(PLACEHOLDER.fullmatch(f"{{{name}}}") for name in members)
        return members if fits and not set(members) & set(self._properties) else None

    def _resolved(self, part: Any) -> Mapping[str, Any]:
        return resolved(self._spec.document, part, f"operation {self.id}")

    def _invalid(self, issue: str) -> InvalidError:
        return invalid(f"operation {self.id}", issue)
