"""OpenAI's Responses wire, on which its reasoning models get their thoughts back between calls."""

from milepost.core.model import ModelRequest
from milepost.providers.endpoint import Endpoint
from milepost.providers.failures import Failures
from milepost.providers.http import Http
from milepost.providers.reading import Patience
from milepost.providers.responses_events import Events
from milepost.providers.responses_request import ReasoningSummary, ResponsesEncoder

SEAL = "responses"
# A model that thinks without showing it is silent for long, also between what it says and does.
PATIENCE = Patience(first_s=300.0, between_s=120.0)


class Responses:
    """The wire, as one provider speaks it.

    Its name is on what it wants back, since encrypted thoughts mean nothing to anybody else's
    servers, which refuse a whole conversation for the sake of them.
    """

    def __init__(self, name: str, reasoning_summary: ReasoningSummary | None = None) -> None:
        self._seal = f"{SEAL}:{name}"
        self._encoder = ResponsesEncoder(self._seal, reasoning_summary)

    def path(self, _: ModelRequest, /) -> str:
        """Return where a reply is asked for, behind the base URL."""
        return "/responses"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return what this wire adds to the headers of every request."""
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def encode(self, request: ModelRequest) -> bytes:
        """Return the body that asks for a streamed reply."""
        return self._encoder.encode(request)

    def decoder(self, failures: Failures) -> Events:
        """Return what reads one reply."""
        return Events(failures, self._seal)


def responses(
    http: Http,
    *,
    base_url: str,
    api_key: str | None,
    name: str = "openai",
    reasoning_summary: ReasoningSummary | None = None,
    patience: Patience | None = None,
) -> Endpoint:
    """Return a provider on the Responses API; `base_url` ends where `/responses` begins.

    A `reasoning_summary` is what OpenAI shows of its models' thoughts, to verified organisations
    that ask for it.
    """
    wire = Responses(name, reasoning_summary)
    return Endpoint(
        http,
        wire,
        base_url=base_url,
        api_key=api_key,
        name=name,
        patience=patience or PATIENCE,
    )
