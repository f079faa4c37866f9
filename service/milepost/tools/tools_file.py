"""Tools declared in a TOML file: HTTP tools, OpenAPI documents, MCP servers, client-side tools."""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from milepost.core.errors import ConfigurationError, MilepostError
from milepost.tools.client import client_tool
from milepost.tools.declaration import ClientToolSpec, Declaration
from milepost.tools.definition import Tool
from milepost.tools.documents import read_document
from milepost.tools.egress import Egress
from milepost.tools.http.declared import HttpToolSpec
from milepost.tools.http.openapi import OpenApiSpec
from milepost.tools.mcp.declared import McpServerSpec
from milepost.tools.mcp.opening import open_server
from milepost.tools.references import Reference, Secrets, limited, references_in


class ToolsFile(Declaration):
    """All that one file declares."""

    http_tools: list[HttpToolSpec] = Field(default_factory=list)
    openapi: list[OpenApiSpec] = Field(default_factory=list)
    mcp_servers: list[McpServerSpec] = Field(default_factory=list)
    client_tools: list[ClientToolSpec] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outside:
    """What declared tools reach the world with: a guarded way out, and this process's environment.

    What they hold open is closed with `held`.
    """

    egress: Egress
    environment: Mapping[str, str]
    held: AsyncExitStack


async def declared_tools(path: Path, outside: Outside) -> list[Tool]:
    """Return the tools that the file declares, with their servers asked for theirs.

    Raises `ConfigurationError`, in one line, for a file or a declaration that cannot be used.
    """
    declared = read_tools_file(path)
    _require_known(path, declared, outside.environment)
    secrets = limited(_secrets_of(outside.environment), _references(declared))
    tools = [client_tool(**each.model_dump()) for each in declared.client_tools]
    try:
        tools += [each.tool(outside.egress, secrets) for each in declared.http_tools]
        for document in declared.openapi:
            tools += document.tools(outside.egress, secrets)
        for server in declared.mcp_servers:
            tools += await open_server(server, outside.egress.guard, secrets, outside.held)
    except MilepostError as error:
        raise ConfigurationError(f"tools file {path}: {_line(str(error))}") from error
    if not tools:
        raise ConfigurationError(
            f"tools file {path} declares nothing; it may have [[http_tools]], [[openapi]],"
            " [[mcp_servers]] and [[client_tools]]"
        )
    return tools


def read_tools_file(path: Path) -> ToolsFile:
    """Return what the file says. Raises `ConfigurationError` that names the place of a mistake."""
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(
            f"tools file {path} cannot be read: {_line(str(error))}"
        ) from error
    for document in said.get("openapi", []):
        if isinstance(document, dict) and isinstance(document.get("document"), str):
            document["document"] = _document(path, path.parent / document["document"])
    try:
        return ToolsFile.model_validate(said)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        place = ".".join(map(str, wrong["loc"]))
        raise ConfigurationError(f"tools file {path}: {place}: {_line(wrong['msg'])}") from error


def _document(path: Path, document: Path) -> Any:
    """Return an OpenAPI document, from JSON or YAML."""
    try:
        return read_document(document)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"tools file {path}: the document {document} cannot be read: {_line(str(error))}"
        ) from error


def _require_known(path: Path, declared: ToolsFile, environment: Mapping[str, str]) -> None:
    """A missing secret is told now, not when a model first makes the call."""
    for reference in _references(declared):
        if reference.source != "env":
            raise ConfigurationError(
                f"tools file {path}: {reference} is a tenant's secret, and this file is nobody's;"
                f" write ${{env:{reference.name}}}"
            )
        if reference.name not in environment:
            raise ConfigurationError(
                f"tools file {path}: {reference} is not in the environment; set it and start again"
            )


def _references(declared: ToolsFile) -> Iterator[Reference]:
    headers = (
        *(each.headers for each in declared.http_tools),
        *(each.headers for each in declared.openapi),
        *(each.headers for each in declared.mcp_servers),
    )
    for named in (*headers, *(each.env for each in declared.mcp_servers)):
        for text in named.values():
            yield from references_in(text)


def _secrets_of(environment: Mapping[str, str]) -> Secrets:
    async def secrets(reference: Reference) -> str:
        return environment[reference.name]

    return secrets


def _line(text: str) -> str:
    return " ".join(text.split())
