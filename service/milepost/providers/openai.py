"""OpenAI's Chat Completions wire, which most vendors and local servers speak too."""

from urllib.parse import urlsplit

import aiohttp

from milepost.core.model import ModelRequest
from milepost.providers.endpoint import Endpoint
from milepost.providers.failures import Failures
from milepost.providers.openai_chunks import Chunks
from milepost.providers.openai_request import TokensField, encode
from milepost.providers.reading import Patience

_OPENAI_HOST = "api.openai.com"


class ChatCompletions:
    """The wire. `tokens_field` is the server's name for the bound on a reply's tokens."""

    def __init__(self, tokens_field: TokensField) -> None:
        self._tokens_field = tokens_field

    def path(self, _: ModelRequest, /) -> str:
        """Return where a reply is asked for, behind the base URL."""
        return "/chat/completions"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return what this wire adds to the headers of every request."""
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def encode(self, request: ModelRequest) -> bytes:
        """Return the body that asks for a streamed reply."""
        return encode(request, self._tokens_field)

    def decoder(self, failures: Failures) -> Chunks:
        """Return what reads one reply."""
        return Chunks(failures)


def openai(
    http: aiohttp.ClientSession,
    *,
    base_url: str,
    api_key: str | None,
    name: str = "openai",
    tokens_field: TokensField | None = None,
    patience: Patience | None = None,
) -> Endpoint:
    """Return a provider on Chat Completions; `base_url` ends where `/chat/completions` begins.

    Without a `tokens_field` it is OpenAI's new name for OpenAI's own host, and for the others the
    old one, which all of them know.
    """
    wire = ChatCompletions(tokens_field or _tokens_field(base_url))
    return Endpoint(http, wire, base_url=base_url, api_key=api_key, name=name, patience=patience)


def _tokens_field(base_url: str) -> TokensField:
    is_openai = urlsplit(base_url).hostname == _OPENAI_HOST
    return "max_completion_tokens" if is_openai else "max_tokens"
