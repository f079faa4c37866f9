"""Answers that are sent while they are made, piece by piece."""

from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse
from starlette.types import Send


class GradualResponse(StreamingResponse):
    """Begins with its first piece: what fails before that can still be refused with a status."""

    async def stream_response(self, send: Send) -> None:
        """Send what there is, as soon as there is some."""
        pieces = aiter(self.body_iterator)
        self.body_iterator = _behind(await anext(pieces, b""), pieces)
        await super().stream_response(send)


async def _behind(
    first: str | bytes | memoryview, pieces: AsyncIterator[str | bytes | memoryview]
) -> AsyncIterator[str | bytes | memoryview]:
    yield first
    async for piece in pieces:
        yield piece
