"""Anthropic's Messages wire, which some other vendors and local servers speak too."""

from milepost.core.model import ModelRequest, Provider
from milepost.providers.anthropic_binding import BoundThinking
from milepost.providers.anthropic_events import Events
from milepost.providers.anthropic_request import Dialect, MessagesEncoder
from milepost.providers.endpoint import Endpoint
from milepost.providers.failures import Failures
from milepost.providers.http import Http
from milepost.providers.reading import Patience

API_VERSION = "2026-10-21"

# Models think without a word for minutes, and the vendor holds back a long argument of a call until
# it has the whole.
PATIENCE = Patience(first_s=300.0, between_s=120.0)


ANTHROPIC = Dialect()


class Messages:
    """The wire, in the words of one server."""

    def __init__(self, dialect: Dialect) -> None:
        self._encoder = MessagesEncoder(dialect)
        self._key_header = dialect.key_header

    def path(self, _: ModelRequest, /) -> str:
        """Return where a reply is asked for, behind the base URL."""
        return "/v1/messages"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return what this wire adds to the headers of every request."""
        version = {"anthropic-version": API_VERSION}
        if not api_key:
            return version
        is_bearer = self._key_header == "Authorization"
        return {**version, self._key_header: f"Bearer {api_key}" if is_bearer else api_key}

    def encode(self, request: ModelRequest) -> bytes:
        """Return the body that asks for a streamed reply."""
        return self._encoder.encode(request)

    def decoder(self, failures: Failures) -> Events:
        """Return what reads one reply."""
        return Events(failures)


def anthropic(
    http: Http,
    *,
    base_url: str,
    api_key: str | None,
    name: str = "anthropic",
    dialect: Dialect = ANTHROPIC,
    patience: Patience | None = None,
) -> Provider:
    """Return a provider on the Messages wire; `base_url` ends where `/v1/messages` begins.

    A `/v1` at its end is not taken amiss.
    """
    root_url = base_url.rstrip("/").removesuffix("/v1")
    return BoundThinking(
        Endpoint(
            http, Messages(dialect), base_url=root_url, api_key=api_key, name=name,
            patience=patience or PATIENCE,
        )
    )  # fmt: skip
