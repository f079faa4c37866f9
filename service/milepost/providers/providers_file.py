"""Model providers from a file: `[providers.NAME]` tables in TOML."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from milepost.core.errors import ConfigurationError
from milepost.providers import direct
from milepost.providers.address import is_address
from milepost.providers.anthropic_request import Dialect, KeyHeader
from milepost.providers.concurrency import QUEUE_S_MAX
from milepost.providers.declared import VENDORS, DeclaredProvider, WireName
from milepost.providers.openai_request import ReasoningField, TokensField
from milepost.providers.reading import Patience
from milepost.providers.responses_request import ReasoningSummary
from milepost.providers.windows import Quota

DEFAULT_FILE = "milepost.toml"
WAIT_S_MAX = 86_400.0
COUNT_MAX = 1_000_000_000
TAKEN_NAMES = frozenset({"demo", direct.NAME})

Seconds = Annotated[float, Field(gt=0, le=WAIT_S_MAX)]
Count = Annotated[int, Field(ge=1, le=COUNT_MAX)]

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
# What is said about the body and the connection is the wire's business.
_OWN_HEADERS = frozenset(
    {
        "accept", "accept-encoding", "anthropic-version", "connection", "content-length",
        "content-type", "host", "transfer-encoding", "user-agent",
    }
)  # fmt: skip
_KEY_HEADERS = frozenset({"api-key", "authorization", "x-api-key", "x-goog-api-key"})

_MISPLACED = {
    "api_key": "no key belongs in a file; name the variable that holds it as api_key_env",
}
_OF_ONE_WIRE: Mapping[str, WireName] = {
    "tokens_field": "openai",
    "reasoning_field": "openai",
    "reasoning_summary": "responses",
    "sampling": "anthropic",
    "key_header": "anthropic",
}


class _Declared(BaseModel):
    """One table, as it is written."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    wire: WireName
    base_url: str | None = None
    api_key_env: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    first_token_s: Seconds | None = None
    between_tokens_s: Seconds | None = None
    request_s: Seconds | None = None
    concurrency: Count | None = None
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    queue_s: Seconds = QUEUE_S_MAX
    tools: Literal["native", "text"] = "native"
    schemas: bool = True
    tokens_field: TokensField | None = None
    reasoning_field: ReasoningField | None = None
    reasoning_summary: ReasoningSummary | None = None
    sampling: bool | None = None
    key_header: KeyHeader | None = None
    free: bool = False


