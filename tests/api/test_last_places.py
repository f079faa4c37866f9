"""Two requests at once on Postgres for the last thing that a tenant may have: one gets it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import ModuleType

import pytest

from milepost.api import budgets as budgets_api
from milepost.api import secrets as secrets_api
from milepost.api import tool_sources as tool_sources_api
from milepost.api import webhooks as webhooks_api
from milepost.core.errors import ConflictError
from milepost.store import budgets, secrets, tool_sources, webhooks
from milepost.store.records import AuditRow
from milepost.store.tool_sources import ToolSourceRow
from milepost.store.work import Work
from tests.store.budgeting import a_budget
from tests.store.conftest import store_at
from tests.store.making import NOW_MS, an_id
from tests.store.making_webhooks import a_webhook
from tests.store.stepper import Contest, Raced, orders


def an_act(tenant: str) -> AuditRow:
    return AuditRow(an_id("aud"), tenant, "key_1", "thing.created", "thing", "{}", NOW_MS)


def a_webhook_of(tenant: str) -> Work[object]:
    return webhooks_api.added(a_webhook(tenant=tenant), an_act(tenant))


def a_secret_of(tenant: str) -> Work[object]:
    return secrets_api.stored(tenant, an_id("TOKEN"), "sealed", an_act(tenant))


def a_source_of(tenant: str, *tools: str) -> Work[object]:
    source_id = an_id("tsr")
    named = "[" + ",".join(f'"{tool}"' for tool in tools) + "]"
    row = ToolSourceRow(source_id, tenant, source_id, "http", "{}", "[]", named, NOW_MS)
    return tool_sources_api.kept(row, an_act(tenant))


def a_budget_of(tenant: str) -> Work[object]:
    row = a_budget(tenant=tenant, scope="user", scope_value="ann")
    return budgets_api.kept(row, an_act(tenant))


def code_of(raced: Raced[str]) -> str:
    """Return with which code one side was refused, of which the other got what it wanted."""
    (refused,) = (side for side in (raced.one, raced.other) if isinstance(side, Exception))
    assert isinstance(refused, ConflictError), raced
    return refused.code


@dataclass(frozen=True, slots=True)
class Bounded:
    """Something of which a tenant has so many at most: where that is said, and how one is made."""

    api: ModuleType
    bound: str
    one_of: Callable[[str], Work[object]]
    all_of: Callable[[str], Work[Collection[object]]]
    code: str


@pytest.mark.parametrize(
    "thing",
    [
        Bounded(webhooks_api, "WEBHOOKS_MAX", a_webhook_of, webhooks.all_of, "too_many_webhooks"),
        Bounded(secrets_api, "SECRETS_MAX", a_secret_of, secrets.names, "too_many_secrets"),
        Bounded(
            tool_sources_api, "SOURCES_MAX", a_source_of, tool_sources.ids, "too_many_tool_sources"
        ),
        Bounded(budgets_api, "BUDGETS_MAX", a_budget_of, budgets.all_of, "too_many_budgets"),
    ],
    ids=lambda thing: thing.bound,
)
async def test_two_do_not_both_take_the_last_place(
    postgres_database_url: str, monkeypatch: pytest.MonkeyPatch, thing: Bounded
) -> None:
    monkeypatch.setattr(thing.api, thing.bound, 1)

    async def prepare() -> Contest[str]:
        tenant = an_id("acme")
        return Contest(tenant, thing.one_of(tenant), thing.one_of(tenant))

    async with store_at(postgres_database_url) as store:
        async for raced in orders(postgres_database_url, prepare):
            assert code_of(raced) == thing.code, raced
            assert len(await store.read(thing.all_of(raced.subject))) == 1, raced


async def test_two_tool_sources_do_not_both_bring_a_tool_of_one_name(
    postgres_database_url: str,
) -> None:
    async def prepare() -> Contest[str]:
        tenant = an_id("acme")
        return Contest(tenant, a_source_of(tenant, "add"), a_source_of(tenant, "add"))

    async with store_at(postgres_database_url) as store:
        async for raced in orders(postgres_database_url, prepare):
            assert code_of(raced) == "tool_exists", raced
            assert len(await store.read(tool_sources.ids(raced.subject))) == 1, raced
