"""What a tool says while it runs, on its way past the guardrails of its result."""

from milepost.guardrails.held_back import HeldBack
from milepost.tools.streaming import Writer


class HeldWriter:
    """Passes on what is let go of a text; nothing, where only the whole could be judged."""

    def __init__(self, writer: Writer, held: HeldBack | None) -> None:
        self._writer = writer
        self._held = held

    def write(self, piece: str) -> None:
        """Show what may be shown by now."""
        if self._held and (shown := self._held.feed(piece)):
            self._writer.write(shown)

    def close(self) -> None:
        """Show the rest, and no more."""
        if self._held and (shown := self._held.finish(answers=False)):
            self._writer.write(shown)
        self._writer.close()
