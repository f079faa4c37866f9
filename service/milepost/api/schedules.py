"""`/v1/schedules`: runs that come again and again, by a cron expression on a clock."""

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.access import Principal
from milepost.api.acts import act_of
from milepost.api.bodies import read_body
from milepost.api.conditions import amend, compares_versions, etag, version_meant
from milepost.api.new_schedules import ScheduleChange, ScheduleCreate, edited, schedule_of, timed
from milepost.api.paging import allow, flag, json_response, listed, metadata, page, words
from milepost.api.replays import asked, once
from milepost.api.requests import caller
from milepost.api.schedules_shown import show_schedule
from milepost.live.hub import SCHEDULES_BELL
from milepost.runtime.journal import Ports
from milepost.store import audit, schedules, sessions
from milepost.store.audit import AuditRow
from milepost.store.schedules import ScheduleFilter, ScheduleRow
from milepost.store.work import Work


class Schedules:
    """Schedules, over a store."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/schedules", self.create, methods=["POST"]),
            Route("/v1/schedules", self.search, methods=["GET"]),
            Route("/v1/schedules/{schedule_id}", self.get, methods=["GET"]),
            Route("/v1/schedules/{schedule_id}", self.change, methods=["PATCH"]),
            Route("/v1/schedules/{schedule_id}", self.delete, methods=["DELETE"]),
        ]

    async def create(self, request: Request) -> Response:
        """Make a schedule; it comes from now on, in the name of the key that asks for it."""
        allow(request)
        principal = caller(request, "runs:write")
        body, raw = await read_body(request, ScheduleCreate)
        row = schedule_of(body, principal, self._ports.new_id("sch"), self._ports.clock())
        made = await self._ports.store.write(
            once(
                asked(request, raw, row.id, row.created_ms),
                self._kept(principal, row),
                lambda earlier: schedules.find(principal.tenant, earlier),
            )
        )
        self._ports.hub.ring(SCHEDULES_BELL)
        found = made.resource
        headers = made.headers(Location=f"/v1/schedules/{found.id}", ETag=etag(found))
        return json_response(show_schedule(found), 201, headers)

    async def search(self, request: Request) -> Response:
        """List schedules, the newest first."""
        allow(request, "limit", "after", "order", "enabled", "agent", "user", "metadata")
        principal = caller(request, "runs:read")
        wanted = ScheduleFilter(
            enabled=flag(request, "enabled", default=None),
            agent=words(request, "agent"),
            user=words(request, "user"),
            metadata=metadata(request),
        )
        stretch = page(request, of="sch")
        found = await self._ports.store.read(schedules.search(principal.tenant, wanted, stretch))
        return listed(found, stretch, show_schedule, lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show one schedule."""
        allow(request)
        return _shown(await self._find(caller(request, "runs:read"), request))

    @compares_versions
    async def change(self, request: Request) -> Response:
        """Change a schedule. Who says what it runs answers for its runs from then on."""
        allow(request)
        principal = caller(request, "runs:write")
        body, _ = await read_body(request, ScheduleChange)
        row = await amend(
            request,
            lambda: self._find(principal, request),
            lambda row: self._change(principal, row, body),
        )
        self._ports.hub.ring(SCHEDULES_BELL)
        return _shown(row)

    @compares_versions
    async def delete(self, request: Request) -> Response:
        """Forget a schedule; the runs that it made stay."""
        allow(request)
        principal = caller(request, "runs:write")
        row = await self._find(principal, request)
        expected = version_meant(request, row)
        work = schedules.delete(row.tenant, row.id, expected_version=expected)
        act = self._act("schedule.deleted", principal, row)
        await self._ports.store.write(audit.written_down(work, act))
        return Response(status_code=204)

    async def _find(self, principal: Principal, request: Request) -> ScheduleRow:
        schedule_id = request.path_params["schedule_id"]
        return await self._ports.store.read(schedules.find(principal.tenant, schedule_id))

    def _kept(self, principal: Principal, row: ScheduleRow) -> Work[ScheduleRow]:
        row = timed((yield from _in_its_session(row)), (yield from schedules.now()))
        act = self._act("schedule.created", principal, row)
        return (yield from audit.written_down(schedules.create(row), act))

    async def _change(
        self, principal: Principal, row: ScheduleRow, body: ScheduleChange
    ) -> ScheduleRow:
        wanted = edited(row, body, principal)
        return await self._ports.store.write(self._changed(principal, row, wanted))

    def _changed(
        self, principal: Principal, row: ScheduleRow, wanted: ScheduleRow
    ) -> Work[ScheduleRow]:
        if (wanted.run, wanted.user) != (row.run, row.user):
            wanted = yield from _in_its_session(wanted)
        if wanted == row:
            return row
        if wanted.timing != row.timing:  # Else it comes when it would have come anyway.
            wanted = timed(wanted, (yield from schedules.now()))
        act = self._act("schedule.changed", principal, wanted)
        work = schedules.change(row, wanted, now_ms=act.time_ms)
        return (yield from audit.written_down(work, act))

    def _act(self, action: str, principal: Principal, row: ScheduleRow) -> AuditRow:
        details = {
            "cron": row.cron,
            "timezone": row.timezone,
            "enabled": bool(row.enabled),
            "agent": row.agent,
            "user": row.user,
            "made_by": row.made_by,
        }
        return act_of(self._ports, principal, action, row.id, details)


def _in_its_session(row: ScheduleRow) -> Work[ScheduleRow]:
    """Return it for the session's user where its maker may act for any, as its runs will be.

    Raises `NotFoundError` if there is no such session.
    """
    if row.session_id is None:
        return row
    session = yield from sessions.find(row.tenant, row.session_id)
    return replace(row, user=session.user) if row.follows_session else row


def _shown(row: ScheduleRow) -> Response:
    return json_response(show_schedule(row), headers={"ETag": etag(row)})
