"""A text in JSON on its way past a finder, which reads what stands in it behind escapes."""

from milepost.core.guardrails import Action
from milepost.guardrails.escapes import Unescaping, written
from milepost.guardrails.finds import Finder, Passing


class PassingJson(Passing):
    """One text in JSON on its way past one finder, in pieces.

    To a finder that takes `\\n` for a letter, what stands at the beginning of a line is part of
    another word; and half an escape, where it replaces the rest, is no JSON.
    """

    def __init__(self, finder: Finder, action: Action) -> None:
        super().__init__(finder, action)
        self._reading = Unescaping(controls=True)

    def feed(self, piece: str) -> str:
        """Take in a piece and return what may go on now."""
        return written(super().feed(self._reading.feed(piece)))

    def finish(self, piece: str = "") -> str:
        """Take in the last piece and return the rest of what may go on."""
        return written(super().finish(self._reading.feed(piece) + self._reading.finish()))

    def release(self) -> str:
        """Return the rest as it is, where the finder has nothing to say of the text."""
        return written(super().feed(self._reading.finish()) + super().release())