def read_providers(
    path: Path, environment: Mapping[str, str], *, named_by: str = "--providers"
) -> dict[str, DeclaredProvider]:
    """Return the providers that a file declares, by name, with the keys that it names.

    `named_by` is what says where the file is.
    Raises `ConfigurationError` that names the file and the key of what cannot be, and the remedy.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"providers file {path} cannot be read: {error.strerror}; name it with {named_by}"
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"providers file {path}: {error}") from error
    for key in document:
        if key != "providers":
            raise _wrong(path, key, "no such key; a file has [providers.NAME] tables")
    tables = document.get("providers")
    if not isinstance(tables, dict) or not tables:
        raise ConfigurationError(
            f"providers file {path} declares none; write [providers.NAME] with a wire"
        )
    return {name: _Table(path, name, environment).read(table) for name, table in tables.items()}


class _Table:
    """One table of a file, being read."""

    def __init__(self, path: Path, name: str, environment: Mapping[str, str]) -> None:
        self._path = path
        self._name = name
        self._environment = environment

    def read(self, table: object) -> DeclaredProvider:
        self._require_name()
        declared = self._parse(table)
        self._require_wire(declared)
        key = self._key(declared)
        return DeclaredProvider(
            wire=declared.wire,
            base_url=self._base_url(declared),
            api_key=key,
            headers=self._headers(declared, key),
            patience=_patience(declared),
            calls_max=declared.concurrency,
            queue_s=declared.queue_s,
            quota=Quota(declared.requests_per_minute, declared.tokens_per_minute, declared.queue_s),
            tokens_field=declared.tokens_field,
            reasoning_field=declared.reasoning_field,
            reasoning_summary=declared.reasoning_summary,
            dialect=_dialect(declared),
            text_tools=declared.tools == "text",
            schemas=declared.schemas,
            free=declared.free,
        )

    def _require_name(self) -> None:
        if self._name in TAKEN_NAMES:
            raise self._wrong("", f"{self._name!r} is built in; take another name")
        if not _NAME.fullmatch(self._name):
            raise self._wrong(
                "", "a name has lower-case letters, digits, - and _, and at most 64 of them"
            )

    def _parse(self, table: object) -> _Declared:
        try:
            return _Declared.model_validate(table)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            key = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                raise self._wrong(key, _MISPLACED.get(key, "no such key")) from None
            raise self._wrong(key, first["msg"]) from None

    def _require_wire(self, declared: _Declared) -> None:
        for option, wire in _OF_ONE_WIRE.items():
            if getattr(declared, option) is not None and declared.wire != wire:
                raise self._wrong(option, f"only wire = {wire!r} has that; leave it out")

    def _base_url(self, declared: _Declared) -> str:
        if declared.base_url is None:
            return VENDORS[declared.wire].base_url
        try:
            parts = urlsplit(declared.base_url)
        except ValueError:
            raise self._wrong("base_url", "it is no address") from None
        if parts.username is not None or parts.password is not None:
            raise self._wrong(
                "base_url", "it holds credentials; put the key where api_key_env names it"
            )
        if parts.query or parts.fragment:
            raise self._wrong("base_url", "it goes on behind its path; end it at ? or #")
        if not is_address(declared.base_url):
            raise self._wrong(
                "base_url", f"{declared.base_url!r} is no http:// or https:// address"
            )
        return declared.base_url

    def _key(self, declared: _Declared) -> str | None:
        """Return the key. A vendor's own goes to that vendor, and to no other address."""
        variable = declared.api_key_env
        if variable is None and declared.base_url is None:
            variable = VENDORS[declared.wire].key_variable
        return None if variable is None else self._variable("api_key_env", variable)

    def _headers(self, declared: _Declared, key: str | None) -> dict[str, str]:
        refused = _OWN_HEADERS | _KEY_HEADERS if key else _OWN_HEADERS
        headers: dict[str, str] = {}
        for name, text in declared.headers.items():
            place = f"headers.{name}"
            if not _HEADER.fullmatch(name):
                raise self._wrong(place, "it is no name of a header")
            if name.lower() in refused:
                raise self._wrong(place, "it is set already; leave it out")
            headers[name] = self._revealed(place, text)
        return headers

    def _revealed(self, place: str, text: str) -> str:
        """Return a header with the variables that it names in their places."""
        if "${" in _REFERENCE.sub("", text):
            raise self._wrong(place, "it has a ${…} that is no ${env:NAME}")
        revealed = _REFERENCE.sub(lambda found: self._variable(place, found[1]), text)
        if not (revealed.isascii() and revealed.isprintable()):
            raise self._wrong(place, "its value has a line end, or a letter beyond ASCII")
        return revealed

    def _variable(self, place: str, name: str) -> str:
        if value := self._environment.get(name):
            return value
        raise self._wrong(place, f"{name} is not in the environment; set it and start again")

    def _wrong(self, key: str, said: str) -> ConfigurationError:
        place = f"providers.{self._name}.{key}" if key else f"providers.{self._name}"
        return _wrong(self._path, place, said)


def _patience(declared: _Declared) -> Patience:
    """Return the wire's patience as far as nothing else is said; no part outlasts the whole."""
    usual = VENDORS[declared.wire].patience
    whole_s = declared.request_s or usual.whole_s
    return replace(
        usual,
        first_s=min(declared.first_token_s or usual.first_s, whole_s),
        between_s=min(declared.between_tokens_s or usual.between_s, whole_s),
        whole_s=whole_s,
    )


def _dialect(declared: _Declared) -> Dialect:
    """Return how the server differs from Anthropic's own, as far as it is said."""
    said = declared.model_dump(include={"sampling", "schemas", "key_header"}, exclude_none=True)
    return Dialect(**said)


def _wrong(path: Path, place: str, said: str) -> ConfigurationError:
    return ConfigurationError(f"providers file {path}: {place}: {said}")
