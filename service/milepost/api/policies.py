"""`/v1/policies`: rules of the tenant and of sessions, and what would become of a call."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.access import Principal
from milepost.api.acts import act_of
from milepost.api.bodies import Body, UserName, read_body
from milepost.api.conditions import amend, compares_versions, etag
from milepost.api.paging import allow, json_response
from milepost.api.replays import asked, keeping
from milepost.api.requests import caller
from milepost.core.messages import ToolCall
from milepost.core.rulings import Ask, Count, Refuse, Reject, Ruling, Run
from milepost.live.frames import rfc3339_or_none
from milepost.runtime.definitions import Definitions
from milepost.runtime.journal import Ports
from milepost.runtime.judging import Judging
from milepost.runtime.permits import Identity
from milepost.runtime.policy_spec import PolicySpec, show_policy, show_terms
from milepost.runtime.stored_rates import StoredRates
from milepost.runtime.tenant_policies import TenantPolicies
from milepost.store import agents, audit, policies, sessions
from milepost.store.audit import AuditRow
from milepost.store.missing import session_not_found
from milepost.store.policies import TENANT, PolicyRow
from milepost.store.work import Work

NO_SESSION = ""
"""No session is called so: only the tenant's rules hold in it."""


class PolicyBody(Body):
    """What a `PUT` of a policy takes: the whole of it."""

    policy: PolicySpec


class PolicyCheck(Body):
    """A call that nobody makes: what would become of it?"""

    agent: Annotated[str, Field(min_length=1, max_length=128)]
    tool: Annotated[str, Field(min_length=1, max_length=200)]
    arguments: dict[str, Any] = Field(default_factory=dict)
    user: UserName | None = None
    session_id: Annotated[str, Field(max_length=64)] | None = None


@dataclass(frozen=True, slots=True)
class _Nobody:
    """For whom a call would be made that nobody makes."""

    agent_id: str
    session_id: str
    user: str | None
    run_id: str = ""


class Policies:
    """Standing rules, over a store, and the judging that workers do by them."""

    def __init__(
        self, ports: Ports, known: TenantPolicies, judging: Judging, rates: StoredRates
    ) -> None:
        self._ports = ports
        self._known = known
        self._judging = judging
        self._rates = rates
        self._definitions = Definitions(ports.store)

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        tenant, session = "/v1/policies/tenant", "/v1/policies/sessions/{session_id}"
        return [
            Route("/v1/policies/check", self.check, methods=["POST"]),
            *(
                Route(path, answer, methods=[method])
                for path in (tenant, session)
                for method, answer in (
                    ("GET", self.get),
                    ("PUT", self.put),
                    ("DELETE", self.delete),
                )
            ),
        ]

    async def get(self, request: Request) -> Response:
        """Show the policy; a scope that has none shows null."""
        allow(request)
        row = await self._row(caller(request, "runs:read"), request)
        return _shown(row)

    @compares_versions
    async def put(self, request: Request) -> Response:
        """Put another policy in the place of the present one, as a whole."""
        allow(request)
        principal = caller(request, "agents:write")
        body, _ = await read_body(request, PolicyBody)
        said = orjson.dumps(show_policy(body.policy.policy())).decode()
        row = await amend(
            request,
            lambda: self._row(principal, request),
            lambda row: self._ports.store.write(_kept(row, said, self._act(principal, row, said))),
        )
        self._known.forget(principal.tenant)
        return _shown(row)

    @compares_versions
    async def delete(self, request: Request) -> Response:
        """Remove the policy; what agents' own say holds on."""
        allow(request)
        principal = caller(request, "agents:write")
        await amend(
            request,
            lambda: self._row(principal, request),
            lambda row: self._ports.store.write(_removed(row, self._act(principal, row, "null"))),
        )
        self._known.forget(principal.tenant)
        return Response(status_code=204)

    async def check(self, request: Request) -> Response:
        """Say what would become of a call, and why; it is neither made nor counted."""
        allow(request)
        principal = caller(request, "runs:read")
        body, raw = await read_body(request, PolicyCheck)
        row = await self._ports.store.read(agents.find(principal.tenant, body.agent))
        agent = await self._definitions.get(principal.tenant, row.id, row.version)
        if body.session_id is not None:
            await self._ports.store.read(sessions.find(principal.tenant, body.session_id))
        identity = Identity(
            principal.acting_as(body.user), frozenset(principal.scopes), principal.id
        )
        tools = await self._judging.tools(principal.tenant, agent)
        rules = await self._judging.rules(
            principal.tenant, agent, identity, body.session_id or NO_SESSION, tools
        )
        call = ToolCall(id="call_0_0", name=body.tool, arguments=body.arguments)
        ruling: Ruling = rules.judge(call)
        counts: Mapping[str, int] = {}
        if isinstance(ruling, Count):
            whose = _Nobody(row.id, body.session_id or NO_SESSION, identity.user)
            counts = await self._rates.foretell(principal.tenant, whose, ruling.wanted)
            ruling = rules.judge(call, counts)
        wish = asked(request, raw, body.tool, self._ports.clock())
        made = await self._ports.store.write(keeping(wish))
        return json_response(
            {**_told(ruling), "counts": list(counts.values())}, headers=made.headers()
        )

    async def _row(self, principal: Principal, request: Request) -> PolicyRow:
        scope = request.path_params.get("session_id", TENANT)
        if scope != TENANT:
            await self._ports.store.read(sessions.find(principal.tenant, scope))
        elif "session_id" in request.path_params:
            raise session_not_found(scope)
        return await self._ports.store.read(policies.get(principal.tenant, scope))

    def _act(self, principal: Principal, row: PolicyRow, said: str) -> AuditRow:
        return act_of(
            self._ports, principal, "policy.changed", row.scope, {"policy": orjson.Fragment(said)}
        )


