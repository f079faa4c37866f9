"""`/v1/budgets`: what a tenant allows itself, and how much of that is gone."""

from dataclasses import replace
from typing import Annotated

import orjson
from pydantic import Field, field_validator, model_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.access import Principal
from milepost.api.acts import act_of
from milepost.api.bodies import Body, read_body
from milepost.api.budgets_shown import show_bounds, show_budget, show_counter
from milepost.api.conditions import amend, compares_versions, etag, version_meant
from milepost.api.paging import (
    LIMIT_DEFAULT,
    allow,
    choice,
    json_response,
    listed,
    metadata,
    page,
    shown_page,
    words,
)
from milepost.api.replays import asked, once
from milepost.api.requests import caller
from milepost.core.errors import ConflictError
from milepost.runtime.agent_spec import Metadata
from milepost.runtime.budgets import LIMITS, TenantBudgets
from milepost.runtime.journal import Ports
from milepost.runtime.periods import period_of
from milepost.runtime.reserving import NOBODY
from milepost.store import alone, audit, budget_counters, budgets
from milepost.store.amounts import NOTHING, Bounds
from milepost.store.audit import AuditRow
from milepost.store.budget_counters import Counter, CounterKey
from milepost.store.budgets import (
    SCOPES,
    BudgetEdit,
    BudgetFilter,
    BudgetPeriod,
    BudgetRow,
    BudgetScope,
)
from milepost.store.records import Page
from milepost.store.work import Work

BUDGETS_MAX = 100
AMOUNT_MAX = 10**15
WARN_AT = 0.8

Amount = Annotated[int, Field(ge=0, le=AMOUNT_MAX)]
Share = Annotated[float, Field(gt=0, le=1)]
Value = Annotated[str, Field(min_length=1, max_length=200)]


class BudgetLimits(Body):
    """How much of each there may be in a period; what is not named is not bounded."""

    tokens: Amount | None = None
    cost_usd_micros: Amount | None = None
    model_calls: Amount | None = None
    tool_calls: Amount | None = None
    active_s: Amount | None = None

    @model_validator(mode="after")
    def _bound_something(self) -> "BudgetLimits":
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError(f"name one limit at least: {', '.join(type(self).model_fields)}")
        return self

    @property
    def bounds(self) -> Bounds:
        """What is kept."""
        return Bounds(
            **{
                measure: None if (bound := getattr(self, name)) is None else bound * unit
                for measure, (name, unit) in LIMITS.items()
            }
        )


class BudgetCreate(Body):
    """What `POST /v1/budgets` takes."""

    scope: BudgetScope
    scope_value: Value | None = None
    period: BudgetPeriod
    limits: BudgetLimits
    warn_at: Share = WARN_AT
    metadata: Metadata = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_about_somebody(self) -> "BudgetCreate":
        if self.scope == "tenant" and self.scope_value is not None:
            raise ValueError("a budget of the tenant has no scope_value: there is one tenant")
        return self


class BudgetChange(Body):
    """What `PATCH /v1/budgets/{id}` takes: what is not named stays; limits are set as a whole."""

    limits: BudgetLimits | None = None
    warn_at: Share = WARN_AT
    metadata: Metadata = Field(default_factory=dict)

    @field_validator("limits")
    @classmethod
    def _are_there(cls, limits: BudgetLimits | None) -> BudgetLimits:
        if limits is None:
            raise ValueError("a budget has limits; delete it where there shall be none")
        return limits


