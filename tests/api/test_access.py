"""Who may call what: keys, their scopes, and on whose behalf."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import httpx2
import pytest

from milepost.api.access import DEFAULT_TENANT, KeyAccess, OpenAccess, OpenUntilKeyed, Principal
from milepost.core.errors import ForbiddenError, UnauthorizedError
from milepost.runtime.credentials import (
    DAY_MS,
    SCOPES,
    KeySpec,
    Scope,
    issue,
    key_of,
    new_secret,
    revoke,
)
from milepost.store.address import parse_address
from milepost.store.engine import DatabaseUnavailableError, Engine
from milepost.store.migrate import migrate
from milepost.store.opening import open_engine
from milepost.store.store import Store
from milepost.store.work import Work
from tests.api.making import made, refusal
from tests.api.serving import KeyedService
from tests.api.surface import NOTHING, SURFACE, call
from tests.store.breaking import BreakingEngine
from tests.telemetry.spoken import spoken

R = TypeVar("R")

NOW_MS = 1_700_000_000_000
SPEC = KeySpec(name="ci", scopes=["runs:read"], subject="robot", expires_days=1)
FOREVER = SPEC.model_copy(update={"expires_days": None})


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    """A database without a service."""
    address = parse_address(database_url)
    migrate(address)
    engine = await open_engine(address, pool_max=2)
    yield engine
    await engine.close()


@pytest.fixture
def store(engine: Engine) -> Store:
    """A store without a service."""
    return Store(engine)


async def issued(store: Store, *, now_ms: int, spec: KeySpec = SPEC) -> str:
    """Make a key; return its text."""
    secret = new_secret()
    key = key_of(spec, secret, tenant="acme", key_id="key_1", now_ms=now_ms)
    await store.write(issue(key, actor="test", act_id="aud_1"))
    return secret


def bearing(key: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {key}".encode()}


async def test_every_endpoint_needs_a_key(keyed: KeyedService) -> None:
    stranger = await keyed.with_key(None)

    for endpoint in SURFACE:
        answer = await call(stranger, endpoint, NOTHING)
        assert (str(endpoint), *refusal(answer)) == (str(endpoint), 401, "missing_key")
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_no_scope_but_its_own_opens_an_endpoint(keyed: KeyedService) -> None:
    holders: dict[tuple[str, ...], httpx2.AsyncClient] = {}
    for scopes in {endpoint.scopes for endpoint in SURFACE}:
        others = [scope for scope in SCOPES if scope not in (*scopes, "admin")]
        holders[scopes] = await keyed.holding(*others)

    for endpoint in SURFACE:
        answer = await call(holders[endpoint.scopes], endpoint, NOTHING)
        assert (str(endpoint), *refusal(answer)) == (str(endpoint), 403, "missing_scope")


async def test_its_own_scope_is_enough_for_an_endpoint(keyed: KeyedService) -> None:
    holders: dict[str, httpx2.AsyncClient] = {scope: await keyed.holding(scope) for scope in SCOPES}

    for endpoint in SURFACE:
        for scope in endpoint.scopes:
            answer = await call(holders[scope], endpoint, NOTHING)
            assert answer.status_code not in {401, 403}, (str(endpoint), scope, answer.text)


async def test_only_a_bearer_key_counts(store: Store) -> None:
    access = KeyAccess(store, lambda: NOW_MS)

    for sent in (b"Basic bXA6", b"Bearer", b"Bearer  ", b"mp_abc", b""):
        with pytest.raises(UnauthorizedError) as refused:
            await access.admit({b"authorization": sent})
        assert refused.value.code == "missing_key"


async def test_a_key_that_nobody_made_is_refused(keyed: KeyedService) -> None:
    answer = await (await keyed.with_key("mp_made_up")).get("/v1/runs")

    assert refusal(answer) == (401, "invalid_key")


async def test_a_key_works_whatever_the_scheme_is_written_like(keyed: KeyedService) -> None:
    key = await made(keyed.acme, "/v1/keys", {"name": "ci", "scopes": ["runs:read"]})
    stranger = await keyed.with_key(None)

    answer = await stranger.get("/v1/runs", headers={"authorization": f"bearer {key['key']}"})

    assert answer.status_code == 200


async def test_liveness_is_told_without_a_key(keyed: KeyedService) -> None:
    stranger = await keyed.with_key(None)

    for path in ("/healthz", "/readyz"):
        assert (await stranger.get(path)).status_code == 200
    assert refusal(await stranger.get("/metrics")) == (401, "missing_key")


async def test_no_everyday_key_reads_what_all_tenants_do(keyed: KeyedService) -> None:
    others = [scope for scope in SCOPES if scope not in {"metrics:read", "admin"}]
    everyday, scraper = await keyed.holding(*others), await keyed.holding("metrics:read")

    assert refusal(await everyday.get("/metrics")) == (403, "missing_scope")
    assert "milepost_runs" in (await scraper.get("/metrics")).text
    assert "milepost_runs" in (await keyed.acme.get("/metrics")).text


async def test_whoever_is_on_the_machine_reads_metrics_without_keys(
    client: httpx2.AsyncClient,
) -> None:
    assert "milepost_runs" in (await client.get("/metrics")).text


async def test_a_key_says_who_calls(store: Store) -> None:
    key = await issued(store, now_ms=NOW_MS + 10_000 * DAY_MS)

    principal = await KeyAccess(store, lambda: NOW_MS).admit(bearing(key))

    assert principal == Principal("acme", "key_1", "ci", frozenset({"runs:read"}), "robot")


async def test_a_key_that_has_expired_is_refused(store: Store) -> None:
    key = await issued(store, now_ms=NOW_MS)

    with pytest.raises(UnauthorizedError) as refused:
        await KeyAccess(store, lambda: NOW_MS).admit(bearing(key))

    assert refused.value.code == "invalid_key"


async def test_a_key_revoked_elsewhere_is_known_for_ten_seconds_at_most(store: Store) -> None:
    now_ms = [NOW_MS]
    access = KeyAccess(store, lambda: now_ms[0])
    key = await issued(store, now_ms=NOW_MS, spec=SPEC.model_copy(update={"expires_days": None}))
    await access.admit(bearing(key))
    await store.write(revoke("acme", "key_1", actor="test", act_id="aud_2", now_ms=NOW_MS))

    now_ms[0] += 9_999
    await access.admit(bearing(key))
    now_ms[0] += 1

    with pytest.raises(UnauthorizedError):
        await access.admit(bearing(key))


async def test_a_key_revoked_elsewhere_is_not_known_for_longer_when_the_clock_is_set_back(
    store: Store,
) -> None:
    now_ms = [NOW_MS]
    access = KeyAccess(store, lambda: now_ms[0])
    key = await issued(store, now_ms=NOW_MS, spec=FOREVER)
    await access.admit(bearing(key))
    await store.write(revoke("acme", "key_1", actor="test", act_id="aud_2", now_ms=NOW_MS))

    now_ms[0] -= 3_600_000

    with pytest.raises(UnauthorizedError):
        await access.admit(bearing(key))


class SlowToAnswer(Store):
    """A store whose answers take their way while something else happens."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.asked, self.arrives = asyncio.Event(), asyncio.Event()

    async def read(self, work: Work[R]) -> R:
        found = await super().read(work)
        self.asked.set()
        await self.arrives.wait()
        return found


