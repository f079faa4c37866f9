"""Artifacts on their way from a tool's process: told of first, then their contents in pieces."""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from milepost.core.errors import ToolError
from milepost.tools.artifacts import (
    ARTIFACTS_MAX,
    CONTENTS_BYTES_MAX,
    leave,
    read_artifact,
)


@dataclass(frozen=True, slots=True)
class _Arriving:
    told: Mapping[str, Any]
    size: int
    content: bytearray = field(default_factory=bytearray)


class Arrivals:
    """What a call in a process of its own leaves behind here. Nothing that is said is believed.

    Each method raises ToolError for what makes no artifact, or too large a one.
    """

    def __init__(self) -> None:
        self._arriving: dict[str, _Arriving] = {}
        self._room = CONTENTS_BYTES_MAX

    async def tell(self, told: Mapping[str, Any], size: int | None) -> None:
        """Hear of an artifact, whose content of so many bytes comes behind; None: it has none."""
        if size is None:
            leave(*read_artifact(told, None))
            return
        if len(self._arriving) >= ARTIFACTS_MAX:
            raise ToolError("too many artifacts are on their way at once")
        named = str(told.get("id"))
        self._arriving[named] = _Arriving(told, size)
        await self._settle(named)

    async def take(self, named: str, encoded: str) -> None:
        """Take the next piece of a content."""
        if (arriving := self._arriving.get(named)) is None:
            raise ToolError(f"nothing was told of the artifact {named:.40}")
        try:
            piece = base64.b64decode(encoded, validate=True)
        except ValueError as error:
            raise ToolError("a content comes in base64") from error
        self._room -= len(piece)
        if self._room < 0:
            raise ToolError(f"more than {CONTENTS_BYTES_MAX} bytes came")
        arriving.content.extend(piece)
        await self._settle(named)

    async def _settle(self, named: str) -> None:
        """Leave the artifact behind once it is whole."""
        arriving = self._arriving[named]
        if len(arriving.content) < arriving.size:
            return
        del self._arriving[named]
        # Its digest is worked out anew, which may take a while.
        whole = bytes(arriving.content)
        leave(*await asyncio.to_thread(read_artifact, arriving.told, whole))
