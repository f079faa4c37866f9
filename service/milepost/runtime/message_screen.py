"""What a model says, on its way past the guardrails of the output."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from milepost.core.events import GuardrailTriggered
from milepost.core.json import clean_text
from milepost.core.model import Reply
from milepost.guardrails.escapes import Unescaping
from milepost.guardrails.held_back import HeldBack
from milepost.guardrails.passage import OnFailed, Passage, Post, passage
from milepost.guardrails.text_rail import TextRail
from milepost.guardrails.verdicts import Subject


class Words(Protocol):
    """What a model says, as far as it may be shown."""

    def text(self, piece: str) -> str:
        """Take in a piece of the answer; return what may be shown now."""

    def thought(self, piece: str) -> str:
        """Take in a piece of the reasoning; return what may be shown now."""

    async def screened(self, reply: Reply) -> tuple[Reply, list[GuardrailTriggered]]:
        """Return the reply as it goes on, all of which was taken in, and what stepped in."""


class _Unscreened:
    """Words that nothing looks at."""

    def text(self, piece: str) -> str:
        return piece

    def thought(self, piece: str) -> str:
        return piece

    async def screened(self, reply: Reply) -> tuple[Reply, list[GuardrailTriggered]]:
        return reply, []


UNSCREENED: Words = _Unscreened()


class MessageScreen:
    """One message. Its text and its reasoning may each be shown as far as the rails let it go.

    The rails read what a text that `is_json` means, as whoever parses it will. A message that is
    blocked ends with saying so, and what it asks for is not done: it is an answer that its model
    was not to give. What was shown of it stays its beginning.
    """

    def __init__(
        self,
        seen: Sequence[Post],
        subject: Subject,
        on_failed: OnFailed,
        *,
        hold: bool,
        is_json: bool = False,
    ) -> None:
        beside = [post for post in seen if not post.form]
        said = [*map(_in_json, seen)] if is_json else seen
        self._text = _Passing(said, subject, on_failed, hold=hold)
        self._thought = _Passing(beside, subject, on_failed, hold=hold)
        self._unescaping = Unescaping() if is_json else None

    def text(self, piece: str) -> str:
        """Take in a piece of the answer; return what may be shown now."""
        return self._text.feed(self._unescaping.feed(piece) if self._unescaping else piece)

    def thought(self, piece: str) -> str:
        """Take in a piece of the reasoning; return what may be shown now."""
        return self._thought.feed(piece)

    async def screened(self, reply: Reply) -> tuple[Reply, list[GuardrailTriggered]]:
        """Return the reply as it goes on, all of which was taken in, and what stepped in."""
        if self._unescaping:
            self._text.feed(self._unescaping.finish())
        asks = bool(reply.calls)
        text = await self._text.finish(answers=not asks, skip=asks and not reply.text)
        thought = await self._thought.finish(answers=False, skip=not reply.reasoning)
        triggers = [
            GuardrailTriggered(each.rail, each.action, each.reason, None, "output")
            for each in (*thought.triggers, *text.triggers)
        ]
        shown = replace(reply, text=_shown(text), reasoning=_shown(thought))
        if text.blocked:
            return replace(shown, calls=(), sealed=(), finish_reason="content_filter"), triggers
        if _words_of(shown) != _words_of(reply):
            # It may hold what the words were rid of, and belongs to none but the old ones.
            shown = replace(shown, sealed=())
        return shown, triggers


def _in_json(post: Post) -> Post:
    rail = post.rail
    return replace(post, rail=rail.in_json()) if isinstance(rail, TextRail) else post


def _words_of(reply: Reply) -> tuple[str, str]:
    return clean_text(reply.text), clean_text(reply.reasoning)


class _Passing:
    """One text, streamed where all rails can judge what may still go on, and else held whole."""

    def __init__(
        self, seen: Sequence[Post], subject: Subject, on_failed: OnFailed, *, hold: bool
    ) -> None:
        self._seen = seen
        self._subject = subject
        self._on_failed = on_failed
        rails = [post.rail for post in seen if isinstance(post.rail, TextRail)]
        self._held = None if hold or len(rails) < len(seen) else HeldBack(rails)
        self._pieces: list[str] = []

    def feed(self, piece: str) -> str:
        if self._held:
            return self._held.feed(piece)
        self._pieces.append(piece)
        return ""

    async def finish(self, *, answers: bool, skip: bool) -> Passage:
        """Return what is shown of the text in the end, before what is said of a blocked one."""
        if skip:
            return Passage("")
        if self._held:
            self._held.finish(answers=answers)
            return Passage(self._held.released, self._held.blocked, self._held.triggers)
        seen = [post for post in self._seen if answers or not post.demands]
        subject = replace(self._subject, value="".join(self._pieces))
        taken = await passage(seen, subject, self._on_failed)
        return replace(taken, value="") if taken.blocked else taken


def _shown(taken: Passage) -> str:
    blocked = f"[blocked by the guardrail {taken.blocked.rail}]" if taken.blocked else ""
    return f"{taken.value}{blocked}"