async def test_a_key_that_is_revoked_while_it_is_looked_up_is_refused_from_the_next_request_on(
    engine: Engine,
) -> None:
    store = SlowToAnswer(engine)
    access = KeyAccess(store, lambda: NOW_MS)
    key = await issued(store, now_ms=NOW_MS, spec=FOREVER)
    under_way = asyncio.create_task(access.admit(bearing(key)))
    await store.asked.wait()
    await store.write(revoke("acme", "key_1", actor="test", act_id="aud_2", now_ms=NOW_MS))
    access.forget()
    store.arrives.set()
    await under_way

    with pytest.raises(UnauthorizedError):
        await access.admit(bearing(key))


async def test_what_is_remembered_of_keys_has_a_bound(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.api.access.REMEMBERED_MAX", 0)
    access = KeyAccess(store, lambda: NOW_MS)
    key = await issued(store, now_ms=NOW_MS, spec=SPEC.model_copy(update={"expires_days": None}))
    await access.admit(bearing(key))
    await store.write(revoke("acme", "key_1", actor="test", act_id="aud_2", now_ms=NOW_MS))

    with pytest.raises(UnauthorizedError):
        await access.admit(bearing(key))


LOCAL = [
    {b"host": b"localhost:8000"},
    {b"host": b"127.0.0.1"},
    {b"host": b"[::1]:8000"},
    {b"host": b"LOCALHOST:8000", b"origin": b"http://LOCALHOST:8000"},
    {b"host": b"localhost:8000", b"sec-fetch-site": b"same-origin"},
]
FOREIGN = {
    "misdirected_host": [
        {},
        {b"host": b"evil.example"},
        {b"host": b"localhost.evil.example:8000"},
        {b"host": b"192.168.0.1:8000"},
        {b"host": b"[::2]:8000"},
    ],
    "foreign_origin": [
        {b"host": b"localhost:8000", b"origin": b"https://evil.example"},
        {b"host": b"localhost:8000", b"origin": b"http://localhost:3000"},
        {b"host": b"localhost:8000", b"origin": b"null"},
        {b"host": b"localhost:8000", b"sec-fetch-site": b"cross-site"},
    ],
}


@pytest.mark.parametrize("headers", LOCAL)
async def test_without_keys_this_machine_may_do_everything(headers: dict[bytes, bytes]) -> None:
    principal = await OpenAccess().admit(headers)

    assert (principal.tenant, principal.scopes) == (DEFAULT_TENANT, frozenset(SCOPES))


@pytest.mark.parametrize(
    ("code", "headers"), [(code, headers) for code, each in FOREIGN.items() for headers in each]
)
async def test_without_keys_no_other_page_gets_in(code: str, headers: dict[bytes, bytes]) -> None:
    with pytest.raises(ForbiddenError) as refused:
        await OpenAccess().admit(headers)

    assert refused.value.code == code


def test_an_administrator_may_do_everything() -> None:
    administrator = Principal("acme", "key_1", "ann", frozenset({"admin"}))
    nobody = Principal("acme", "key_2", "bob", frozenset())

    assert [scope for scope in SCOPES if _may(administrator, scope)] == [*SCOPES]
    assert [scope for scope in SCOPES if _may(nobody, scope)] == []


def _may(principal: Principal, scope: Scope) -> bool:
    try:
        principal.require(scope)
    except ForbiddenError:
        return False
    return True


def test_who_lacks_a_scope_is_told_which() -> None:
    reader = Principal("acme", "key_1", "ann", frozenset({"runs:read"}))

    with pytest.raises(ForbiddenError, match="needs the scope runs:write, and the key has runs:re"):
        reader.require("runs:write")


@pytest.mark.parametrize(
    ("subject", "scopes", "user", "acts_as"),
    [
        ("ann", [], None, "ann"),
        ("ann", [], "ann", "ann"),
        (None, [], None, None),
        (None, ["users:act_as"], "bob", "bob"),
        ("ann", ["users:act_as"], "bob", "bob"),
        ("ann", ["admin"], "bob", "bob"),
        (None, ["admin"], "bob", "bob"),
    ],
)
def test_a_caller_acts_as_itself_or_as_whom_it_may(
    subject: str | None, scopes: list[str], user: str | None, acts_as: str | None
) -> None:
    principal = Principal("acme", "key_1", "key", frozenset(scopes), subject)

    assert principal.acting_as(user) == acts_as


@pytest.mark.parametrize("subject", [None, "ann"])
def test_a_caller_does_not_act_as_somebody_else(subject: str | None) -> None:
    with pytest.raises(ForbiddenError) as refused:
        Principal("acme", "key_1", "key", frozenset({"runs:write"}), subject).acting_as("bob")

    assert refused.value.code == "missing_scope"


@pytest.fixture
def now_ms() -> list[int]:
    """A clock that the test turns."""
    return [NOW_MS]


@pytest.fixture
def closing(store: Store, now_ms: list[int]) -> OpenUntilKeyed:
    """An open service's access."""
    return OpenUntilKeyed(store, lambda: now_ms[0])


HERE = {b"host": b"localhost:8000"}


async def test_a_key_closes_a_running_service_within_ten_seconds_and_for_good(
    store: Store, closing: OpenUntilKeyed, now_ms: list[int]
) -> None:
    key = await issued(store, now_ms=NOW_MS, spec=FOREVER)
    now_ms[0] += 9_999
    assert (await closing.admit(HERE)).id == "local"

    now_ms[0] += 1
    with pytest.raises(UnauthorizedError):
        await closing.admit(HERE)
    assert (await closing.admit({**HERE, **bearing(key)})).id == "key_1"

    await store.write(revoke("acme", "key_1", actor="test", act_id="aud_2", now_ms=NOW_MS))
    closing.forget()
    now_ms[0] += 10_000
    with pytest.raises(UnauthorizedError):
        await closing.admit(HERE)


async def test_an_outage_keeps_no_service_open_for_longer(store: Store, now_ms: list[int]) -> None:
    line = BreakingEngine(store.engine)
    closing = OpenUntilKeyed(Store(line), lambda: now_ms[0])
    await issued(store, now_ms=NOW_MS, spec=FOREVER)
    now_ms[0] += 10_000
    line.absences = 1

    with pytest.raises(DatabaseUnavailableError):
        await closing.admit(HERE)
    with pytest.raises(UnauthorizedError):
        await closing.admit(HERE)


async def test_a_clock_that_is_set_back_keeps_no_service_open(
    store: Store, closing: OpenUntilKeyed, now_ms: list[int]
) -> None:
    await issued(store, now_ms=NOW_MS, spec=FOREVER)

    now_ms[0] -= 3_600_000

    with pytest.raises(UnauthorizedError):
        await closing.admit(HERE)


async def test_a_closed_service_may_be_called_by_other_names(
    store: Store, closing: OpenUntilKeyed, now_ms: list[int]
) -> None:
    key = await issued(store, now_ms=NOW_MS, spec=FOREVER)
    now_ms[0] += 10_000

    assert (await closing.admit({b"host": b"milepost.example", **bearing(key)})).id == "key_1"


async def test_a_service_without_keys_stays_open_to_this_machine_alone(
    closing: OpenUntilKeyed, now_ms: list[int]
) -> None:
    now_ms[0] += 10_000

    assert (await closing.admit(HERE)).id == "local"
    with pytest.raises(ForbiddenError):
        await closing.admit({b"host": b"evil.example"})


async def test_whether_there_are_keys_is_not_asked_with_every_request(
    store: Store, closing: OpenUntilKeyed, now_ms: list[int]
) -> None:
    now_ms[0] += 10_000
    await closing.admit(HERE)
    await issued(store, now_ms=NOW_MS, spec=FOREVER)

    now_ms[0] += 9_999

    assert (await closing.admit(HERE)).id == "local"


async def test_a_key_that_nobody_looks_at_is_warned_about_once(
    closing: OpenUntilKeyed, caplog: pytest.LogCaptureFixture
) -> None:
    await closing.admit(HERE)
    for _ in range(3):
        await closing.admit({**HERE, **bearing("mp_abcdefgh")})

    [line] = spoken(caplog, "api")
    assert line == {
        "event": "keys are not asked for, since there is none: the one sent is ignored",
        "level": "warning",
    }


async def test_closing_is_told(
    store: Store,
    closing: OpenUntilKeyed,
    now_ms: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = await issued(store, now_ms=NOW_MS, spec=FOREVER)
    now_ms[0] += 10_000

    await closing.admit({**HERE, **bearing(key)})

    assert [line["event"] for line in spoken(caplog, "api")] == [
        "there is a key now: from here on callers need one"
    ]
