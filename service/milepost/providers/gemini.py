"""Google's Gemini API: generateContent, streamed."""

from urllib.parse import quote

from milepost.core.model import ModelRequest, Provider
from milepost.providers.endpoint import Endpoint
from milepost.providers.failures import Failures
from milepost.providers.gemini_chunks import Chunks
from milepost.providers.gemini_hops import Hops
from milepost.providers.gemini_request import encode
from milepost.providers.http import Http
from milepost.providers.reading import Patience

_FOLDERS = ("models", "tunedModels")


class GenerateContent:
    """The wire. Models are named without their folder, or with it: `tunedModels/mine`."""

    def path(self, request: ModelRequest, /) -> str:
        """Return where a reply is asked for, behind the base URL."""
        folder, _, name = request.model.partition("/")
        if folder not in _FOLDERS:
            folder, name = _FOLDERS[0], request.model
        return f"/{folder}/{quote(name, safe='')}:streamGenerateContent?alt=sse"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return what this wire adds to the headers of every request: no URL holds the key."""
        return {"x-goog-api-key": api_key} if api_key else {}

    def encode(self, request: ModelRequest) -> bytes:
        """Return the body that asks for a reply."""
        return encode(request)

    def decoder(self, failures: Failures) -> Chunks:
        """Return what reads one reply."""
        return Chunks(failures)


def gemini(
    http: Http,
    *,
    base_url: str,
    api_key: str | None,
    name: str = "gemini",
    patience: Patience | None = None,
) -> Provider:
    """Return a provider on generateContent; `base_url` ends with the version, as in `/v1beta`."""
    wire = GenerateContent()
    return Hops(
        Endpoint(http, wire, base_url=base_url, api_key=api_key, name=name, patience=patience)
    )
