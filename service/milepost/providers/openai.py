"""OpenAI's Chat Completions wire, which most vendors and local servers speak too."""

from milepost.core.model import ModelRequest
from milepost.providers.address import host_of
from milepost.providers.endpoint import Endpoint
from milepost.providers.failures import Failures
from milepost.providers.http import Http
from milepost.providers.openai_chunks import Chunks
from milepost.providers.openai_request import ChatEncoder, Dialect, ReasoningField, TokensField
from milepost.providers.reading import Patience

_OPENAI_HOST = "api.openai.com"
# They refuse a conversation in which the reasoning beside a call is missing.
_REASONING_WANTED_BACK = frozenset({"api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn"})


class ChatCompletions:
    """The wire, in the words of one server."""

    def __init__(self, dialect: Dialect) -> None:
        self._encoder = ChatEncoder(dialect)
        self._seals = dialect.reasoning_field is not None

    def path(self, _: ModelRequest, /) -> str:
        """Return where a reply is asked for, behind the base URL."""
        return "/chat/completions"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return what this wire adds to the headers of every request."""
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def encode(self, request: ModelRequest) -> bytes:
        """Return the body that asks for a streamed reply."""
        return self._encoder.encode(request)

    def decoder(self, failures: Failures) -> Chunks:
        """Return what reads one reply."""
        return Chunks(failures, seals=self._seals)


def openai(  # noqa: PLR0913 - servers differ in each of these
    http: Http,
    *,
    base_url: str,
    api_key: str | None,
    name: str = "openai",
    tokens_field: TokensField | None = None,
    reasoning_field: ReasoningField | None = None,
    patience: Patience | None = None,
) -> Endpoint:
    """Return a provider on Chat Completions; `base_url` ends where `/chat/completions` begins.

    Without a `tokens_field` it is OpenAI's new name for OpenAI's own host, and for the others the
    old one, which all of them know. `reasoning_field` is where a server wants a model's reasoning
    back beside the calls that it led to; without one, it is sent to no host but those known to
    insist.
    """
    dialect = Dialect(
        tokens_field or _tokens_field(base_url), reasoning_field or _reasoning_field(base_url)
    )
    wire = ChatCompletions(dialect)
    return Endpoint(http, wire, base_url=base_url, api_key=api_key, name=name, patience=patience)


def _tokens_field(base_url: str) -> TokensField:
    is_openai = host_of(base_url) == _OPENAI_HOST
    return "max_completion_tokens" if is_openai else "max_tokens"


def _reasoning_field(base_url: str) -> ReasoningField | None:
    wanted = host_of(base_url) in _REASONING_WANTED_BACK
    return "reasoning_content" if wanted else None
