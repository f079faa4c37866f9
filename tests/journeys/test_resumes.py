"""Connections cut at every kind of frame, at two servers, with Redis emptied: all is seen once."""

from pathlib import Path

import pytest

from milepost.api import stream
from tests.journeys.cut_client import Cut
from tests.journeys.resume_storm import fleet, storm
from tests.stubs.directed_model import DirectedModel

CUTS = 1_000
EACH_MIN = 20
HEARTBEAT_S = 0.02
REDIS_DATABASE = 9


@pytest.mark.timeout(300)
async def test_a_thousand_cuts_lose_and_double_nothing(
    postgres_database: str,
    redis_url: str,
    model: DirectedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", HEARTBEAT_S)
    own_redis = f"{redis_url.rpartition('/')[0]}/{REDIS_DATABASE}"

    async with fleet(postgres_database, own_redis, model, tmp_path) as servers:
        toll = await storm(servers, cuts=CUTS, seed=1)

    assert toll.cuts.total() >= CUTS
    assert min(toll.cuts[cut] for cut in Cut) >= EACH_MIN, toll
    assert toll.flushes > 10