def _kept(row: PolicyRow, said: str, act: AuditRow) -> Work[PolicyRow]:
    """Keep the policy and write down who said so; what changes nothing makes no version."""
    if row.scope != TENANT:
        yield from sessions.hold(row.tenant, row.scope)
    if row.version and row.policy == said:
        return row
    changed = yield from policies.replace(row, said)
    yield from audit.add(act)
    return changed


def _removed(row: PolicyRow, act: AuditRow) -> Work[PolicyRow]:
    """Remove the policy, if there is one, and write down who did; return what is there then."""
    if row.version:
        yield from policies.remove(row)
        yield from audit.add(act)
    return PolicyRow(row.tenant, row.scope)


def _shown(row: PolicyRow) -> Response:
    shown = {
        "scope": row.scope,
        "policy": orjson.loads(row.policy),
        "version": row.version,
        "updated_at": rfc3339_or_none(row.updated_ms),
    }
    return json_response(shown, headers={"ETag": etag(row)})


def _told(ruling: Ruling) -> dict[str, Any]:
    """Return a ruling in words."""
    told: dict[str, Any] = {
        "verdict": "",
        "by": "policy",
        "reason": None,
        "arguments": None,
        "coerced": [],
        "terms": None,
        "error": None,
    }
    match ruling:
        case Run(arguments, _, coerced, reason):
            told |= {"verdict": "allow", "reason": reason}
            told |= {"arguments": arguments, "coerced": coerced}
        case Ask(arguments, _, reason, coerced, terms):
            told |= {"verdict": "ask", "reason": reason, "terms": show_terms(terms)}
            told |= {"arguments": arguments, "coerced": coerced}
        case Count():
            raise AssertionError("what had to be counted was")
        case Refuse(by, reason):
            told |= {"verdict": "deny", "by": by, "reason": reason}
        case Reject(error):
            told |= {"verdict": "invalid", "by": "schema"}
            told |= {"error": {"code": error.code, "message": error.message}}
    return told