class Budgets:
    """Budgets, over a store; `known` is what the runs of this process remember of them."""

    def __init__(self, ports: Ports, known: TenantBudgets) -> None:
        self._ports = ports
        self._known = known

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/budgets", self.create, methods=["POST"]),
            Route("/v1/budgets", self.search, methods=["GET"]),
            Route("/v1/budgets/{budget_id}", self.get, methods=["GET"]),
            Route("/v1/budgets/{budget_id}", self.change, methods=["PATCH"]),
            Route("/v1/budgets/{budget_id}", self.delete, methods=["DELETE"]),
            Route("/v1/budgets/{budget_id}/counters", self.counters, methods=["GET"]),
        ]

    async def create(self, request: Request) -> Response:
        """Make a budget. Here it holds for the next call on, elsewhere within two seconds."""
        allow(request)
        principal = caller(request, "budgets:write")
        body, raw = await read_body(request, BudgetCreate)
        row = self._row(principal, body)
        made = await self._ports.store.write(
            once(
                asked(request, raw, row.id, row.created_ms),
                kept(row, self._act("budget.created", principal, row)),
                lambda earlier: budgets.find(principal.tenant, earlier),
            )
        )
        self._known.forget(principal.tenant)
        found = made.resource
        named = await self._named(principal)
        headers = made.headers(Location=f"/v1/budgets/{found.id}", ETag=etag(found))
        return json_response(show_budget(found, named), 201, headers)

    async def search(self, request: Request) -> Response:
        """List budgets, the newest first."""
        allow(request, "limit", "after", "order", "scope", "scope_value", "metadata")
        principal = caller(request, "budgets:read")
        wanted = BudgetFilter(
            scope=choice(request, "scope", SCOPES),
            scope_value=words(request, "scope_value"),
            metadata=metadata(request),
        )
        stretch = page(request, of="bud")
        found = await self._ports.store.read(budgets.search(principal.tenant, wanted, stretch))
        named = await self._named(principal)
        return listed(found, stretch, lambda row: show_budget(row, named), lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show a budget with the first page of its counters."""
        allow(request)
        principal = caller(request, "budgets:read")
        row = await self._find(principal, request)
        stretch = Page(LIMIT_DEFAULT)
        found = await self._present(row, stretch)
        counters = shown_page(found, stretch, show_counter, lambda counter: counter.id)
        shown = {**show_budget(row, await self._named(principal)), "counters": counters}
        return json_response(shown, headers={"ETag": etag(row)})

    async def counters(self, request: Request) -> Response:
        """List the budget's counters of the present period, the newest first."""
        allow(request, "limit", "after", "order", "scope_value")
        row = await self._find(caller(request, "budgets:read"), request)
        stretch = page(request, of="bct")
        found = await self._present(row, stretch, words(request, "scope_value"))
        return listed(found, stretch, show_counter, lambda counter: counter.id)

    @compares_versions
    async def change(self, request: Request) -> Response:
        """Give the budget other limits; what was spent in this period stays spent."""
        allow(request)
        principal = caller(request, "budgets:write")
        body, _ = await read_body(request, BudgetChange)
        row = await amend(
            request,
            lambda: self._find(principal, request),
            lambda row: self._change(principal, row, body),
        )
        self._known.forget(principal.tenant)
        shown = show_budget(row, await self._named(principal))
        return json_response(shown, headers={"ETag": etag(row)})

    @compares_versions
    async def delete(self, request: Request) -> Response:
        """Take a budget away, with all that was counted for it."""
        allow(request)
        principal = caller(request, "budgets:write")
        row = await self._find(principal, request)
        expected = version_meant(request, row)
        work = budgets.delete(row.tenant, row.id, expected_version=expected)
        act = self._act("budget.deleted", principal, row)
        await self._ports.store.write(audit.written_down(work, act))
        self._known.forget(principal.tenant)
        return Response(status_code=204)

    async def _find(self, principal: Principal, request: Request) -> BudgetRow:
        budget_id = request.path_params["budget_id"]
        return await self._ports.store.read(budgets.find(principal.tenant, budget_id))

    async def _named(self, principal: Principal) -> frozenset[str]:
        return await self._ports.store.read(budgets.named(principal.tenant))

    async def _present(
        self, row: BudgetRow, stretch: Page, scope_value: str | None = None
    ) -> list[Counter]:
        """Return what was counted in the present period; of one that nobody spent of, nothing."""
        start_ms, resets_ms = period_of(row.period, self._ports.clock())
        work = budget_counters.present
        found = await self._ports.store.read(
            work(row.tenant, row.id, start_ms, stretch, scope_value=scope_value)
        )
        whole = row.scope == "tenant" or row.scope_value is not None
        key = CounterKey(row.id, row.scope_value or NOBODY, start_ms)
        if found or not whole or scope_value not in (None, key.scope_value) or stretch.after:
            return found
        terms = row.bounds, row.warn_at
        return [Counter(row.tenant, key, "", resets_ms, NOTHING, NOTHING, 0, *terms)]

    async def _change(self, principal: Principal, row: BudgetRow, body: BudgetChange) -> BudgetRow:
        present = BudgetEdit(row.bounds, row.warn_at, row.metadata)
        edit = _edited(present, body)
        if edit == present:
            return row
        now = self._ports.clock()
        changed = replace(row, **edit.bounds._asdict(), warn_at=edit.warn_at)
        act = self._act("budget.changed", principal, changed)
        work = budgets.change(row.tenant, row.id, edit, now_ms=now, expected_version=row.version)
        return await self._ports.store.write(audit.written_down(work, act))

    def _row(self, principal: Principal, body: BudgetCreate) -> BudgetRow:
        now = self._ports.clock()
        return BudgetRow(
            id=self._ports.new_id("bud"),
            tenant=principal.tenant,
            scope=body.scope,
            scope_value=body.scope_value,
            period=body.period,
            warn_at=body.warn_at,
            metadata=orjson.dumps(body.metadata).decode(),
            version=1,
            created_ms=now,
            updated_ms=now,
            **body.limits.bounds._asdict(),
        )

    def _act(self, action: str, principal: Principal, row: BudgetRow) -> AuditRow:
        details = {
            "scope": row.scope,
            "scope_value": row.scope_value,
            "period": row.period,
            "limits": show_bounds(row.bounds),
            "warn_at": row.warn_at,
        }
        return act_of(self._ports, principal, action, row.id, details)


def _edited(present: BudgetEdit, body: BudgetChange) -> BudgetEdit:
    named = body.model_fields_set
    return BudgetEdit(
        bounds=body.limits.bounds if body.limits else present.bounds,
        warn_at=body.warn_at if "warn_at" in named else present.warn_at,
        metadata=orjson.dumps(body.metadata).decode() if "metadata" in named else present.metadata,
    )


def kept(row: BudgetRow, act: AuditRow) -> Work[BudgetRow]:
    """Keep the budget if there is room for one more: runs look through all of them."""
    yield from alone.counting(row.tenant, "budgets")
    present = yield from budgets.all_of(row.tenant)
    if len(present) >= BUDGETS_MAX:
        raise ConflictError(
            f"there are {len(present)} budgets, and {BUDGETS_MAX} may be; delete one first, or let"
            " one hold for each user, agent or session",
            code="too_many_budgets",
        )
    return (yield from audit.written_down(budgets.create(row), act))
