"""What a call that was given secrets says and leaves behind while it runs, without the secrets."""

import threading
import traceback
from collections.abc import Mapping, MutableMapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Unpack, cast

import structlog
from structlog.stdlib import BoundLogger, PositionalArgumentsFormatter
from structlog.typing import Processor

from milepost.core.errors import ToolError
from milepost.core.json import Json, UnencodableError, clean, clean_text
from milepost.core.pending import TTL_S
from milepost.tools import artifacts, pending
from milepost.tools.artifacts import Artifact, ArtifactParts, EmitArtifact
from milepost.tools.context import ToolContext
from milepost.tools.pending import PendingConfirmation, Stash, StashPending
from milepost.tools.raised import told
from milepost.tools.references import Revealed, Sieve
from milepost.tools.transaction import NO_TRANSACTION


class Discretion:
    """Stands between one call, in whatever thread, and those who hear of it until its end.

    `context` is what the call gets in the place of its own. From `begin` to `end`, which are called
    in one context, the functions `emit_artifact` and `stash_pending` pass here as well.
    """

    def __init__(self, context: ToolContext, revealed: Revealed) -> None:
        self._heard = context
        self._revealed = revealed
        self._sieve = Sieve(revealed)
        self._sifting = threading.Lock()
        self._until = ExitStack()
        self.context = replace(
            context,
            progress=self._progress,
            emit=self._emit,
            emit_artifact=partial(self._emit_to, context.emit_artifact),
            stash_pending=partial(self._put_off_to, context.stash_pending),
            log=self._log(context.log),
        )

    def begin(self) -> None:
        """Hear, from here on, what is left behind and put off without a context."""
        left, stash = artifacts.current(), pending.current()

        def leave(artifact: Artifact, content: bytes | None) -> None:
            labels = ("url", "mime_type", "filename", "role", "retention")
            shown = {label: self._hidden(getattr(artifact, label)) for label in labels}
            left.take(replace(artifact, **shown), content)

        if self._heard.tx is not NO_TRANSACTION:  # which is everybody's
            self._heard.tx.keep_to_itself(self._revealed.hide)
        emit, put = partial(self._emit_to, left.emit), partial(self._put_off_to, stash.put)
        self._until.enter_context(artifacts.collecting(leave, emit))
        self._until.enter_context(pending.stashing(Stash(stash.room, stash.taken, relay=put)))

    def end(self) -> None:
        """Say what was held back: nothing follows."""
        self._until.close()
        with self._sifting:
            rest = self._sieve.rest()
        if rest:
            self._heard.progress(rest)

    def cause(self, error: BaseException) -> BaseException:
        """Return what may be told as the cause of a failure: the error, unless it tells a secret.

        Where it was raised is told in any case.
        """
        try:
            lines = "".join(traceback.format_exception(error))
        except Exception:  # it cannot even be printed
            return ToolError(told(error, self._revealed))
        if (shown := self._revealed.hide(lines)) == lines:
            return error
        hidden = ToolError(told(error, self._revealed))
        hidden.add_note(shown)
        return hidden

    def _progress(self, text: object) -> None:
        said = str(text)
        with self._sifting:
            piece = self._sieve.sift(said)
        if piece:
            self._heard.progress(piece)

    def _emit(self, name: str, value: object = None, /) -> None:
        self._heard.emit(self._hidden(name), self._hidden_in(value))

    def _emit_to(
        self, emit: EmitArtifact, /, url: str | None = None, **parts: Unpack[ArtifactParts]
    ) -> Artifact:
        content = parts.get("content")
        if isinstance(content, Path):
            parts["filename"] = parts.get("filename") or content.name
        shown = {name: self._hidden(part) for name, part in parts.items() if name != "content"}
        told_of = cast("ArtifactParts", {**shown, "content": content})
        return emit(self._hidden(url), **told_of)

    def _put_off_to(
        self,
        put: StashPending,
        /,
        kind: str,
        preview: str,
        args: Mapping[str, Any] | None = None,
        ttl_s: float = TTL_S,
    ) -> PendingConfirmation | None:
        return put(self._hidden(kind), self._hidden(preview), self._hidden_in(args), ttl_s)

    def _log(self, log: BoundLogger) -> BoundLogger:
        """Return a log whose lines go to `log`."""

        def pass_on(_: object, level: str, event: MutableMapping[str, Any]) -> NoReturn:
            fields = {name: loggable(value) for name, value in event.items() if name != "event"}
            what = str(event.get("event", ""))
            # Of an exception the words are there, and must not be looked for again.
            say = log.error if level == "exception" else getattr(log, level)
            say(self._revealed.hide(what), **self._hidden_in(fields))
            raise structlog.DropEvent

        shown: list[Processor] = [
            PositionalArgumentsFormatter(),
            structlog.processors.format_exc_info,
            pass_on,
        ]
        bound: BoundLogger = structlog.wrap_logger(
            None, processors=shown, wrapper_class=BoundLogger
        )
        return bound

    def _hidden(self, part: Any) -> Any:
        return self._revealed.hide(part) if isinstance(part, str) else part

    def _hidden_in(self, value: Any) -> Any:
        try:
            return self._revealed.hide_in(clean(value))
        except UnencodableError:
            return value  # Whoever takes it refuses it.


def loggable(value: object) -> Json:
    """Return a field of a log line in a form that can be sent and looked through."""
    try:
        return clean(value)
    except UnencodableError:
        return clean_text(repr(value))
