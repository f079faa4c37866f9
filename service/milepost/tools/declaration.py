"""What declarations of tools have in common, in a file or in a request."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from yarl import URL

from milepost.tools.references import references_in

TIMEOUT_S_MAX = 3_600

DeclaredEffect = Literal["read", "idempotent", "once"]
"""What may be declared of a tool elsewhere, which neither looks up nor shares our transactions."""


class Declaration(BaseModel):
    """Known fields of exactly their types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _checked_url(text: str) -> str:
    try:
        url = URL(text)
    except ValueError as error:
        raise ValueError(f"it cannot be read: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError("it must be an http or https URL with a host")
    if url.user is not None or url.password is not None:
        raise ValueError("a URL may not carry credentials; send them in a header")
    if url.fragment:
        raise ValueError("a fragment is never sent")
    if "${" in text:
        raise ValueError("secrets belong into headers: URLs are logged on their way")
    return text


def _checked_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"{name!r} is no header's name")
        if name.lower() in _OURS:
            raise ValueError(f"{name} is not for a declaration to set")
        if any(ord(char) < 32 for char in value):
            raise ValueError(f"the value of {name} has control characters")
        list(references_in(value))
    return headers


_OURS = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "accept-encoding",
        "idempotency-key",
    }
)  # fmt: skip

ToolName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]
Prefix = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,31}$")]
Description = Annotated[str, Field(min_length=1, max_length=8_000, pattern=r"\S")]
HttpUrl = Annotated[str, Field(max_length=4_000), AfterValidator(_checked_url)]
Headers = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=200)],
        Annotated[str, Field(max_length=8_000)],
    ],
    Field(max_length=50),
    AfterValidator(_checked_headers),
]
Pointer = Annotated[str, Field(max_length=500, pattern=r"^(/[^\x00]*)?$")]
TimeoutS = Annotated[float, Field(gt=0, le=TIMEOUT_S_MAX)]
Patterns = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=500)
]


class ClientToolSpec(Declaration):
    """One tool that the client runs."""

    name: ToolName
    description: Description
    parameters: dict[str, Any]
    terminal: bool = False
    requires_approval: bool = False
