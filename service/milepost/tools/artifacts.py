"""Artifacts: files that a tool leaves behind, here or elsewhere, for people or for programs."""

import hashlib
import mimetypes
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypedDict, Unpack, cast
from urllib.parse import urlsplit

from milepost.core.errors import ToolError
from milepost.core.ids import format_id
from milepost.core.json import clean_text

ARTIFACTS_MAX = 100
CONTENT_BYTES_MAX = 64 * 1_048_576
CONTENTS_BYTES_MAX = 128 * 1_048_576
URL_CHARS_MAX = 4_000
LABEL_CHARS_MAX = 200
_BYTES_MAX = 2**53

_MIME_TYPE = re.compile(
    r"[A-Za-z0-9][\w.+-]{0,100}/[\w.+-]{1,100}(?:; ?[\x20-\x7e]{1,200})?", re.ASCII
)
_TEXTS = ("mime_type", "filename", "sha256", "role", "retention")
_ID = re.compile(r"art_[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\x00-\x20\x7f]+")
_CHANCE_BYTES = 10


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a tool left behind. `url` is where it lies, None where its content came along.

    `sha256` and `size`, in bytes, are computed from a content, and as the tool said of a URL.
    """

    id: str
    url: str | None
    mime_type: str
    filename: str | None
    sha256: str | None
    size: int | None
    role: str | None
    retention: str | None


class ArtifactParts(TypedDict, total=False):
    """What `emit_artifact` takes beside a URL."""

    content: bytes | str | Path | None
    mime_type: str | None
    filename: str | None
    sha256: str | None
    size: int | None
    role: str | None
    retention: str | None


class EmitArtifact(Protocol):
    """Leaves a file behind; see `emit_artifact`."""

    def __call__(self, url: str | None = None, **parts: Unpack[ArtifactParts]) -> Artifact:
        """Leave it behind."""


PassOn = Callable[[Artifact, bytes | None], None]


@dataclass(slots=True)
class Emissions:
    """What one call has left behind so far, from whatever thread; nothing more once it is closed.

    With `pass_on`, each goes there and is not kept here. With `relay`, a tool's words go there.
    """

    pass_on: PassOn | None = None
    relay: EmitArtifact | None = None
    _left: list[tuple[Artifact, bytes | None]] = field(default_factory=list)
    _count: int = 0
    _bytes: int = 0
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def emit(self, url: str | None = None, **parts: Unpack[ArtifactParts]) -> Artifact:
        """Leave a file behind, as `emit_artifact` does."""
        if self.relay is not None:
            return self.relay(url, **parts)
        artifact, content = _made(url, parts)
        self.take(artifact, content)
        return artifact

    def take(self, artifact: Artifact, content: bytes | None) -> None:
        """Leave behind what is an artifact already. Raises ToolError where it is too much."""
        with self._lock:
            if self._closed:
                return
            self._count_in(len(content or b""))
            if self.pass_on is None:
                self._left.append((artifact, content))
        if self.pass_on is not None:
            self.pass_on(artifact, content)

    def close(self) -> tuple[tuple[Artifact, bytes | None], ...]:
        """Take nothing more, and return what was left behind, with the content that came along."""
        with self._lock:
            self._closed = True
            return tuple(self._left)

    def _count_in(self, size: int) -> None:
        if self._count >= ARTIFACTS_MAX:
            raise ToolError(f"a call may leave {ARTIFACTS_MAX} artifacts; put them into an archive")
        if self._bytes + size > CONTENTS_BYTES_MAX:
            raise ToolError(
                f"the artifacts of a call may have {CONTENTS_BYTES_MAX} bytes in all; put them"
                " where they can stay, and emit their URLs"
            )
        self._count += 1
        self._bytes += size


_OUTSIDE = Emissions(_closed=True)
_CURRENT: ContextVar[Emissions] = ContextVar("milepost_artifacts", default=_OUTSIDE)


def emit_artifact(  # noqa: PLR0913 - each is a part of an artifact
    url: str | None = None,
    *,
    content: bytes | str | Path | None = None,
    mime_type: str | None = None,
    filename: str | None = None,
    sha256: str | None = None,
    size: int | None = None,
    role: str | None = None,
    retention: str | None = None,
) -> Artifact:
    """Leave a file behind with the run: by its `url`, or by its `content`.

    A content is bytes, text, or the path of a file, which is read now. Its `sha256` and `size` are
    computed; if they are given, they must be right. Outside a run the artifact is made and returned
    all the same, and kept nowhere. Raises ToolError for what cannot be an artifact.
    """
    return _CURRENT.get().emit(
        url,
        content=content,
        mime_type=mime_type,
        filename=filename,
        sha256=sha256,
        size=size,
        role=role,
        retention=retention,
    )


@contextmanager
def collecting(
    pass_on: PassOn | None = None, relay: EmitArtifact | None = None
) -> Iterator[Emissions]:
    """Collect what is left behind from here on, also in tasks and threads that begin within."""
    emissions = Emissions(pass_on, relay)
    token = _CURRENT.set(emissions)
    try:
        yield emissions
    finally:
        _CURRENT.reset(token)


def current() -> Emissions:
    """Return where the call that runs here leaves files behind."""
    return _CURRENT.get()


def leave(artifact: Artifact, content: bytes | None) -> None:
    """Leave behind what is an artifact already, made by `read_artifact`."""
    _CURRENT.get().take(artifact, content)


def read_artifact(told: Mapping[str, Any], content: bytes | None) -> tuple[Artifact, bytes | None]:
    """Return the artifact that another process has made, under its id.

    Raises ToolError for what can be none.
    """
    texts = {name: told.get(name) for name in _TEXTS}
    url, size, named = told.get("url"), told.get("size"), told.get("id")
    if not all(isinstance(text, str | None) for text in (url, *texts.values())):
        raise ToolError("an artifact is told of in text")
    if not isinstance(size, int | None) or not isinstance(named, str) or not _ID.fullmatch(named):
        raise ToolError("an artifact has an id, and its size is a number")
    artifact, kept = _made(url, cast("ArtifactParts", {**texts, "size": size, "content": content}))
    return replace(artifact, id=named), kept


def _made(url: str | None, parts: ArtifactParts) -> tuple[Artifact, bytes | None]:
    content, filename = parts.get("content"), parts.get("filename")
    if (url is None) == (content is None):
        raise ToolError("an artifact has either a url or a content; give one of them")
    if filename is None and isinstance(content, Path):
        filename = content.name
    kept = None if content is None else _bytes_of(content)
    told = parts.get("sha256"), parts.get("size")
    sha256, size = _told(*told) if kept is None else _measured(kept, *told)
    artifact = Artifact(
        id=format_id("art", time.time_ns() // 1_000_000, int.from_bytes(os.urandom(_CHANCE_BYTES))),
        url=None if url is None else _checked_url(url),
        mime_type=_checked_type(parts.get("mime_type") or _guessed(url, content, filename)),
        filename=_label("filename", filename),
        sha256=sha256,
        size=size,
        role=_label("role", parts.get("role")),
        retention=_label("retention", parts.get("retention")),
    )
    return artifact, kept


def _bytes_of(content: bytes | str | Path) -> bytes:
    if isinstance(content, Path):
        try:
            with content.open("rb") as file:
                found = file.read(CONTENT_BYTES_MAX + 1)
        except OSError as error:
            raise ToolError(f"the artifact {content} cannot be read: {error.strerror}") from error
    elif isinstance(content, str):
        found = clean_text(content).encode()
    else:
        found = bytes(content)
    if len(found) > CONTENT_BYTES_MAX:
        raise ToolError(
            f"the content of an artifact may have {CONTENT_BYTES_MAX} bytes; put it where it can"
            " stay, and emit its URL"
        )
    return found


def _measured(content: bytes, sha256: str | None, size: int | None) -> tuple[str, int]:
    digest = hashlib.sha256(content).hexdigest()
    if sha256 not in {None, digest}:
        raise ToolError(f"the content's SHA-256 is {digest}, not {sha256}; leave it out")
    if size not in {None, len(content)}:
        raise ToolError(f"the content has {len(content)} bytes, not {size}; leave the size out")
    return digest, len(content)


def _told(sha256: str | None, size: int | None) -> tuple[str | None, int | None]:
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise ToolError(f"{sha256!r} is no SHA-256; write 64 hex digits in lower case")
    if size is not None and not (type(size) is int and 0 <= size <= _BYTES_MAX):
        raise ToolError(f"{size} is no size of an artifact; give its bytes")
    return sha256, size


def _checked_url(url: str) -> str:
    if len(url) > URL_CHARS_MAX or not _URL.fullmatch(url):
        raise ToolError(
            f"{url[:80]!r} is no URL; write scheme://..., such as https://example.com/a"
        )
    return clean_text(url)


def _checked_type(mime_type: str) -> str:
    if not _MIME_TYPE.fullmatch(mime_type):
        raise ToolError(f"{mime_type[:80]!r} is no MIME type; write one such as text/csv")
    return mime_type


def _guessed(url: str | None, content: bytes | str | Path | None, filename: str | None) -> str:
    name = filename or (urlsplit(url).path if url else "")
    found, encoding = mimetypes.guess_type(name)
    if found and encoding is None:
        return found
    return "text/plain" if isinstance(content, str) else "application/octet-stream"


def _label(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    if not 0 < len(text) <= LABEL_CHARS_MAX:
        raise ToolError(f"the {name} of an artifact has 1 to {LABEL_CHARS_MAX} characters")
    return clean_text(text)
