"""Circuits, in memory and in Redis: the same rules, by the same clock."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from milepost.providers.cache_redis import connect
from milepost.providers.circuits import (
    CIRCUITS_MAX,
    FORGET_S,
    PROBE_WAIT_S,
    Circuits,
    Entry,
    InProcessCircuits,
    Tolerance,
)
from milepost.providers.circuits_redis import CIRCUIT_PREFIX, RedisCircuits
from milepost.providers.redis_asking import Asking
from tests.clock import Clock
from tests.providers.redis_stubs import (
    PATIENT_S,
    deaf_server,
    patient_asking,
    patient_client,
    relaying,
    scripted_server,
)

Make = Callable[[Tolerance], Circuits]

DEFAULT = Tolerance()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    redis = patient_client(redis_url)
    yield redis
    await redis.aclose()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def name() -> str:
    """A name of this test alone: the server is shared."""
    return f"{uuid.uuid4().hex}/model"


def in_redis(redis: Redis, clock: Clock, tolerance: Tolerance = DEFAULT) -> RedisCircuits:
    local = InProcessCircuits(tolerance, clock=clock)
    return RedisCircuits(redis, patient_asking(clock), local, tolerance, now_ms=clock.ms)


@pytest.fixture(params=["memory", "redis"])
async def make(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Make]:
    if request.param == "memory":
        yield lambda tolerance: InProcessCircuits(tolerance, clock=clock)
        return
    redis = patient_client(request.getfixturevalue("redis_url"))
    yield lambda tolerance: in_redis(redis, clock, tolerance)
    await redis.aclose()


async def opened(circuits: Circuits, name: str, failures: int = 3) -> None:
    for _ in range(failures):
        await circuits.fail(name)


async def test_it_opens_with_the_third_failure_in_a_row_for_a_minute(
    make: Make, name: str, clock: Clock
) -> None:
    circuits = make(DEFAULT)

    await opened(circuits, name, failures=2)
    after_two = await circuits.enter(name)
    await circuits.fail(name)
    clock.now += 20

    assert after_two == Entry()
    assert await circuits.enter(name) == Entry(wait_s=40)


async def test_a_success_in_between_begins_the_count_anew(make: Make, name: str) -> None:
    circuits = make(DEFAULT)

    await opened(circuits, name, failures=2)
    await circuits.succeed(name)
    await opened(circuits, name, failures=2)

    assert await circuits.enter(name) == Entry()


async def test_after_the_cooldown_one_caller_probes_and_the_others_wait(
    make: Make, name: str, clock: Clock
) -> None:
    circuits = make(DEFAULT)
    await opened(circuits, name)
    clock.now += 60

    entries = await asyncio.gather(*(circuits.enter(name) for _ in range(5)))

    assert [bool(entry.probe) for entry in entries].count(True) == 1
    assert [entry.wait_s for entry in entries if not entry.probe] == [PROBE_WAIT_S] * 4


async def test_a_probe_that_succeeds_closes_the_circuit(
    make: Make, name: str, clock: Clock
) -> None:
    circuits = make(DEFAULT)
    await opened(circuits, name)
    clock.now += 60
    await circuits.enter(name)

    await circuits.succeed(name)

    assert await circuits.enter(name) == Entry()


async def test_a_probe_that_fails_opens_it_for_another_minute(
    make: Make, name: str, clock: Clock
) -> None:
    circuits = make(DEFAULT)
    await opened(circuits, name)
    clock.now += 60
    await circuits.enter(name)

    await circuits.fail(name)
    during = await circuits.enter(name)
    clock.now += 60
    after = await circuits.enter(name)

    assert during == Entry(wait_s=60)
    assert after.probe


async def test_a_probe_that_leaves_lets_the_next_one_try(
    make: Make, name: str, clock: Clock
) -> None:
    circuits = make(DEFAULT)
    await opened(circuits, name)
    clock.now += 60
    probe = await circuits.enter(name)

    await circuits.leave(name, Entry())
    still_probed = await circuits.enter(name)
    await circuits.leave(name, probe)

    assert not still_probed.probe
    assert (await circuits.enter(name)).probe


async def test_a_probe_whose_caller_died_lapses(make: Make, name: str, clock: Clock) -> None:
    circuits = make(DEFAULT)
    await opened(circuits, name)
    clock.now += 60
    await circuits.enter(name)

    clock.now += 59
    before = await circuits.enter(name)
    clock.now += 1

    assert before == Entry(wait_s=1)
    assert (await circuits.enter(name)).probe


async def test_a_call_that_began_before_it_opened_prolongs_nothing(
    make: Make, name: str, clock: Clock
) -> None:
    circuits = make(DEFAULT)
    await opened(circuits, name)
    clock.now += 50

    await circuits.fail(name)

    assert await circuits.enter(name) == Entry(wait_s=10)


async def test_how_much_is_tolerated_can_be_said(make: Make, name: str) -> None:
    circuits = make(Tolerance(max_failures=1, cooldown_s=5))

    await circuits.fail(name)

    assert await circuits.enter(name) == Entry(wait_s=5)


async def test_names_do_not_count_for_each_other(make: Make, name: str) -> None:
    circuits = make(DEFAULT)

    await opened(circuits, name)

    assert await circuits.enter(name + "-mini") == Entry()


async def test_failures_long_ago_are_forgotten(name: str, clock: Clock) -> None:
    circuits = InProcessCircuits(clock=clock)
    await opened(circuits, name, failures=2)

    clock.now += FORGET_S + 60
    await circuits.fail(name)

    assert await circuits.enter(name) == Entry()


async def test_only_so_many_circuits_are_kept(clock: Clock) -> None:
    circuits = InProcessCircuits(Tolerance(max_failures=1), clock=clock)

    for n in range(CIRCUITS_MAX + 1):
        await circuits.fail(f"v/{n}")

    assert await circuits.enter("v/0") == Entry()
    assert (await circuits.enter("v/1")).wait_s == 60


async def test_all_processes_share_a_circuit_and_its_only_probe(
    redis: Redis, name: str, clock: Clock
) -> None:
    here, there = in_redis(redis, clock), in_redis(redis, clock)
    await opened(here, name, failures=2)
    await there.fail(name)
    open_here = await here.enter(name)
    clock.now += 60

    entries = [await here.enter(name), await there.enter(name)]

    assert open_here.wait_s == 60
    assert [bool(entry.probe) for entry in entries] == [True, False]


async def test_a_probe_that_is_cancelled_before_it_knows_lets_the_next_one_try(
    redis_url: str, redis: Redis, name: str, clock: Clock
) -> None:
    async with relaying(redis_url) as relay, patient_client(relay.url) as relayed:
        circuits = in_redis(relayed, clock)
        await opened(circuits, name)
        await circuits.enter(name)  # Now the server knows the script.
        clock.now += 60
        relay.holds = True
        entering = asyncio.create_task(circuits.enter(name))
        await relay.held.wait()

        relay.holds = False
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering

        assert (await in_redis(redis, clock).enter(name)).probe


async def test_the_server_s_clock_counts_and_the_server_forgets(redis: Redis, name: str) -> None:
    circuits = RedisCircuits(redis, Asking(within_s=PATIENT_S), InProcessCircuits())

    await opened(circuits, name)

    assert 59 < (await circuits.enter(name)).wait_s <= 60
    assert 3_600_000 < await redis.pttl(CIRCUIT_PREFIX + name) <= 3_660_000


async def test_without_redis_each_process_counts_for_itself(
    unused_tcp_port: int, name: str, clock: Clock
) -> None:
    redis = connect(f"redis://127.0.0.1:{unused_tcp_port}/0")
    circuits = in_redis(redis, clock)

    await opened(circuits, name)
    open_ = await circuits.enter(name)
    clock.now += 60
    probe = await circuits.enter(name)
    await circuits.leave(name, probe)
    again = await circuits.enter(name)
    await circuits.succeed(name)

    assert open_ == Entry(wait_s=60)
    assert probe.probe
    assert again.probe
    assert await circuits.enter(name) == Entry()
    await redis.aclose()


@pytest.mark.parametrize("said", [b":7\r\n", b"*0\r\n", b"*2\r\n+no\r\n+more\r\n"])
async def test_an_answer_of_another_kind_is_none(name: str, clock: Clock, said: bytes) -> None:
    async with scripted_server(said) as url, patient_client(url) as redis:
        assert await in_redis(redis, clock).enter(name) == Entry()


async def test_a_silent_redis_is_waited_for_once_and_told_of_once(name: str, clock: Clock) -> None:
    told: list[Exception | None] = []
    async with deaf_server() as url:
        redis = connect(url)
        asking = Asking(clock=clock, on_change=told.append)
        circuits = RedisCircuits(redis, asking, InProcessCircuits(clock=clock))
        loop = asyncio.get_running_loop()
        began = loop.time()

        for _ in range(1_000):
            await circuits.enter(name)

        took_s = loop.time() - began
        await redis.aclose()
    assert took_s < 2
    assert len(told) == 1


async def test_redis_is_tried_again_after_its_rest(
    redis_url: str, unused_tcp_port: int, clock: Clock
) -> None:
    told: list[Exception | None] = []
    asking = Asking(clock=clock, on_change=told.append, within_s=PATIENT_S)
    away, here = connect(f"redis://127.0.0.1:{unused_tcp_port}/0"), patient_client(redis_url)

    first = await asking.ask(away.ping)
    resting = await asking.ask(here.ping)
    clock.now += 5
    after = await asking.ask(here.ping)

    assert (first, resting, after) == (None, None, True)
    assert [type(each) for each in told][1:] == [type(None)]
    await away.aclose()
    await here.aclose()


@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["enter", "succeed", "fail", "leave"]), st.sampled_from([0, 7, 30, 60])
        ),
        max_size=30,
    )
)
async def test_memory_and_redis_agree_whatever_happens(
    redis_url: str, steps: list[tuple[str, int]]
) -> None:
    clock, name, redis = Clock(), uuid.uuid4().hex, patient_client(redis_url)
    both: list[Circuits] = [InProcessCircuits(clock=clock), in_redis(redis, clock)]
    probes = [Entry(), Entry()]

    for step, pause_s in steps:
        clock.now += pause_s
        seen = []
        for at, circuits in enumerate(both):
            match step:
                case "enter":
                    entry = await circuits.enter(name)
                    probes[at] = entry if entry.probe else probes[at]
                    seen.append((entry.wait_s, bool(entry.probe)))
                case "succeed":
                    await circuits.succeed(name)
                case "fail":
                    await circuits.fail(name)
                case _:
                    await circuits.leave(name, probes[at])

        assert len(set(seen)) <= 1
    await redis.aclose()
