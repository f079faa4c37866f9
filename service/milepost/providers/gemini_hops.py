"""A reply too long for one request to Gemini, which it gives in several: here it is one."""

from collections.abc import AsyncGenerator
from dataclasses import replace

from milepost.core.errors import ProviderError
from milepost.core.messages import Message
from milepost.core.model import (
    CallDelta,
    Delta,
    Finished,
    ModelRequest,
    Provider,
    SealedDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.closing import closing
from milepost.providers.gemini_seals import continuation, moved

HOPS_MAX = 32


class Hops:
    """Asks on from where the vendor stopped, until it stops for good.

    Each hop is asked and paid like a call of its own; the conversation stays as it was.
    """

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the whole reply. After `HOPS_MAX` hops it ends as one that reached its bound."""
        reply = _Reply(request)
        for _ in range(HOPS_MAX):
            async with closing(self._inner.stream(reply.next_request())) as deltas:
                try:
                    async for delta in deltas:
                        if (told := reply.take(delta)) is not None:
                            yield told
                except ProviderError as error:
                    if reply.owes:
                        error.at_work = True
                    raise
            if not reply.goes_on:
                break
        if reply.finished is not None:
            yield reply.finished


class _Reply:
    """What has been said so far: what comes later counts from there."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._token: SealedDelta | None = None
        self._chars = self._calls = 0
        self._hop_chars = self._hop_calls = 0
        self._taken: tuple[Usage, ...] = ()
        self._hop_usage = Usage()
        self.finished: Finished | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the vendor has more to say."""
        return self.finished is not None and self._token is not None

    @property
    def owes(self) -> bool:
        """Whether hops before the present one took something, whatever becomes of it."""
        return bool(self._taken)

    def next_request(self) -> ModelRequest:
        """Return what the next hop is asked with: the same again, and where the last one ended."""
        token, self._token, self.finished = self._token, None, None
        self._chars += self._hop_chars
        self._calls += self._hop_calls
        if self._hop_usage != Usage():
            self._taken = (*self._taken, self._hop_usage)
        self._hop_chars = self._hop_calls = 0
        self._hop_usage = Usage()
        if token is None:
            return self._request
        begun = Message("assistant", sealed=(token.sealed,))
        return replace(self._request, messages=(*self._request.messages, begun))

    def take(self, delta: Delta) -> Delta | None:
        """Return `delta` as one of the whole reply, or None where it is about this hop alone."""
        match delta:
            case TextDelta(text):
                self._hop_chars += len(text)
                return delta
            case CallDelta(index=index):
                self._hop_calls = max(self._hop_calls, index + 1)
                return replace(delta, index=index + self._calls)
            case SealedDelta(sealed) if continuation(sealed):
                self._token = delta
                return None
            case SealedDelta(sealed):
                return SealedDelta(moved(sealed, self._chars, self._calls))
            case Spent(usage):
                self._hop_usage = usage
                requests = (*self._taken, usage)
                return Spent(sum(requests, Usage()), requests) if self._taken else delta
            case Finished():
                self.finished = delta
                return None
            case _:
                return delta
