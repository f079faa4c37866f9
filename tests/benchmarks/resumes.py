"""`python -m tests.benchmarks.resumes --cuts 10000`: streams that are resumed so many times.

Clients follow runs at two servers over connections that they cut at every kind of frame, while
Redis is emptied again and again. It ends at the first event that is lost or doubled, and else tells
what was done.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from milepost.api import stream
from tests import devservices
from tests.benchmarks import systems
from tests.journeys.resume_storm import Toll, fleet, storm
from tests.stubs.directed_model import directed_model

HEARTBEAT_S = 0.02


def main(arguments: Sequence[str]) -> None:
    """Cut as often as the arguments say, and print the toll."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.resumes", description=__doc__)
    parser.add_argument("--cuts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    stream.HEARTBEAT_S = HEARTBEAT_S  # So that there are comments to cut behind.
    with (
        devservices.postgres() as postgres,
        devservices.redis() as redis,
        devservices._scratch_directory(in_memory=True) as folder,
    ):
        assert postgres, "there is no Postgres on this machine"
        assert redis, "there is no Valkey on this machine"
        with systems.database(postgres.url) as database:
            began = time.monotonic()
            urls = (database.url, f"{redis.url.rpartition('/')[0]}/9")
            toll = asyncio.run(_storm(urls, folder, options.cuts, options.seed))
            print(_shown(toll, time.monotonic() - began, options.seed))


async def _storm(urls: tuple[str, str], folder: Path, cuts: int, seed: int) -> Toll:
    async with directed_model() as model, fleet(*urls, model, folder) as servers:
        return await storm(servers, cuts=cuts, seed=seed)


def _shown(toll: Toll, took_s: float, seed: int) -> str:
    summary = (
        f"{toll.cuts.total():,} connections cut in {took_s:.0f} s (seed {seed}), Redis emptied"
        f" {toll.flushes:,} times: {toll.clients:,} clients of {toll.runs:,} runs have each event"
        " once, and each text to the letter"
    )
    return "\n".join((summary, *(f"{n:>9,} {cut.value}" for cut, n in toll.cuts.most_common())))


if __name__ == "__main__":
    main(sys.argv[1:])
