"""Actions that a tool puts off until the user of a chat has said yes to their preview."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import orjson

from milepost.core.errors import PendingActionExistsError, ToolError
from milepost.core.json import Json, UnencodableError, clean, clean_text
from milepost.core.pending import APPROVAL_KIND, KIND_CHARS_MAX, TTL_S, TTL_S_MAX, is_kind
from milepost.tools.typed_results import ToolResult

PREVIEW_CHARS_MAX = 2_000
ARGS_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class PendingConfirmation(ToolResult):
    """What a tool returns that put `action` off: nothing was done, and the user must be asked."""

    kind: ClassVar[str] = "pending_confirmation"
    action: str
    preview: str
    user_prompt: str


@dataclass(frozen=True, slots=True)
class Stashed:
    """An action that was put off; `args` are what its executor will be called with."""

    kind: str
    preview: str
    args: Mapping[str, Json]
    ttl_s: float
    user_prompt: str


class StashPending(Protocol):
    """Puts an action off; see `stash_pending`."""

    def __call__(
        self,
        kind: str,
        preview: str,
        args: Mapping[str, Any] | None = None,
        ttl_s: float = TTL_S,
    ) -> PendingConfirmation | None:
        """Put it off."""


@dataclass(slots=True)
class Stash:
    """What one call puts off, from whatever thread: one action at most, none once it is closed.

    Without `room` there is no chat that it could be confirmed in. `taken` is the action that waits
    there already, as its user was told of it. `pass_on` hears of what is put off. With `relay`, a
    tool's words go there, and nothing is put off here.
    """

    room: bool = False
    taken: str | None = None
    pass_on: Callable[[Stashed], None] | None = None
    relay: StashPending | None = None
    _stashed: Stashed | None = None
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(
        self,
        kind: str,
        preview: str,
        args: Mapping[str, Any] | None = None,
        ttl_s: float = TTL_S,
    ) -> PendingConfirmation | None:
        """Put an action off, as `stash_pending` does."""
        if self.relay is not None:
            return self.relay(kind, preview, args, ttl_s)
        made = _made(kind, preview, args, ttl_s)
        with self._lock:
            if not self.room or self._closed:
                return None
            if waiting := self.taken or (self._stashed and self._stashed.preview):
                raise PendingActionExistsError(exists(waiting))
            self._stashed = made
            if self.pass_on is not None:
                self.pass_on(made)
        return PendingConfirmation(made.kind, made.preview, made.user_prompt)

    def close(self) -> Stashed | None:
        """Take nothing more, and return what was put off."""
        with self._lock:
            self._closed = True
            return self._stashed


_OUTSIDE = Stash()
_CURRENT: ContextVar[Stash] = ContextVar("milepost_stash", default=_OUTSIDE)


def stash_pending(
    kind: str, preview: str, args: Mapping[str, Any] | None = None, ttl_s: float = TTL_S
) -> PendingConfirmation | None:
    """Put an action off until the user has said yes to its preview; do nothing now.

    Return what this returns: it has the model ask the user. If the answer is a plain yes within
    `ttl_s` seconds, the function that is marked `@executor(kind)` is called with `args`, and no
    model comes in between. Outside a chat there is nobody to ask, and None is returned.

    It is kept when the tool's call has completed. Raises PendingActionExistsError if another action
    waits in the conversation, ToolError for what cannot be put off.
    """
    return _CURRENT.get().put(kind, preview, args, ttl_s)


@contextmanager
def stashing(stash: Stash) -> Iterator[Stash]:
    """Have what is put off from here on kept in `stash`, also in tasks and threads within."""
    token = _CURRENT.set(stash)
    try:
        yield stash
    finally:
        _CURRENT.reset(token)


def current() -> Stash:
    """Return where the call that runs here puts actions off."""
    return _CURRENT.get()


def exists(waiting: str) -> str:
    """Return what is said to whoever comes second."""
    return (
        f"another action waits for the user's answer: {waiting}. Nothing else was put off;"
        " wait for the answer first"
    )


def prompt_for(preview: str, ttl_s: float) -> str:
    """Return how the user is asked."""
    return f"{preview}\nReply yes to confirm or no to cancel, within {ttl_s:.15g} seconds."


def _made(kind: str, preview: str, args: Mapping[str, Any] | None, ttl_s: float) -> Stashed:
    if not is_kind(kind):
        raise ToolError(
            f"{str(kind)[:80]!r} is no kind of an action; write 1 to {KIND_CHARS_MAX} characters,"
            f" and not {APPROVAL_KIND!r}"
        )
    if not 0 < len(str(preview).strip()) <= PREVIEW_CHARS_MAX:
        raise ToolError(f"a preview is 1 to {PREVIEW_CHARS_MAX} characters that say what is done")
    if not 0 < ttl_s <= TTL_S_MAX:
        raise ToolError(f"ttl_s is {ttl_s}; an answer has more than 0 and {TTL_S_MAX:g} s at most")
    said = clean_text(str(preview))
    return Stashed(clean_text(kind), said, _arguments(args), ttl_s, prompt_for(said, ttl_s))


def _arguments(args: Mapping[str, Any] | None) -> dict[str, Json]:
    """Return the arguments in JSON form, copied: they are confirmed as they are now."""
    try:
        taken = clean(dict(args or {}))
    except (UnencodableError, TypeError, ValueError) as error:
        raise ToolError(f"the arguments of what is put off are not JSON: {error}") from error
    if (size := len(orjson.dumps(taken))) > ARGS_BYTES_MAX:
        raise ToolError(f"the arguments have {size} bytes as JSON, and may have {ARGS_BYTES_MAX}")
    assert isinstance(taken, dict), "a mapping is cleaned into one"
    return taken
