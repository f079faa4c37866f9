"""HTTP tools as people declare them by hand."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from milepost.core.json import Json
from milepost.tools.declaration import (
    Declaration,
    DeclaredEffect,
    Description,
    Headers,
    HttpUrl,
    Pointer,
    TimeoutS,
    ToolName,
)
from milepost.tools.definition import Tool
from milepost.tools.egress import Egress
from milepost.tools.http.operation import SAFE_METHODS, Described, Operation, http_tool
from milepost.tools.http.templates import has_open_host, placeholders
from milepost.tools.references import Secrets

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


class HttpToolSpec(Declaration):
    """One HTTP tool: what is sent where, and what of the answer is the result.

    Without `parameters` each `{name}` is a string that must be given. What a request with a body
    says is `body`, or, without one, an object of the arguments that are used nowhere else; a
    request without a body sends those in its query.
    """

    name: ToolName
    description: Description
    method: Method = "GET"
    url: HttpUrl
    parameters: dict[str, Any] | None = None
    query: Annotated[dict[str, Any], Field(max_length=100)] = Field(default_factory=dict)
    headers: Headers = Field(default_factory=dict)
    body: dict[str, Any] | list[Any] | None = None
    result: Pointer = ""
    timeout_s: TimeoutS = 30.0
    effect: DeclaredEffect | None = None
    requires_approval: bool = False

    @field_validator("url")
    @classmethod
    def _has_a_fixed_host(cls, url: str) -> str:
        if has_open_host(url):
            raise ValueError("the model may not choose the host: {name} belongs behind it")
        return url

    @model_validator(mode="after")
    def _offers_what_it_uses(self) -> "HttpToolSpec":
        if self.body is not None and self.method in SAFE_METHODS:
            raise ValueError(f"a {self.method} has no body")
        if self.parameters is not None:
            offered = self.parameters.get("properties", {})
            if not isinstance(offered, dict):
                raise ValueError("the properties of its parameters must be an object")
            if missing := sorted(set(self.named) - set(offered)):
                raise ValueError(f"{{{missing[0]}}} is not among the properties of its parameters")
        return self

    @property
    def named(self) -> Iterator[str]:
        """The names that have a place in the request."""
        parts: tuple[Json, ...] = (self.url, self.query, {**self.headers}, self.body)
        for part in parts:
            yield from placeholders(part)

    def tool(self, egress: Egress, secrets: Secrets) -> Tool:
        """Return the tool. Raises ToolValidationError for parameters that are no schema."""
        parameters = self.parameters or _strings(dict.fromkeys(self.named))
        described = Described(
            self.name, self.description, parameters, self.effect, self.requires_approval
        )
        return http_tool(described, self._operation(parameters), egress, secrets)

    def _operation(self, parameters: Mapping[str, Any]) -> Operation:
        placed = frozenset(self.named)
        has_body = self.method not in {*SAFE_METHODS, "DELETE"}
        body: Json = self.body
        if body is None and has_body and {*parameters.get("properties", {})} - placed:
            body = {}
        return Operation(
            method=self.method,
            url=self.url,
            query=tuple(self.query.items()),
            headers=self.headers,
            body=body,
            result=self.result,
            timeout_s=self.timeout_s,
            placed=placed,
            rest=None if self.body is not None else "body" if has_body else "query",
        )


def _strings(names: Mapping[str, None]) -> dict[str, Json]:
    properties: dict[str, Json] = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": list(names)}
