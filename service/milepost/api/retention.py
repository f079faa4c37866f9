"""`/v1/retention`: how long a tenant has things kept."""

from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.acts import act_of
from milepost.api.bodies import Body, read_body
from milepost.api.conditions import amend, compares_versions, etag
from milepost.api.paging import allow, json_response
from milepost.api.requests import caller
from milepost.live.frames import rfc3339_or_none
from milepost.live.text_buffers import TEXT_TTL_S
from milepost.runtime.journal import Ports
from milepost.store import audit, retention
from milepost.store.audit import AuditRow
from milepost.store.retention import RetentionRow, Rules
from milepost.store.work import Work

KEPT_S_MIN = 60
KEPT_S_MAX = 315_360_000

Span = Annotated[int, Field(ge=KEPT_S_MIN, le=KEPT_S_MAX)]


class RetentionBody(Body):
    """What `PUT /v1/retention` takes: all of it; what is not named is kept for good."""

    runs_s: Span | None = None
    events_s: Span | None = None
    artifacts_s: Span | None = None
    traces_s: Span | None = None
    memories_s: Span | None = None

    @property
    def rules(self) -> Rules:
        """The rules, as they are kept."""
        return Rules(
            runs_ms=_ms(self.runs_s),
            events_ms=_ms(self.events_s),
            artifacts_ms=_ms(self.artifacts_s),
            traces_ms=_ms(self.traces_s),
            memories_ms=_ms(self.memories_s),
        )


class Retention:
    """A tenant's rules, over a store. The installation's own limit, `kept_max_s`, holds as well."""

    def __init__(self, ports: Ports, kept_max_s: float | None) -> None:
        self._ports = ports
        self._kept_max_s = kept_max_s

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/retention", self.get, methods=["GET"]),
            Route("/v1/retention", self.put, methods=["PUT"]),
        ]

    async def get(self, request: Request) -> Response:
        """Show the rules."""
        allow(request)
        principal = caller(request, "admin")
        return self._shown(await self._ports.store.read(retention.get(principal.tenant)))

    @compares_versions
    async def put(self, request: Request) -> Response:
        """Put other rules in the place of the present ones, as a whole."""
        allow(request)
        principal = caller(request, "admin")
        body, _ = await read_body(request, RetentionBody)
        details = body.model_dump()
        act = act_of(self._ports, principal, "retention.changed", "retention", details)
        row = await amend(
            request,
            lambda: self._ports.store.read(retention.get(principal.tenant)),
            lambda row: self._ports.store.write(_kept(row, body.rules, act)),
        )
        return self._shown(row)

    def _shown(self, row: RetentionRow) -> Response:
        rules = row.rules
        shown: dict[str, Any] = {
            "runs_s": _s(rules.runs_ms),
            "events_s": _s(rules.events_ms),
            "artifacts_s": _s(rules.artifacts_ms),
            "traces_s": _s(rules.traces_ms),
            "memories_s": _s(rules.memories_ms),
            "installation": {"kept_max_s": self._kept_max_s, "deltas_s": TEXT_TTL_S},
            "version": row.version,
            "updated_at": rfc3339_or_none(row.updated_ms),
        }
        return json_response(shown, headers={"ETag": etag(row)})


def _kept(row: RetentionRow, rules: Rules, act: AuditRow) -> Work[RetentionRow]:
    """Keep the rules and write down who said so; what changes nothing makes no version."""
    if row.version and row.rules == rules:
        return row
    changed = yield from retention.replace(row, rules, act.time_ms)
    yield from audit.add(act)
    return changed


def _ms(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1000


def _s(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds // 1000
