"""`client.schedules`."""

from collections.abc import Mapping
from typing import TypedDict, Unpack

from milepost.client.shapes import Overlap, Page, Schedule, ScheduledRun, paged, shaped
from milepost.client.transport import Transport, filtered, if_version, quoted


class ScheduleOptions(TypedDict, total=False):
    """What a schedule may be given besides its times and its run: UTC and `skip` unless said."""

    timezone: str
    name: str | None
    overlap: Overlap
    late_max_s: float | None
    enabled: bool
    metadata: Mapping[str, str]


class ScheduleChanges(ScheduleOptions, total=False):
    """What a schedule may be given anew; `run` and `metadata` are set as a whole."""

    cron: str
    run: ScheduledRun


class ScheduleFilters(TypedDict, total=False):
    """Which schedules a list is to hold, and which stretch of it."""

    enabled: bool | None
    agent: str | None
    user: str | None
    metadata: Mapping[str, str]
    limit: int | None
    after: str | None
    order: str | None


class Schedules:
    """Runs that come again and again."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self, cron: str, run: ScheduledRun, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Have a run made at the times that `cron` says on the clock of `timezone`."""
        body = {"cron": cron, "run": run, **options}
        return shaped(Schedule, await self._transport.post("/v1/schedules", body))

    async def get(self, schedule_id: str) -> Schedule:
        """Return a schedule, with what became of it last."""
        return shaped(Schedule, await self._transport.get(f"/v1/schedules/{quoted(schedule_id)}"))

    async def list(self, **filters: Unpack[ScheduleFilters]) -> Page[Schedule]:
        """Return schedules, the newest first."""
        return paged(Schedule, await self._transport.get("/v1/schedules", filtered(filters)))

    async def update(
        self, schedule_id: str, *, if_still: int | None = None, **changes: Unpack[ScheduleChanges]
    ) -> Schedule:
        """Change what is named; with `if_still`, only if that is still the schedule's version.

        `enabled=False` pauses it. Whoever sets `run` answers for its runs from then on.
        """
        answer = await self._transport.request(
            "PATCH",
            f"/v1/schedules/{quoted(schedule_id)}",
            body=changes,
            headers=if_version(if_still),
        )
        return shaped(Schedule, answer)

    async def delete(self, schedule_id: str, *, if_still: int | None = None) -> None:
        """Forget a schedule, not the runs that it made; with `if_still`, only in that version."""
        path = f"/v1/schedules/{quoted(schedule_id)}"
        await self._transport.change("DELETE", path, headers=if_version(if_still))
