"""The only reader of the environment: every setting is a flag and a `MILEPOST_...` variable."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from milepost.core.errors import ConfigurationError

PREFIX = "MILEPOST_"

_WEB = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?")
_HOST_AND_PORT = re.compile(r"[^/?#@\s]+:\d+")


def _web(given: str) -> str:
    if not _WEB.fullmatch(given) or not _names_a_host(given):
        raise PydanticCustomError(
            "web_address",
            "it is no address that paths can follow; write it as in https://agents.example.com",
        )
    return given


def _host_and_port(given: str) -> str:
    if not _HOST_AND_PORT.fullmatch(given) or not _names_a_host(f"//{given}"):
        raise PydanticCustomError(
            "host_and_port", "it is no host with a port; write it as in temporal.example:7233"
        )
    return given


def _names_a_host(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # Half of an IPv6 address, or a port beyond all ports.
        return False


WebAddress = Annotated[str, AfterValidator(_web)]
HostAndPort = Annotated[str, AfterValidator(_host_and_port)]


class Settings(BaseSettings):
    """How a process is to run. Durations are in seconds."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        allow_inf_nan=False,
    )

    database_url: str = Field(
        default="sqlite:///.milepost/milepost.db", description="sqlite:///path or postgresql://..."
    )
    redis_url: str | None = Field(
        default=None, description="redis://...: cache, wakeups and live text across processes"
    )
    host: str = Field(default="127.0.0.1", description="address to bind to")
    port: int = Field(
        default=8000, ge=0, le=65535, description="port to bind to; 0 takes a free one"
    )
    probe_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="port on which a worker answers /healthz, /readyz and /metrics; 0 is none",
    )
    slots: int = Field(
        default=100, ge=0, le=10_000, description="runs that this process drives at once"
    )
    tools: str = Field(
        default="", description="modules, files or folders of tools, comma-separated"
    )
    toolbox: str = Field(
        default="", description="tools of the toolbox that there are to be, comma-separated"
    )
    files_root: str | None = Field(
        default=None, description="the folder in which the toolbox reads and writes files"
    )
    reload_tools: bool = Field(
        default=False, description="load files of tools anew when they change: for development"
    )
    egress_allow: str = Field(
        default="",
        description="hosts and networks inside that tools and webhooks may reach, comma-separated",
    )
    agents: str = Field(default="", description="agents.toml or YAML files, comma-separated")
    guardrails: str = Field(
        default="", description="modules, files or folders of guardrails, comma-separated"
    )
    providers: str = Field(
        default="",
        description="a TOML file of model providers; milepost.toml of the folder, if it is there",
    )
    embeddings: str = Field(
        default="",
        description="the model whose vectors find memories by their meaning, as provider/model",
    )
    prices: str = Field(default="", description="a prices.toml: what models cost, before the list")
    requests_per_minute: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="requests a minute that each key may make before 429; unset: without end",
    )
    confirmations: str = Field(
        default="",
        description="who reads a yes in chats, as module:attribute; Portuguese, English and"
        " Spanish are built in",
    )
    migrate: bool = Field(
        default=True, description="bring the database to this version's schema first"
    )
    console: bool = Field(
        default=True, description="serve the console at / and the API reference at /docs"
    )
    demo: bool = Field(default=True, description="load the demo agent and the demo tools")
    demo_word_delay_s: float = Field(
        default=0.03, ge=0, le=10, description="pause between the demo model's words"
    )
    queue_max: int = Field(
        default=10_000, ge=1, le=1_000_000_000, description="runs that may be queued before 503"
    )
    lease_s: float = Field(
        default=15.0, gt=0, le=86_400, description="how long a silent worker counts as alive"
    )
    sweep_s: float = Field(
        default=5.0, gt=0, le=86_400, description="how often dead workers are looked for"
    )
    drain_s: float = Field(
        default=20.0, ge=0, le=86_400, description="how long tools may finish after SIGTERM"
    )
    pool_max: int = Field(
        default=10, ge=3, le=200, description="Postgres connections of this process"
    )
    kept_max_s: float | None = Field(
        default=None,
        ge=86_400,
        le=3_153_600_000,
        description="how long what is over is kept at most, whatever tenants say; unset: for good",
    )
    dispatcher: Literal["sql", "temporal"] = Field(
        default="sql", description="who says which run is next: the queue itself, or Temporal"
    )
    temporal_address: HostAndPort = Field(
        default="127.0.0.1:7233", description="where Temporal answers"
    )
    temporal_namespace: str = Field(
        default="default", min_length=1, description="the namespace in Temporal"
    )
    temporal_task_queue: str = Field(
        default="milepost", min_length=1, description="Temporal's task queue of this installation"
    )
    temporal_grace_s: float = Field(
        default=5.0,
        ge=0,
        le=3_600,
        description="how long Temporal may leave a run lying before a worker takes it by itself",
    )
    artifacts_dir: str = Field(
        default=".milepost/artifacts",
        description="folder for what tools leave behind that is too large for the database",
    )
    tool_threads: int = Field(default=32, ge=1, le=1_000, description="threads for sync tools")
    secret_key: SecretStr | None = Field(default=None, description="encrypts what is stored secret")
    public_url: WebAddress | None = Field(
        default=None,
        description="where people reach this service: links to answer approvals begin with it",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error"
    )
    log_json: bool = Field(default=False, description="log lines as JSON")
    base_url: WebAddress = Field(
        default="http://127.0.0.1:8000", description="the server that the client commands talk to"
    )
    api_key: SecretStr | None = Field(
        default=None, description="the key that the client commands send"
    )

    openai_base_url: WebAddress = Field(
        default="https://api.openai.com/v1",
        validation_alias="OPENAI_BASE_URL",
        description="an OpenAI-compatible server",
    )
    openai_api_key: SecretStr | None = Field(
        default=None, validation_alias="OPENAI_API_KEY", description="its key"
    )
    anthropic_api_key: SecretStr | None = Field(
        default=None, validation_alias="ANTHROPIC_API_KEY", description="Anthropic's key"
    )
    gemini_api_key: SecretStr | None = Field(
        default=None, validation_alias="GEMINI_API_KEY", description="the key of Google's Gemini"
    )
    otlp_endpoint: WebAddress | None = Field(
        default=None,
        validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT",
        description="where spans go, over OTLP/HTTP",
    )
    otel_service_name: str = Field(
        default="milepost",
        validation_alias="OTEL_SERVICE_NAME",
        description="what spans are filed under",
    )
    capture_content: bool = Field(
        default=False,
        validation_alias="OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
        description="put messages, arguments and results into exported spans",
    )

    @property
    def state_dir(self) -> Path:
        """Where the embedded service keeps what it writes besides its database."""
        return Path(".milepost")


