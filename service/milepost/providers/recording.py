"""A provider that writes down what another one says, for `Replaying` to say it again."""

from collections.abc import AsyncGenerator
from pathlib import Path

from milepost.core.errors import ProviderError
from milepost.core.model import Delta, ModelRequest, Provider
from milepost.providers.closing import closing
from milepost.providers.recorded import RecordedCall, encode_call, request_digest


class Recording:
    """Appends a line to the file for each call that ends, well or not.

    Requests are written as digests only, so that prompts stay where they are; headers and keys
    never come here. Replies are written as they are. A call that is left early is not written.
    """

    def __init__(self, inner: Provider, path: Path) -> None:
        self._inner = inner
        self._path = path

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply, and write it down once it has ended."""
        said: list[Delta] = []
        try:
            async with closing(self._inner.stream(request)) as deltas:
                async for delta in deltas:
                    said.append(delta)
                    yield delta
        except ProviderError as error:
            self._write(request, said, error)
            raise
        self._write(request, said, None)

    def _write(self, request: ModelRequest, said: list[Delta], error: ProviderError | None) -> None:
        call = RecordedCall(request_digest(request), request.model, tuple(said), error)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(encode_call(call) + "\n")
