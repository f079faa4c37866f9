"""MCP servers as people declare them."""

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from milepost.tools.declaration import (
    Declaration,
    DeclaredEffect,
    Headers,
    HttpUrl,
    Patterns,
    TimeoutS,
)
from milepost.tools.references import references_in

Word = Annotated[str, Field(max_length=32_000)]


class McpServerSpec(Declaration):
    """One server: a command that speaks over stdio, or the URL of one that speaks HTTP.

    A command gets the environment that `env` gives, and nothing of this process's own.
    `effect` is what its tools do to the world by the declarer's word; what the server says of
    itself makes it stricter, and only with `trust_hints` milder. `tools` are globs over the
    server's names for its tools: none means all.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9-]{0,31}$")]
    command: Annotated[str, Field(min_length=1, max_length=4_000)] | None = None
    args: Annotated[list[Word], Field(max_length=200)] = Field(default_factory=list)
    env: Annotated[dict[str, Word], Field(max_length=200)] = Field(default_factory=dict)
    cwd: Annotated[str, Field(min_length=1, max_length=4_000)] | None = None
    url: HttpUrl | None = None
    headers: Headers = Field(default_factory=dict)
    timeout_s: TimeoutS = 30.0
    effect: DeclaredEffect = "once"
    trust_hints: bool = False
    tools: Patterns = Field(default_factory=list)
    requires_approval: Patterns = Field(default_factory=list)

    @field_validator("env")
    @classmethod
    def _can_be_read(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"{name!r} cannot be in an environment")
            list(references_in(value))
        return env

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "McpServerSpec":
        if (self.command is None) == (self.url is None):
            raise ValueError("a server has either a command or a url")
        if self.command is None and (self.args or self.env or self.cwd):
            raise ValueError("args, env and cwd are for a server with a command")
        if self.url is None and self.headers:
            raise ValueError("headers are for a server with a url")
        return self
