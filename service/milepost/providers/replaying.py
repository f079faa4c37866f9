"""A provider that says again what was recorded: for tests that need no model and no network."""

from collections import defaultdict, deque
from collections.abc import AsyncGenerator
from pathlib import Path

from milepost.core.errors import ConfigurationError, ProviderError
from milepost.core.model import Delta, ModelRequest
from milepost.providers.recorded import RecordedCall, decode_call, request_digest


class Replaying:
    """Answers each request as it was answered when it was recorded.

    A request that was recorded several times gets its replies in their order, each of them once.
    """

    def __init__(self, path: Path) -> None:
        """Read the recording. Raises `ConfigurationError` that names a line which is none."""
        self._path = path
        self._replies: dict[str, deque[RecordedCall]] = defaultdict(deque)
        self._recorded = 0
        for call in _read(path):
            self._replies[call.request].append(call)
            self._recorded += 1

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the recorded reply. Raises the recorded error, or that there is no recording."""
        digest = request_digest(request)
        left = self._replies.get(digest)
        if left is None:
            raise ProviderError(
                f"The recording {self._path} has no reply to this request of"
                f" {len(request.messages)} messages to model {request.model!r} (digest"
                f" {digest[:12]}), only to {self._recorded} others; record it again"
            )
        if not left:
            raise ProviderError(
                f"The recording {self._path} has no further reply to the request with digest"
                f" {digest[:12]}: it is asked more often than when it was recorded"
            )
        call = left.popleft()
        for delta in call.deltas:
            yield delta
        if call.error is not None:
            raise call.error


def _read(path: Path) -> list[RecordedCall]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the recording {path} cannot be read: {error}") from error
    calls = []
    for number, line in enumerate(lines, start=1):
        try:
            calls.append(decode_call(line))
        except ValueError as error:
            raise ConfigurationError(f"the recording {path}, line {number}: {error}") from error
    return calls
