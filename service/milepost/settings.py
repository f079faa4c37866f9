"""The only reader of the environment: every setting is a flag and a `MILEPOST_...` variable."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """How a process is to run. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="MILEPOST_", extra="ignore", frozen=True)

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
    slots: int = Field(
        default=100, ge=0, le=10_000, description="runs that this process drives at once"
    )
    tools: str = Field(
        default="", description="modules, files or folders of tools, comma-separated"
    )
    agents: str = Field(default="", description="agents.toml or YAML files, comma-separated")
    migrate: bool = Field(
        default=True, description="bring the database to this version's schema first"
    )
    demo: bool = Field(default=True, description="load the demo agent and the demo tools")
    demo_word_delay_s: float = Field(
        default=0.03, ge=0, le=10, description="pause between the demo model's words"
    )
    queue_max: int = Field(default=10_000, ge=1, description="runs that may be queued before 503")
    lease_s: float = Field(
        default=15.0, gt=0, description="how long a silent worker counts as alive"
    )
    sweep_s: float = Field(default=5.0, gt=0, description="how often dead workers are looked for")
    drain_s: float = Field(
        default=20.0, ge=0, description="how long tools may finish after SIGTERM"
    )
    pool_max: int = Field(
        default=10, ge=2, le=200, description="Postgres connections of this process"
    )
    tool_threads: int = Field(default=32, ge=1, le=1_000, description="threads for sync tools")
    secret_key: SecretStr | None = Field(default=None, description="encrypts what is stored secret")
    log_level: str = Field(default="info", description="debug, info, warning or error")
    log_json: bool = Field(default=False, description="log lines as JSON")
    base_url: str = Field(
        default="http://127.0.0.1:8000", description="the server that the client commands talk to"
    )
    api_key: SecretStr | None = Field(
        default=None, description="the key that the client commands send"
    )

    openai_base_url: str = Field(
        default="https://api.openai.com/v1",
        validation_alias="OPENAI_BASE_URL",
        description="an OpenAI-compatible server",
    )
    openai_api_key: SecretStr | None = Field(
        default=None, validation_alias="OPENAI_API_KEY", description="its key"
    )
    otlp_endpoint: str | None = Field(
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
