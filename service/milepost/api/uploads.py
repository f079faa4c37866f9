"""Uploads: bodies of lines, which may be larger than others and are taken piece by piece."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from starlette.requests import Request

from milepost.api.bodies import BODY_BYTES_MAX, require_within
from milepost.core.errors import InvalidError, OverloadedError

UPLOAD_BYTES_MAX = 33_554_432
UPLOAD_S_MAX = 300.0
UPLOADS_BYTES_MAX = 4 * UPLOAD_BYTES_MAX
LINE_BYTES_MAX = BODY_BYTES_MAX

TakeLines = Callable[[list[bytes]], Awaitable[None]]


class Uploads:
    """How much of uploads this process has in memory: a slow one takes no more than it has sent."""

    def __init__(self) -> None:
        self._held = 0

    @contextmanager
    def hold(self) -> Iterator[Callable[[int], None]]:
        """Give what takes room for more bytes; it is free again at the end.

        It raises `OverloadedError` where there is none.
        """
        held = 0

        def take_room(size: int) -> None:
            nonlocal held
            if self._held + size > UPLOADS_BYTES_MAX:
                raise OverloadedError(f"{self._held} bytes are being uploaded here; come back")
            held += size
            self._held += size

        try:
            yield take_room
        finally:
            self._held -= held


async def read_lines(request: Request, take: TakeLines, take_room: Callable[[int], None]) -> bytes:
    """Have the body's lines taken, those together that came together; return the body's digest.

    Raises `InvalidError` beyond `UPLOAD_BYTES_MAX`, for a line beyond `LINE_BYTES_MAX`, and after
    `UPLOAD_S_MAX` seconds.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal():
        require_within(UPLOAD_BYTES_MAX, int(declared))
    try:
        async with asyncio.timeout(UPLOAD_S_MAX):
            return await _taken(request, take, take_room)
    except TimeoutError as error:
        raise InvalidError(
            f"the body was not sent within {UPLOAD_S_MAX:g} seconds", code="body_too_slow"
        ) from error


async def _taken(request: Request, take: TakeLines, take_room: Callable[[int], None]) -> bytes:
    seen, size, rest = hashlib.sha256(), 0, b""
    async for piece in request.stream():
        size += len(piece)
        require_within(UPLOAD_BYTES_MAX, size)
        take_room(len(piece))
        seen.update(piece)
        *lines, rest = (rest + piece).split(b"\n")
        for line in (*lines, rest):
            if len(line) > LINE_BYTES_MAX:
                raise InvalidError(
                    f"a line is larger than {LINE_BYTES_MAX} bytes", code="body_too_large"
                )
        if lines:
            await take(lines)
    await take([rest])
    return seen.digest()
