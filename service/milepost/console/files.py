"""Files as they are served: each with its tag and its type, and under a strict policy."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import PurePath

from starlette.requests import Request
from starlette.responses import Response

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_TAG = re.compile(r'(?:W/)?("[^"]*")')


@dataclass(frozen=True, slots=True)
class File:
    """What is served under a name."""

    content: bytes
    media_type: str
    etag: str

    def answer(self, request: Request) -> Response:
        """Return the file, or that the caller has it already."""
        headers = {
            # Asked for each time, and mostly answered with 304: a page is as old as its server.
            "cache-control": "no-cache",
            "content-security-policy": POLICY,
            "etag": self.etag,
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        }
        held = request.headers.get("if-none-match", "")
        if held.strip() == "*" or self.etag in _TAG.findall(held):
            return Response(status_code=304, headers=headers)
        return Response(self.content, 200, headers | {"content-type": self.media_type})


def file_of(name: str, content: bytes) -> File:
    """Return the file of this name, which ends as one of `MEDIA` does."""
    tag = hashlib.sha256(content).hexdigest()
    return File(content, MEDIA[PurePath(name).suffix], f'"{tag}"')
