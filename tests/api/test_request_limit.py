"""How often a key may ask: told with every answer, and refused beyond it."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from milepost.api.request_limit import Allowance
from tests.api.serving import KeyedService, serving, serving_tenants, settings_for

PER_MINUTE = 8  # A key that is made for a tenant is asked for nothing else before a test begins.


@pytest.fixture
async def limited(database_url: str) -> AsyncIterator[KeyedService]:
    """A service that takes so many requests of each key."""
    async with serving_tenants(settings_for(database_url, requests_per_minute=PER_MINUTE)) as keyed:
        yield keyed


async def left_of(client: httpx2.AsyncClient) -> list[int]:
    """Use up what the key of this client has left; return what it was told of that."""
    told: list[int] = []
    while (answer := await client.get("/v1/runs")).status_code == 200:
        assert answer.headers["ratelimit-policy"] == f'"key";q={PER_MINUTE};w=60'
        told.append(_parts(answer)["r"])
    assert answer.status_code == 429
    return told


def _parts(answer: httpx2.Response) -> dict[str, int]:
    name, *parts = answer.headers["ratelimit"].split(";")
    assert name == '"key"'
    return {key: int(value) for key, _, value in (part.partition("=") for part in parts)}


async def test_a_key_is_told_what_it_has_left_and_refused_beyond_that(
    limited: KeyedService,
) -> None:
    reader = await limited.holding("runs:read")

    told = await left_of(reader)
    refused = await reader.get("/v1/runs")

    assert told == [*range(PER_MINUTE)][::-1]
    problem = refused.json()
    assert (refused.status_code, problem["code"], problem["retryable"]) == (
        429,
        "rate_limited",
        True,
    )
    assert _parts(refused)["r"] == 0
    assert 1 <= _parts(refused)["t"] <= 61
    assert 1 <= int(refused.headers["retry-after"]) <= 61
    assert refused.headers["x-should-retry"] == "true"


def test_who_has_something_left_is_told_of_a_window_and_who_has_not_of_the_wait() -> None:
    allowed = Allowance(PER_MINUTE, left=3, wait_s=0).headers
    refused = Allowance(PER_MINUTE, left=0, wait_s=12.1).headers

    assert dict(allowed)[b"ratelimit"] == b'"key";r=3;t=60'
    assert dict(refused)[b"ratelimit"] == b'"key";r=0;t=13'


async def test_another_key_has_requests_of_its_own(limited: KeyedService) -> None:
    reader, other = await limited.holding("runs:read"), await limited.holding("runs:read")
    await left_of(reader)

    answer = await other.get("/v1/runs")

    assert (answer.status_code, _parts(answer)["r"]) == (200, PER_MINUTE - 1)


async def test_what_is_refused_changes_nothing_and_a_refusal_of_another_kind_counts(
    limited: KeyedService,
) -> None:
    writer = await limited.holding("runs:write", "runs:read")
    missing = await writer.get("/v1/runs/run_missing")
    told = await left_of(writer)

    refused = await writer.post("/v1/runs", json={"agent": "demo", "input": "hello"})

    assert (missing.status_code, _parts(missing)["r"]) == (404, PER_MINUTE - 1)
    assert len(told) == PER_MINUTE - 1
    assert refused.status_code == 429
    assert (await limited.acme.get("/v1/runs")).json()["data"] == []


async def test_probes_and_those_whom_nobody_knows_are_not_counted(limited: KeyedService) -> None:
    nobody = await limited.with_key(None)

    probes = [await nobody.get("/healthz") for _ in range(PER_MINUTE + 1)]
    unknown = [await nobody.get("/v1/runs") for _ in range(PER_MINUTE + 1)]

    assert {answer.status_code for answer in probes} == {200}
    assert {answer.status_code for answer in unknown} == {401}
    assert not any("ratelimit" in answer.headers for answer in (*probes, *unknown))


async def test_without_keys_and_without_a_limit_nothing_is_told(database_url: str) -> None:
    settings = settings_for(database_url, requests_per_minute=1)
    async with serving(settings) as service, service.client() as client:
        answers = [await client.get("/v1/runs") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert "ratelimit" not in answers[-1].headers


async def test_with_a_redis_all_processes_count_together(
    postgres_database_url: str, redis_url: str
) -> None:
    settings = settings_for(
        postgres_database_url, redis_url=redis_url, requests_per_minute=PER_MINUTE
    )
    async with serving_tenants(settings) as one, serving_tenants(settings) as other:
        reader = await one.holding("runs:read")
        elsewhere = await other.with_key(reader.headers["authorization"].partition(" ")[2])
        told = await left_of(reader)

        assert told == [*range(PER_MINUTE)][::-1]
        assert (await elsewhere.get("/v1/runs")).status_code == 429
