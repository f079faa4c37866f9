"""What a reading owes to others, whatever it reads."""

import asyncio
from typing import cast

import pytest

from milepost.core.errors import ProviderError
from milepost.providers.failures import Failures
from milepost.providers.http_connection import Answer
from milepost.providers.openai_chunks import Chunks
from milepost.providers.reading import Patience, Reading

IMPATIENT = Patience(first_s=0.05, between_s=0.05, whole_s=0.05, tail_s=0.05)
FAILURES = Failures("vendor", None)


class Flood:
    """An answer that has more of nothing at once, whenever it is read."""

    async def readany(self) -> bytes:
        """Return a comment."""
        return b": still here\n\n"

    def close(self) -> None:
        """Go on."""


async def test_a_flood_of_nothing_leaves_the_others_their_turn() -> None:
    loop = asyncio.get_running_loop()
    turn = asyncio.Event()
    reading = Reading(
        cast("Answer", Flood()), Chunks(FAILURES), FAILURES, IMPATIENT,
        first_deadline=loop.time() + IMPATIENT.first_s,
    )  # fmt: skip

    loop.call_soon(turn.set)
    with pytest.raises(ProviderError, match=r"no whole reply within 0\.05 s"):
        await reading.next()

    assert turn.is_set()
    reading.close()
