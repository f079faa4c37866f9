"""The built-in provider of single calls: it asks for the call that its input names, and no more."""

import json
from collections.abc import AsyncGenerator, Mapping

from milepost.core.errors import ProviderError
from milepost.core.json import Json
from milepost.core.model import CallDelta, Delta, Finished, ModelRequest, Spent, TextDelta
from milepost.core.usage import Usage

NAME = "direct"


def written_call(tool: str, arguments: Mapping[str, Json]) -> str:
    """Return the input that has `tool` called with `arguments`."""
    return json.dumps({"tool": tool, "arguments": dict(arguments)}, ensure_ascii=False)


class Direct:
    """Asks for the call that the last message of the user says, and repeats what came of it."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the call, or its result. Raises `ProviderError` for an input that names none."""
        last = request.messages[-1]
        if last.role == "tool":
            yield TextDelta(last.content)
            yield Spent(Usage())
            yield Finished("stop")
            return
        tool, arguments = _read(last.content)
        yield CallDelta(0, "call_0", tool, arguments)
        yield Spent(Usage())
        yield Finished("tool_calls")


def _read(said: str) -> tuple[str, str]:
    try:
        match json.loads(said):
            case {"tool": str(tool), "arguments": dict(arguments)}:
                return tool, json.dumps(arguments, ensure_ascii=False)
            case _:
                pass  # JSON, and no call.
    except (ValueError, RecursionError):
        pass  # No JSON.
    raise ProviderError(
        'the input names no call; it must be {"tool": ..., "arguments": {...}}',
        code="provider_bad_request",
    )
