"""Tool calls in the text of a reply, told apart from the answer as it streams.

All that is no call is the answer, byte for byte: a marker without a tool's name as much as an
object without its marker. What is no JSON although a marker and a tool's name stand there is a call
whose arguments are what the model wrote, so that it can be told.

What follows a call and says that it is a result was made up, and so is all that follows it.
"""

from collections.abc import Callable, Collection, Iterator

from milepost.core.errors import ProviderError
from milepost.core.model import CallDelta, TextDelta
from milepost.providers.call_markup import FENCE, CallBody, Found, Line, line_at, read_call

CALL_CHARS_MAX = 200_000

Told = TextDelta | CallDelta
Reader = Callable[[bool], tuple[list[Told], bool]]


class TextCalls:
    """Reads one reply. Held back is only what may yet become a marker, and what follows one."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held = ""
        self._begins_line = True
        self._body = CallBody(Line(Found.CALL))
        self._read: Reader = self._read_answer
        self.count = 0

    def feed(self, text: str) -> list[Told]:
        """Return what `text` adds. Raises `ProviderError` for a call without end."""
        self._held += text
        return [*self._told(ended=False)]

    def end(self) -> list[Told]:
        """Return what was held back: nothing more will come."""
        return [*self._told(ended=True)]

    def _told(self, *, ended: bool) -> Iterator[Told]:
        goes_on = True
        while goes_on:
            told, goes_on = self._read(ended)
            yield from told

    def _read_answer(self, ended: bool) -> tuple[list[Told], bool]:
        """Tell the answer up to the next marker; say whether there is one."""
        start = 0 if self._begins_line else self._next_line(0)
        while start is not None:
            line = self._line_at(start, ended)
            if line.found is not Found.ANSWER:
                return self._pass(start), self._leave_answer(line, start)
            start = self._next_line(start)
        return self._pass(len(self._held)), False

    def _leave_answer(self, line: Line, start: int) -> bool:
        match line.found:
            case Found.CALL:
                self._body = CallBody(Line(line.found, line.end - start, line.fenced))
                self._read = self._read_call
                return True
            case Found.RESULT:
                self._read = self._read_nothing
                return True
            case Found.UNSURE | Found.ANSWER:
                return False

    def _read_call(self, ended: bool) -> tuple[list[Told], bool]:
        """Tell a call when it is whole, or that it is none but a part of the answer."""
        end = self._body.end_in(self._held)
        if end is None and not ended:
            self._require_bounded()
            return [], False
        end = len(self._held) if end is None else end
        called = read_call(self._body.said_in(self._held, end), self._names)
        if called is None:
            self._read = self._read_answer
            return self._pass(end), True
        self._held = self._held[end:]
        self._read = self._read_after_call
        self.count += 1
        return [CallDelta(self.count - 1, "", *called)], True

    def _read_after_call(self, ended: bool) -> tuple[list[Told], bool]:
        """Drop the space behind a call, and the fence that it stood in."""
        self._held = self._held.lstrip()
        if self._body.fenced:
            if self._held.startswith(FENCE):
                self._held = self._held.removeprefix(FENCE)
                self._body.fenced = False
                return [], True
            if FENCE.startswith(self._held) and not ended:
                return [], False
        if not self._held:
            return [], False
        self._begins_line = True
        self._read = self._read_answer
        return [], True

    def _read_nothing(self, _: bool) -> tuple[list[Told], bool]:
        self._held = ""
        return [], False

    def _line_at(self, start: int, ended: bool) -> Line:
        """Return what a line begins with. A result can only follow a call."""
        line = line_at(self._held, start)
        is_answer = (ended and line.found is Found.UNSURE) or (
            not self.count and line.found is Found.RESULT
        )
        return Line(Found.ANSWER) if is_answer else line

    def _next_line(self, at: int) -> int | None:
        end = self._held.find("\n", at)
        return None if end < 0 else end + 1

    def _pass(self, end: int) -> list[Told]:
        """Let go of what is held, up to `end`, as a part of the answer."""
        text, self._held = self._held[:end], self._held[end:]
        if not text:
            return []
        self._begins_line = text.endswith("\n")
        return [TextDelta(text)]

    def _require_bounded(self) -> None:
        if len(self._held) > CALL_CHARS_MAX:
            raise ProviderError(
                f"The model writes a tool call of more than {CALL_CHARS_MAX} characters; ask for"
                " less"
            )
