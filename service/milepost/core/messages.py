"""What the user, the model and the tools say to each other."""

from collections.abc import Mapping
from typing import Literal

import orjson

from milepost.core.frozen import dataclass
from milepost.core.json import Json

Role = Literal["system", "user", "assistant", "tool"]
ToolKind = Literal["server", "client", "http", "mcp", "agent"]
"""Who runs a tool: our process, the client, a server over HTTP or MCP, or a run of its own."""
NOT_RUN = "Not run."
"""What stands for the result of a call that has none: no model takes a call without one."""


@dataclass(frozen=True)  # Without slots, as all that a state copies.
class ToolCall:
    """A call that the model asked for.

    `id` is ours and unique in the run; `provider_id` is the vendor's, used on its wire only, since
    small models repeat theirs. `malformed` is what the model wrote where it is no JSON object.
    """

    id: str
    name: str
    arguments: Mapping[str, Json]
    provider_id: str = ""
    malformed: str | None = None
    kind: ToolKind = "server"


@dataclass(frozen=True, slots=True)
class Image:
    """A picture beside a user's text: an https address, or `data:<media type>;base64,<bytes>`."""

    url: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a vendor wants back word for word in the next request, such as its signed thinking.

    Only the wire called `wire` knows what `item` means; the others leave it out.
    """

    wire: str
    item: Mapping[str, Json]


@dataclass(frozen=True)  # Without slots, as all that a state copies.
class Message:
    """One turn of the conversation. `call_id` names the call that a tool's message answers."""

    role: Role
    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    images: tuple[Image, ...] = ()
    sealed: tuple[Sealed, ...] = ()


def told(result: Json) -> str:
    """Return a tool's result as the model reads it: text as it is, anything else as JSON."""
    if isinstance(result, str):
        return result
    return "" if result is None else orjson.dumps(result).decode()
