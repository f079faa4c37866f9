"""The writer: the first piece at once, what follows within 20 ms or by the kibibyte."""

import asyncio
from collections.abc import Sequence

import pytest

from milepost.live.hub import Hub, LiveText
from milepost.live.writer import LINGER_S, PIECE_CHARS, LiveWriter

TIMEOUT_S = 5


class Tape:
    """A link that keeps the pieces, and lets one wait for them."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.closed_texts: list[str] = []
        self.news = asyncio.Event()

    def wrote(self, _: str, text: LiveText, piece: str) -> None:
        assert text.text.endswith(piece)
        self.pieces.append(piece)
        self.news.set()

    def closed(self, _: str, text: LiveText) -> None:
        self.closed_texts.append(text.text)

    def published(self, run_id: str, seq: int) -> None:
        raise AssertionError(f"a writer publishes no events: {run_id} {seq}")

    def rang(self, bell: str) -> None:
        raise AssertionError(f"a writer rings no bells: {bell}")

    async def follow(self, run_id: str) -> None:
        raise AssertionError(f"a writer follows nobody: {run_id}")

    def leave(self, run_id: str) -> None:
        raise AssertionError(f"a writer follows nobody: {run_id}")

    async def erase(self, run_ids: Sequence[str]) -> None:
        pass

    async def has(self, count: int) -> None:
        """Wait until there are so many pieces."""
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.pieces) < count:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def tape() -> Tape:
    return Tape()


@pytest.fixture
def writer(tape: Tape) -> LiveWriter:
    hub = Hub()
    hub.link = tape
    return LiveWriter(hub, "run_1", "message.delta", "msg_1", 4)


async def test_the_first_piece_goes_out_at_once(tape: Tape, writer: LiveWriter) -> None:
    writer.write("Hel")

    assert tape.pieces == ["Hel"]


async def test_pieces_that_wait_together_go_out_together(tape: Tape, writer: LiveWriter) -> None:
    for piece in ("Hel", "lo", ", ", "world"):
        writer.write(piece)
    assert tape.pieces == ["Hel"]

    began = asyncio.get_running_loop().time()
    await tape.has(2)

    assert tape.pieces == ["Hel", "lo, world"]
    assert asyncio.get_running_loop().time() - began >= LINGER_S / 2


async def test_a_kibibyte_does_not_wait(tape: Tape, writer: LiveWriter) -> None:
    writer.write("a")
    writer.write("b" * (PIECE_CHARS - 1))
    assert tape.pieces == ["a"]

    writer.write("c")

    assert tape.pieces == ["a", "b" * (PIECE_CHARS - 1) + "c"]


async def test_what_comes_after_a_pause_goes_out_at_once(tape: Tape, writer: LiveWriter) -> None:
    writer.write("Hel")
    writer.write("lo")
    await tape.has(2)
    assert writer._timer is not None
    writer._timer.cancel()
    writer._linger()  # The time is up, and nothing waits.

    writer.write("!")

    assert tape.pieces == ["Hel", "lo", "!"]


async def test_closing_sends_what_waits_and_says_that_nothing_more_comes(
    tape: Tape, writer: LiveWriter
) -> None:
    writer.write("Hel")
    writer.write("lo")

    writer.close()

    assert tape.pieces == ["Hel", "lo"]
    assert tape.closed_texts == ["Hello"]


async def test_a_text_that_was_never_begun_sends_nothing(tape: Tape, writer: LiveWriter) -> None:
    writer.close()

    assert tape.pieces == []
