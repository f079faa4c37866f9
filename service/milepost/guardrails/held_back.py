"""Text on its way to whoever reads along: held back as long as a rail may yet object to it."""

from collections.abc import Sequence

from milepost.guardrails.passage import Trigger
from milepost.guardrails.text_rail import TextRail, listed

_ACTIONS = {"block": "blocked", "rewrite": "rewritten", "warn": "warned"}


class HeldBack:
    """One text on its way past several rails, each of which sees what the one before it let go.

    What was let go, however the text was cut into pieces, is always the beginning of what is let go
    in the end; of what a rail blocks, nothing is, nor of what follows it.
    """

    def __init__(self, rails: Sequence[TextRail]) -> None:
        self._rails = rails
        self._passing = [rail.passing() for rail in rails]
        self._released: list[str] = []

    def feed(self, piece: str) -> str:
        """Take in a piece; return what may be shown now."""
        for passing in self._passing:
            piece = passing.feed(piece)
        self._released.append(piece)
        return piece

    def finish(self, *, answers: bool = True) -> str:
        """Return the rest of what may be shown: nothing follows.

        A text that `answers` nothing, as one beside tool calls, owes no rail anything.
        """
        piece = ""
        for rail, passing in zip(self._rails, self._passing, strict=True):
            owes = answers or not rail.demands
            piece = passing.finish(piece) if owes else passing.feed(piece) + passing.release()
        self._released.append(piece)
        return piece

    @property
    def released(self) -> str:
        """All that may be shown by now."""
        return "".join(self._released)

    @property
    def blocked(self) -> Trigger | None:
        """What a rail has blocked, if one has."""
        return next((trigger for trigger in self.triggers if trigger.action == "blocked"), None)

    @property
    def triggers(self) -> list[Trigger]:
        """Which rails have stepped in, and why."""
        return [
            Trigger(rail.name, _ACTIONS[rail.action], listed(passing.found))
            for rail, passing in zip(self._rails, self._passing, strict=True)
            if passing.found
        ]
