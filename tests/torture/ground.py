"""What a campaign stands on: real servers, ways to them that can break, and who works where."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import devservices, pgbouncer
from tests.torture.fleet import Member
from tests.torture.plan import Plan
from tests.torture.proxy import Network, network
from tests.torture.servers import ServerProcess, postgres, valkey

SLOTS = 100
POOL_MAX = 5
SESSIONS = 20  # Of the pooler, for eight processes that may want five each.

AGENTS = """
[[agents]]
name = "tortured"
model = "openai/directed"
instructions = "Do as you are told."
tools = ["charge", "reserve", "look_up", "refund", "block"]

[[agents]]
name = "torturing"
model = "openai/directed"
instructions = "Have others do as you are told."
tools = ["agent:tortured"]
"""


@dataclass(slots=True)
class Ground:
    """The database's address, the servers that can be killed, and the ways that can break.

    `way_in` is where its members find the database, be it by way of a pooler.
    """

    url: str
    origin: str
    way_in: str
    database: ServerProcess | None = None
    redis: ServerProcess | None = None
    networks: dict[str, Network] = field(default_factory=dict)


@asynccontextmanager
async def ground(plan: Plan, folder: Path) -> AsyncIterator[Ground | None]:
    """Give servers of the campaign's own; None where this machine lacks them."""
    if plan.database == "sqlite":
        url = f"sqlite:///{folder}/milepost.db"
        yield Ground(url, "SQLite", url)
        return
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(postgres())
        redis = await stack.enter_async_context(valkey())
        if database is None or redis is None or (plan.pooled and pgbouncer.program() is None):
            yield None
            return
        durability = "syncs every commit" if database.durable else "syncs nothing"
        origin = f"Postgres from {database.origin}, which {durability}"
        way_in = database.url
        if plan.pooled:
            origin = f"{origin}, behind {pgbouncer.version()} in transaction mode"
            way_in = stack.enter_context(pgbouncer.bounced(database.url, SESSIONS))
        ways = {
            "a worker's way to Postgres": way_in,
            "an API's way to Postgres": way_in,
            "an API's way to Redis": redis.url,
        }
        networks = {
            name: await stack.enter_async_context(network(url)) for name, url in ways.items()
        }
        yield Ground(database.url, origin, way_in, database, redis, networks)


def members(plan: Plan, ground: Ground, model_url: str, folder: Path) -> list[Member]:
    """Return who works on this ground: one process on SQLite, several on Postgres."""
    environment = _environment(plan, ground, model_url, folder)
    if ground.database is None or ground.redis is None:
        return [_api("server", environment, SLOTS)]
    environment["MILEPOST_REDIS_URL"] = ground.redis.url
    apis = [_api(f"api-{number}", environment, 0) for number in range(1, plan.apis + 1)]
    workers = [_worker(f"worker-{number}", environment) for number in range(1, plan.workers + 1)]
    _send_by(ground, workers[0], "a worker's way to Postgres", "MILEPOST_DATABASE_URL")
    _send_by(ground, apis[0], "an API's way to Postgres", "MILEPOST_DATABASE_URL")
    _send_by(ground, apis[-1], "an API's way to Redis", "MILEPOST_REDIS_URL")
    # One clock is fast and one is slow: leases must not care.
    workers[-1].skew_s, workers[-2].skew_s = plan.skew_s, -plan.skew_s
    return [*apis, *workers]


def url_of(member: Member) -> str | None:
    """Return where a member answers; None for a worker."""
    port = member.environment.get("MILEPOST_PORT")
    return f"http://127.0.0.1:{port}" if port else None


def probe_of(member: Member) -> str:
    """Return where a member answers probes; a worker, too, answers these."""
    return url_of(member) or f"http://127.0.0.1:{member.environment['MILEPOST_PROBE_PORT']}"


def _environment(plan: Plan, ground: Ground, model_url: str, folder: Path) -> dict[str, str]:
    agents = folder / "agents.toml"
    agents.write_text(AGENTS)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LEDGER": str(folder / "ledger"),
        "OPENAI_BASE_URL": model_url,
        "MILEPOST_DATABASE_URL": ground.way_in,
        "MILEPOST_MIGRATE": "false",
        "MILEPOST_DEMO": "false",
        "MILEPOST_AGENTS": str(agents),
        "MILEPOST_TOOLS": str(Path(__file__).with_name("ledger_tools.py")),
        "MILEPOST_LEASE_S": str(plan.lease_s),
        "MILEPOST_SWEEP_S": str(plan.sweep_s),
        "MILEPOST_DRAIN_S": "10",
        "MILEPOST_POOL_MAX": str(POOL_MAX),
        "MILEPOST_LOG_LEVEL": "warning",
        "MILEPOST_EGRESS_ALLOW": "127.0.0.1",
    }


def _api(name: str, environment: dict[str, str], slots: int) -> Member:
    own = {"MILEPOST_PORT": str(devservices._free_port()), "MILEPOST_SLOTS": str(slots)}
    return Member(name, ("serve",), {**environment, **own})


def _worker(name: str, environment: dict[str, str]) -> Member:
    own = {"MILEPOST_PROBE_PORT": str(devservices._free_port()), "MILEPOST_SLOTS": str(SLOTS)}
    return Member(name, ("worker",), {**environment, **own})


def _send_by(ground: Ground, member: Member, way: str, variable: str) -> None:
    member.environment[variable] = ground.networks[way].url
    member.network = way
