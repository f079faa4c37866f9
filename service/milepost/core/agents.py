"""What an agent is: a versioned definition that says how its runs behave."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from milepost.core.policy import Policy


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a run. Durations are in seconds.

    A failed model call is made again after `retry_backoff_s`, twice that, and so on; one that was
    limited in its rate waits as many times `rate_limit_cooldown_s` on top.
    """

    max_steps: int = 6
    model_retries: int = 2
    retry_backoff_s: float = 1.0
    rate_limit_cooldown_s: float = 5.0
    tool_timeout_s: float = 60.0
    approval_ttl_s: float = 86_400.0
    temperature: float | None = None
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Compression:
    """Tool results of more than `threshold_chars` characters are made shorter by `model`."""

    model: str
    threshold_chars: int = 2_000


@dataclass(frozen=True, slots=True)
class Agent:
    """One version of an agent. It never changes: a change makes the next version.

    `model` is `<provider>/<model>`; `policy` is None where the tools' own gates are all there is.
    `cache_ttl_s` is None unless the agent asks for its model's replies to be cached, `compression`
    unless it asks for long tool results to be made shorter.
    """

    id: str
    version: int
    name: str
    model: str
    instructions: str = ""
    tools: tuple[str, ...] = ()
    policy: Policy | None = None
    limits: Limits = field(default_factory=Limits)
    cache_ttl_s: float | None = None
    compression: Compression | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def provider(self) -> str:
        """The part of `model` that names the provider."""
        return self.model.partition("/")[0]

    @property
    def model_name(self) -> str:
        """The part of `model` that the provider knows."""
        return self.model.partition("/")[2]
