"""Text on its way to those who listen: the first piece at once, then in pieces worth sending."""

import asyncio

from milepost.live.hub import Hub, LiveText, TextKind

LINGER_S = 0.020
PIECE_CHARS = 1024


class LiveWriter:
    """Gathers the pieces of one text for at most 20 ms or 1,024 characters."""

    __slots__ = ("_hub", "_run_id", "_text", "_timer", "_waiting", "_waiting_chars")

    def __init__(self, hub: Hub, run_id: str, kind: TextKind, id_: str, after_seq: int) -> None:
        self._hub = hub
        self._run_id = run_id
        self._text = LiveText(kind, id_, after_seq)
        self._waiting: list[str] = []
        self._waiting_chars = 0
        self._timer: asyncio.TimerHandle | None = None

    def write(self, piece: str) -> None:
        """Add a piece of text."""
        self._waiting.append(piece)
        self._waiting_chars += len(piece)
        if self._timer is None:
            self._send()
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._linger)
        elif self._waiting_chars >= PIECE_CHARS:
            self._send()

    def close(self) -> None:
        """Send what waits; the text is complete or given up."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._send()
        self._hub.close_text(self._run_id, self._text)

    def _linger(self) -> None:
        self._timer = None
        if self._waiting:
            self._send()
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._linger)

    def _send(self) -> None:
        if self._waiting:
            piece = "".join(self._waiting)
            self._waiting.clear()
            self._waiting_chars = 0
            self._hub.write(self._run_id, self._text, piece)
