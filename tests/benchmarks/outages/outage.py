"""One row of the table: what is broken, and what it came to when that was done again and again."""

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from tests.benchmarks.outages.site import Site

AFTER_S = 0.7
REST_S = (0.1, 0.6)
STRIKE_S_MAX = 150.0

Besides = Mapping[str, float]
Strike = Callable[[Site], Awaitable[Besides]]


def _nothing(_: Site) -> AbstractAsyncContextManager[None]:
    return contextlib.nullcontext()


@dataclass(frozen=True, slots=True)
class Outage:
    """What is broken and mended again by `strike`, which returns what else it measured, by name.

    `prepared` holds while it is done again and again; `share` of the times is enough for one that
    takes long.
    """

    name: str
    strike: Strike
    prepared: Callable[[Site], AbstractAsyncContextManager[None]] = _nothing
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Often:
    """How often each thing is broken: so many times, or for as long as `row_s`."""

    times: int
    row_s: float


@dataclass(slots=True)
class Measured:
    """`pauses` are how long the client that waited longest was told nothing, each time."""

    name: str
    pauses: list[float] = field(default_factory=list)
    besides: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    told: Counter[str] = field(default_factory=Counter)
    runs: int = 0


async def measure(at: Site, outage: Outage, often: Often) -> Measured:
    """Strike again and again, one after the other, each time from quiet to quiet."""
    measured = Measured(outage.name)
    async with outage.prepared(at):
        await at.crowd.hear()
        told, ended = _told(at), len(at.crowd.ended)
        until_s = time.monotonic() + often.row_s
        while len(measured.pauses) < often.times * outage.share:
            if measured.pauses and time.monotonic() > until_s:
                break
            await asyncio.sleep(at.chance.uniform(*REST_S))
            at.crowd.mark()
            async with asyncio.timeout(STRIKE_S_MAX):
                besides = await outage.strike(at)
            await at.crowd.hear()
            await asyncio.sleep(AFTER_S)
            await at.crowd.hear()
            measured.pauses.append(at.crowd.longest_s)
            for name, seconds in besides.items():
                measured.besides[name].append(seconds)
        measured.told = _told(at) - told
        measured.runs = len(at.crowd.ended) - ended
    return measured


def _told(at: Site) -> Counter[str]:
    return at.crowd.told + at.doors.answers
