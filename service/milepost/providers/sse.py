"""Server-sent events, as far as model vendors use them: the `data` lines of a byte stream."""

from milepost.core.errors import ProviderError

# Some events repeat the whole request: its instructions and all of its tools.
SSE_LINE_BYTES_MAX = 4_194_304


class SseLines:
    """Cuts a byte stream into the payloads of its `data` lines, across chunk borders.

    Each line is a payload of its own: no vendor spreads its JSON over several. Comments, other
    fields and lines that are no field at all are skipped, as the standard says.
    """

    __slots__ = ("_pieces", "_pieces_bytes")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return what `chunk` completes. Raises `ProviderError` for a line without end."""
        lines = chunk.split(b"\n")
        if len(lines) > 1 and self._pieces:
            lines[0] = b"".join((*self._pieces, lines[0]))
            self._forget()
        self._keep(lines.pop())
        return _payloads(lines)

    def end(self) -> list[bytes]:
        """Return the payload of a last line that the stream left without a line end."""
        last = b"".join(self._pieces)
        self._forget()
        return _payloads([last])

    def _keep(self, piece: bytes) -> None:
        """Hold back an unfinished line in pieces: joining at each chunk would cost their square."""
        if not piece:
            return
        self._pieces.append(piece)
        self._pieces_bytes += len(piece)
        if self._pieces_bytes > SSE_LINE_BYTES_MAX:
            raise ProviderError(
                f"The vendor sent a line of more than {SSE_LINE_BYTES_MAX} bytes, which is no reply"
            )

    def _forget(self) -> None:
        self._pieces = []
        self._pieces_bytes = 0


def _payloads(lines: list[bytes]) -> list[bytes]:
    return [
        payload for line in lines if line.startswith(b"data:") and (payload := line[5:].strip())
    ]
