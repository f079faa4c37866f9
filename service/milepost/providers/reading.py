"""One streamed reply, read from an HTTP response: the part that every SSE wire shares."""

import asyncio
import codecs
import json
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from httptools import HttpParserError

from milepost.core.errors import ProviderError
from milepost.core.model import CallDelta, Delta, ReasoningDelta, TextDelta
from milepost.providers.failures import Failures
from milepost.providers.http_connection import Answer
from milepost.providers.json_array import JsonArrayItems
from milepost.providers.sse import SseLines
from milepost.providers.watchdog import NEVER, Watchdog

STRAY_BYTES_MAX = 16_384

SAYING = (TextDelta, ReasoningDelta, CallDelta)

# How what is no event may begin, and be the answer all the same: JSON, or a page.
_PLAIN = (b"{", b"<")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a reply's first delta, counted from the request, and between deltas.

    `whole_s` bounds the reply as a whole, however steadily it drips.
    `tail_s` bounds what may follow the reason to stop (usage and the end mark, which some servers
    never send), `drain_s` what may follow the end mark before the connection is thrown away.
    """

    first_s: float = 120.0
    between_s: float = 30.0
    whole_s: float = 900.0
    tail_s: float = 2.0
    drain_s: float = 0.25


class Decoder(Protocol):
    """A wire's events as deltas. `finished`: the reply is whole; `done`: nothing follows it."""

    @property
    def finished(self) -> bool: ...

    @property
    def done(self) -> bool: ...

    def decode(self, payload: bytes) -> list[Delta]: ...


class Reading:
    """Reads deltas until the reply's end, and closes the response of a vendor that is late."""

    def __init__(
        self,
        response: Answer,
        decoder: Decoder,
        failures: Failures,
        patience: Patience,
        *,
        first_deadline: float,
    ) -> None:
        self._response = response
        self._decoder = decoder
        self._failures = failures
        self._patience = patience
        self._first_deadline = first_deadline
        self._whole_deadline = first_deadline - patience.first_s + patience.whole_s
        self._clock = asyncio.get_running_loop().time
        self._lines: SseLines | JsonArrayItems | None = None
        self._stray = b""
        self._heard = False
        self._said = False
        self._goes_on = False
        self._ended = False
        shortest_s = min(patience.first_s, patience.between_s, patience.whole_s, patience.tail_s)
        self._watchdog = Watchdog(response.close, period_s=shortest_s)

    @property
    def has_said(self) -> bool:
        """Whether some of the reply has come, be it in the read that failed."""
        return self._said

    async def next(self) -> list[Delta]:
        """Return the deltas of the next read that brings any; none when the reply has ended.

        Raises `ProviderError` when the vendor is late, breaks off, or sends an error or garbage.
        """
        deadline = min(self._deadline(), self._whole_deadline)
        while not self._ended:
            self._require_time()
            piece = await self._read(deadline)
            deltas = self._decode(piece)
            self._ended = not piece or self._decoder.done
            if deltas:
                return deltas
            # A compressed flood of nothing is there at once: nobody else would have a turn.
            await asyncio.sleep(0)
            if self._has_stopped():
                deadline = min(deadline, self._clock() + self._patience.tail_s)
        if not self._decoder.finished:
            raise self._unfinished()
        return []

    async def drain(self) -> None:
        """Read on to the response's end, if it is near: then the connection can be used again."""
        if self._response.at_eof():
            return
        with suppress(TimeoutError, HttpParserError, OSError):
            async with asyncio.timeout(self._patience.drain_s):
                while await self._response.readany():
                    pass

    def close(self) -> None:
        """Let go of the connection; one that still has something to say is closed."""
        self._watchdog.stop()
        self._response.close()

    def _has_stopped(self) -> bool:
        """Say whether the reply is whole, even if nothing more comes of it.

        Some gateways give a reason to stop before the first word, or with every word: of theirs,
        only the end of the response is the end.
        """
        return self._decoder.finished and self._said and not self._goes_on

    def _deadline(self) -> float:
        if self._has_stopped():
            return self._clock() + self._patience.tail_s
        if self._heard:
            return self._clock() + self._patience.between_s
        return self._first_deadline

    def _require_time(self) -> None:
        """Refuse to read on for too long, even where nobody ever has to wait."""
        if not self._has_stopped() and self._clock() >= self._whole_deadline:
            raise self._failures.timed_out("whole reply", self._patience.whole_s)

    async def _read(self, deadline: float) -> bytes:
        """Return the next bytes; none at the end, and none where a whole reply misses its end."""
        self._watchdog.deadline = deadline
        try:
            return await self._response.readany()
        except (HttpParserError, OSError):
            if self._has_stopped():
                return b""
            raise self._broken() from None
        finally:
            self._watchdog.deadline = NEVER

    def _decode(self, piece: bytes) -> list[Delta]:
        payloads = self._payloads(piece)
        self._stray = b"" if payloads else (self._stray + piece)[:STRAY_BYTES_MAX]
        deltas: list[Delta] = []
        for payload in payloads:
            had_finished = self._decoder.finished
            told = self._decoder.decode(payload)
            if had_finished or not self._said:
                self._hear(told, had_finished=had_finished)
            deltas += told
        self._heard = self._heard or bool(deltas)
        return _joined(deltas)

    def _hear(self, told: list[Delta], *, had_finished: bool) -> None:
        if any(isinstance(delta, SAYING) for delta in told):
            self._said = True
            self._goes_on = self._goes_on or had_finished

    def _payloads(self, piece: bytes) -> list[bytes]:
        """Return the events that `piece` completes: SSE, or the items of an array if it is one."""
        if self._lines is None:
            piece = piece.removeprefix(codecs.BOM_UTF8)
            if not (begun := piece.lstrip()):
                return []
            self._lines = JsonArrayItems() if begun.startswith(b"[") else SseLines()
        if piece:
            return self._lines.feed(piece)
        # Some vendors leave out the last line's end; what does not end there broke off inside.
        return [last for last in self._lines.end() if _is_whole(last)]

    def _broken(self) -> ProviderError:
        if not self._watchdog.expired:
            return self._failures.cut_short()
        self._require_time()
        if self._heard:
            return self._failures.timed_out("next token", self._patience.between_s)
        return self._failures.timed_out("first token", self._patience.first_s)

    def _unfinished(self) -> ProviderError:
        """What came last and is no event may be plain words that say what is wrong."""
        if not self._heard and self._stray.lstrip().startswith(_PLAIN):
            return self._failures.not_streamed(self._stray)
        return self._failures.cut_short(self._stray)


def _joined(deltas: list[Delta]) -> list[Delta]:
    """Return the deltas with neighbouring pieces of a text as one: what came together goes on so.

    Each costs 2 us on its way to those who listen, and a fast vendor sends them by the dozen.
    """
    joined: list[Delta] = []
    for kind, alike in groupby(deltas, type):
        if issubclass(kind, (TextDelta, ReasoningDelta)):
            joined.append(kind("".join(each.text for each in alike if isinstance(each, kind))))
        else:
            joined += alike
    return joined


def _is_whole(last: bytes) -> bool:
    """Say whether it is an event, and no part of one: JSON, or an end mark in its brackets."""
    if last.startswith(b"["):
        return last.endswith(b"]")
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        return False
    return True
