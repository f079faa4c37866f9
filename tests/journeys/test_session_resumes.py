"""Sessions' streams, cut at every kind of frame, at two servers, with Redis emptied meanwhile."""

import asyncio
from pathlib import Path
from random import Random

import orjson
import pytest

from milepost.api import session_stream, stream
from tests.journeys.cut_client import Cut, CutClient
from tests.journeys.resume_storm import CALL, WORDS, Fleet, Toll, fleet, storm
from tests.live.session_client import SessionClient
from tests.stubs.directed_model import DirectedModel

CUTS = 500
EACH_MIN = 10
HEARTBEAT_S = 0.02
REDIS_DATABASE = 10
RUNS = 4
CLIENTS = 3


@pytest.mark.timeout(300)
async def test_hundreds_of_cuts_lose_and_double_nothing_of_a_session(
    postgres_database: str,
    redis_url: str,
    model: DirectedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (stream, session_stream):
        monkeypatch.setattr(module, "HEARTBEAT_S", HEARTBEAT_S)
    own_redis = f"{redis_url.rpartition('/')[0]}/{REDIS_DATABASE}"

    async with fleet(postgres_database, own_redis, model, tmp_path) as servers:
        toll = await storm(servers, cuts=CUTS, seed=2, follow=followed)

    assert toll.cuts.total() >= CUTS
    assert min(toll.cuts[cut] for cut in Cut) >= EACH_MIN, toll
    assert toll.flushes > 5


async def followed(fleet: Fleet, chance: Random, toll: Toll) -> None:
    """Queue runs in a session; follow it while it is written and once more when it is over."""
    service = chance.choice((fleet.one, fleet.other))
    async with service.client() as http:
        session = (await http.post("/v1/sessions", json={})).json()["id"]
        for _ in range(RUNS):
            said = chance.choice([CALL, f"slowly 2\n{' '.join([WORDS] * chance.randint(3, 9))}"])
            body = {"agent": "parrot", "input": said, "session_id": session}
            (await http.post("/v1/runs", json=body)).raise_for_status()
        path = f"/v1/sessions/{session}/events"
        read: list[SessionClient] = []
        for _ in range(2):
            followers = [
                CutClient(
                    fleet.ports,
                    f"{path}?until=idle",
                    Random(chance.random()),
                    toll.cuts,
                    SessionClient(),
                    RUNS,
                )
                for _ in range(CLIENTS)
            ]
            read += await asyncio.gather(*(follower.follow() for follower in followers))
        log = await http.get(path, headers={"accept": "application/x-ndjson"})
    events = [orjson.loads(line) for line in log.text.split("\n") if line]
    assert [event["type"] for event in events].count("run.completed") == RUNS
    for client in read:
        assert client.bodies == events
    toll.runs += RUNS
    toll.clients += len(read)
