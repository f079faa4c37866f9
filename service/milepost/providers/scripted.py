"""A provider that plays what it is told to: for tests, and for those who embed Milepost."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

import orjson

from milepost.core.errors import ProviderError
from milepost.core.json import Json
from milepost.core.model import (
    CallDelta,
    Delta,
    Finished,
    ModelRequest,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage

Script = Sequence[Delta | Exception] | Exception
"""One reply: its deltas, and an exception where the vendor fails, at once or in the middle."""


class Scripted:
    """Plays one script a call, in order, and keeps every request in `requests`."""

    def __init__(self, replies: Iterable[Script]) -> None:
        self._replies = iter(tuple(replies))
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Play the next script. Raises `ProviderError` when there is none left."""
        self.requests.append(request)
        script = next(self._replies, None)
        if script is None:
            raise ProviderError(
                f"The script has no reply to call {len(self.requests)}; give `Scripted` more"
            )
        for step in (script,) if isinstance(script, Exception) else script:
            if isinstance(step, Exception):
                raise step
            yield step


def saying(text: str, *, usage: Usage | None = None) -> list[Delta]:
    """Return the script of a reply that is `text`, word by word."""
    words = text.split(" ")
    pieces = [*(f"{word} " for word in words[:-1]), words[-1]]
    deltas: list[Delta] = [TextDelta(piece) for piece in pieces]
    return [*deltas, Spent(usage or Usage(input_tokens=10, output_tokens=5)), Finished("stop")]


def calling(*calls: tuple[str, Mapping[str, Json]], usage: Usage | None = None) -> list[Delta]:
    """Return the script of a reply that asks for `calls`, each a tool's name and its arguments."""
    deltas: list[Delta] = []
    for index, (name, arguments) in enumerate(calls):
        deltas.append(CallDelta(index, f"call_{index}", name))
        deltas.append(CallDelta(index, arguments=orjson.dumps(arguments).decode()))
    spent = Spent(usage or Usage(input_tokens=10, output_tokens=5))
    return [*deltas, spent, Finished("tool_calls")]
