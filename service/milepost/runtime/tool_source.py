"""A tenant's tool source: how it is declared, and the tools that it becomes."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Literal, TypeVar

import orjson
from pydantic import Field, TypeAdapter

from milepost.core.errors import InvalidError, ToolError
from milepost.store.tool_sources import ToolSourceRow
from milepost.tools import Tool
from milepost.tools.client import client_tool
from milepost.tools.declaration import (
    ClientToolSpec,
    Declaration,
    DeclaredEffect,
    Headers,
    HttpUrl,
    Patterns,
    TimeoutS,
)
from milepost.tools.egress import Egress
from milepost.tools.foreign import UNREADABLE, understood
from milepost.tools.http.declared import HttpToolSpec
from milepost.tools.http.openapi import OpenApiSpec
from milepost.tools.mcp.declared import McpServerSpec
from milepost.tools.mcp.listing import ListedTool, Server, tools_of
from milepost.tools.references import Reference, Secrets, references_in

TOOLS_MAX = 200

T = TypeVar("T", HttpToolSpec, ClientToolSpec)

SourceName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9-]{0,31}$")]


class HttpSource(Declaration):
    """HTTP tools, declared by hand."""

    kind: Literal["http"]
    name: SourceName
    tools: Annotated[list[HttpToolSpec], Field(min_length=1, max_length=TOOLS_MAX)]


class OpenApiSource(OpenApiSpec):
    """The operations of an OpenAPI document."""

    kind: Literal["openapi"]
    name: SourceName


class McpSource(Declaration):
    """An MCP server that speaks HTTP: commands are for files on the server alone."""

    kind: Literal["mcp"]
    name: SourceName
    url: HttpUrl
    headers: Headers = Field(default_factory=dict)
    timeout_s: TimeoutS = 30.0
    effect: DeclaredEffect = "once"
    trust_hints: bool = False
    tools: Patterns = Field(default_factory=list)
    requires_approval: Patterns = Field(default_factory=list)

    @property
    def server(self) -> McpServerSpec:
        """The server as files declare it."""
        return McpServerSpec.model_validate(self.model_dump(exclude={"kind"}))


class ClientSource(Declaration):
    """Tools that the client runs."""

    kind: Literal["client"]
    name: SourceName
    tools: Annotated[list[ClientToolSpec], Field(min_length=1, max_length=TOOLS_MAX)]


Source = HttpSource | OpenApiSource | McpSource | ClientSource
SOURCE: TypeAdapter[Source] = TypeAdapter(Annotated[Source, Field(discriminator="kind")])


def require_own_secrets(source: Source) -> None:
    """Raise `InvalidError` for a secret that is not one of the tenant's own."""
    for headers in _headers(source):
        for name, value in headers.items():
            for reference in references_in(value):
                if reference.source != "secret":
                    raise InvalidError(
                        f"the header {name} asks for {reference}, which only files on the server"
                        f" may; store it with PUT /v1/secrets/{reference.name} and write"
                        f" ${{secret:{reference.name}}}",
                        code="invalid_tool_source",
                        pointer="/headers",
                    )


def references_of(source: Source) -> frozenset[Reference]:
    """Return the secrets that the declaration mentions."""
    texts = (text for headers in _headers(source) for text in headers.values())
    return frozenset(reference for text in texts for reference in references_in(text))


def encode_source(source: Source) -> str:
    """Return what is stored of a declaration."""
    return orjson.dumps(source.model_dump(mode="json", exclude_unset=True)).decode()


def decode_source(row: ToolSourceRow) -> Source:
    """Return the declaration that `encode_source` wrote."""
    return SOURCE.validate_python(orjson.loads(row.spec))


def encode_listing(listed: list[ListedTool]) -> str:
    """Return what is stored of a server's own words."""
    return orjson.dumps([asdict(each) for each in listed]).decode()


def decode_listing(row: ToolSourceRow) -> list[ListedTool]:
    """Return what the server said when the source was made."""
    return [ListedTool(**each) for each in orjson.loads(row.listing)]


def tools_from(
    source: Source,
    listed: list[ListedTool],
    server: Server | None,
    egress: Egress,
    secrets: Secrets,
) -> list[Tool]:
    """Return the source's tools. Raises `InvalidError` for what cannot be a tool."""
    try:
        match source:
            case HttpSource():
                return [_judgeable(each).tool(egress, secrets) for each in source.tools]
            case OpenApiSource():
                return source.tools(egress, secrets)
            case McpSource():
                assert server is not None, "an MCP source has a server"
                return tools_of(source.server, listed, server)
            case ClientSource():
                return [client_tool(**_judgeable(each).model_dump()) for each in source.tools]
    except (ToolError, InvalidError) as error:
        raise InvalidError(str(error), code="invalid_tool_source") from error
    except UNREADABLE as error:
        raise InvalidError(
            f"a tool's parameters are no JSON Schema: {error!r:.200}", code="invalid_tool_source"
        ) from error


def _judgeable(tool: T) -> T:
    """Return the tool with a schema that is safe to judge by, whoever wrote it."""
    if tool.parameters is None:
        return tool
    return tool.model_copy(update={"parameters": understood(tool.parameters)})


def _headers(source: Source) -> Iterator[Mapping[str, str]]:
    match source:
        case HttpSource():
            yield from (each.headers for each in source.tools)
        case OpenApiSource() | McpSource():
            yield source.headers
        case ClientSource():
            pass