def load_settings(given: Mapping[str, object]) -> Settings:
    """Return the settings: what is given counts, then the environment, then the default.

    Raises `ConfigurationError` that names the first one that cannot be.
    """
    chosen = {_key(name): value for name, value in given.items() if value is not None}
    try:
        return Settings(**chosen)  # type: ignore[arg-type]  # pydantic checks them, that is the point
    except ValidationError as error:
        wrong = error.errors()[0]
        name = next(name for name in Settings.model_fields if _key(name) == wrong["loc"][0])
        raise ConfigurationError(
            f"{flag(name)} ({variable(name)}) cannot be {wrong['input']!r}: {wrong['msg']}"
        ) from error


def unread(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that look like ours and are no setting, each with the nearest that is.

    One that is misspelt counts for nothing, and a service on a default looks as healthy as another.
    """
    known = [variable(name) for name in Settings.model_fields]
    strange = sorted(
        name
        for name, value in environment.items()
        if value and name.upper().startswith(PREFIX) and name.upper() not in known
    )
    return {name: next(iter(get_close_matches(name, known, 1, 0.8)), None) for name in strange}


def flag(name: str) -> str:
    """Return the flag of a setting."""
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """Return the environment variable of a setting: a vendor's own where there is one."""
    key = _key(name)
    return PREFIX + name.upper() if key == name else key


def _key(name: str) -> str:
    """Return under which name pydantic takes a setting."""
    alias = Settings.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else name
