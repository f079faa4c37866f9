"""Who may have which tool called."""

import pytest

from milepost.core.events import ToolCallDenied
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.permits import Identity, Permits
from milepost.runtime.tenant_permissions import FRESH_MS, TenantPermissions
from milepost.store import permissions
from milepost.tools import Registry, Tool, tool, tool_of
from tests.runtime.workshop import TENANT, Workshop, of


def pay(permitted: list[str] | None) -> Tool:
    """Return a tool that is permitted to these."""

    @tool(name="pay", permissions=permitted)
    def settle(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    return tool_of(settle)


ANN = Identity("ann", frozenset({"runs:write", "scope:refunds"}))
NOBODY = Identity()


@pytest.mark.parametrize(
    ("permitted", "identity", "allowed"),
    [
        (None, NOBODY, True),
        (["*"], NOBODY, True),
        (["bob", "*"], ANN, True),
        (["ann"], ANN, True),
        (["bob"], ANN, False),
        (["scope:refunds"], ANN, True),
        (["scope:runs:write"], ANN, True),
        (["scope:admin"], ANN, False),
        (["runs:write"], ANN, False),
        ([], ANN, False),
        (["ann"], NOBODY, False),
        (["scope:refunds"], NOBODY, False),
        (["ann"], Identity("Ann"), False),
    ],
)
def test_a_tool_is_permitted_to_whom_its_list_names(
    permitted: list[str] | None, identity: Identity, allowed: bool
) -> None:
    refusal = Permits(identity).refusal(pay(permitted))

    assert (refusal is None) is allowed


def test_a_user_who_is_called_like_a_scope_has_no_scope() -> None:
    impostor = Identity("scope:refunds", frozenset({"runs:write"}))

    assert Permits(impostor).refusal(pay(["scope:refunds"])) is not None
    assert Permits(Identity("*")).refusal(pay(["ann"])) is not None


@pytest.mark.parametrize(
    ("code", "tenant", "allowed"),
    [
        (None, ["ann"], True),
        (None, ["bob"], False),
        (["ann"], ["ann"], True),
        (["ann"], ["*"], True),
        (["bob"], ["ann"], False),
        (["bob"], ["*"], False),
        (["ann"], [], False),
    ],
)
def test_a_tenant_narrows_what_the_tool_permits_and_widens_nothing(
    code: list[str] | None, tenant: list[str], allowed: bool
) -> None:
    permits = Permits(ANN, {"pay": tenant, "other": []})

    assert (permits.refusal(pay(code)) is None) is allowed


def test_a_refusal_says_why_and_names_nobody_else() -> None:
    tool = pay(["bob", "scope:secret"])

    nobody = Permits(NOBODY).refusal(tool)
    known = Permits(Identity("ann")).refusal(tool)
    key = Permits(Identity(None, frozenset({"runs:write"}))).refusal(tool)

    assert nobody == "pay is for certain users alone, and nobody knows whose run this is"
    assert known == "pay is not permitted to this user; do without it"
    assert key == "pay is not permitted to the key that made this run; do without it"


def test_only_what_may_be_called_is_offered() -> None:
    @tool
    def add(a: int) -> int:
        """Add."""
        return a

    tools = Registry([tool_of(add), pay(["bob"])])

    assert Permits(ANN).allowed(("pay", "add", "gone"), tools) == ("add",)
    assert Permits(Identity("bob")).allowed(("pay", "add"), tools) == ("pay", "add")


async def test_a_tenant_s_map_is_read_once_a_second_and_anew_when_told(shop: Workshop) -> None:
    known = TenantPermissions(shop.store, clock=shop.clock)
    before = await known.of(TENANT)
    row = await shop.store.read(permissions.get(TENANT))
    row = await shop.store.write(permissions.replace(row, '{"pay": ["ann"]}', shop.clock()))

    at_once = await known.of(TENANT)
    shop.clock.ahead_ms += FRESH_MS
    later = await known.of(TENANT)
    await shop.store.write(permissions.replace(row, '{"pay": []}', shop.clock()))
    known.forget(TENANT)

    assert (before, at_once) == ({}, {})
    assert later == {"pay": ["ann"]}
    assert await known.of(TENANT) == {"pay": []}
    assert await known.of("globex") == {}


async def test_a_call_that_is_not_permitted_is_neither_offered_nor_made(shop: Workshop) -> None:
    paid = pay(["ann"]).function
    model = Scripted([calling(("pay", {"cents": 5})), saying("I may not.")])

    run_id = await shop.driven(model, paid, agent=shop.agent(paid), user="bob")

    assert model.requests[0].tools == ()
    [denied] = of(await shop.log(run_id), ToolCallDenied)
    assert (denied.by, denied.reason) == (
        "permission", "pay is not permitted to this user; do without it",
    )  # fmt: skip
    assert model.requests[1].messages[-1].content == (
        "Tool 'pay' denied by permission: pay is not permitted to this user; do without it"
    )


async def test_the_scopes_of_the_key_that_made_a_run_stay_with_it_over_a_takeover(
    shop: Workshop,
) -> None:
    run = await shop.queue(user="bob", scopes='["scope:refunds"]')
    first = await shop.claim()

    second = await shop.take_over()

    assert first.scopes == second.scopes == run.scopes
    paid = pay(["scope:refunds"]).function
    await shop.go_on(
        [calling(("pay", {"cents": 5})), saying("Done.")],
        paid, agent=shop.agent(paid), claim=second,
    )  # fmt: skip
    assert "tool_call.completed" in await shop.types(run.id)
