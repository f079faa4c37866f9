"""What is asked for as a schedule, and the schedule that it becomes."""

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, Field, field_validator

from milepost.api.access import Principal
from milepost.api.bodies import Body
from milepost.api.known_agents import AgentVersion
from milepost.api.new_runs import AgentName, RunInput, RunOptions, messages_of, queued_event
from milepost.core.codec import encode
from milepost.core.errors import InvalidError
from milepost.runtime.agent_spec import Metadata
from milepost.runtime.credentials import Label
from milepost.runtime.timetable import Timetable, require_cron, zone_of
from milepost.store.schedules import Overlap, ScheduleRow

LATE_S_MAX = 31 * 86_400
OWN_METADATA_MAX = 30
"""Two pairs less than a run has: the schedule's id and the time for which it came are added."""
ADDED = ("schedule_id", "scheduled_for")
RUN_BYTES_MAX = 262_144


def _known_zone(timezone: str) -> str:
    zone_of(timezone)
    return timezone


Cron = Annotated[str, AfterValidator(require_cron)]
Timezone = Annotated[str, AfterValidator(_known_zone)]
Late = Annotated[float, Field(ge=1, le=LATE_S_MAX)]


class ScheduledRun(RunOptions):
    """What `POST /v1/runs` takes, but for what is about now."""

    agent: AgentName
    input: RunInput
    session_id: Annotated[str, Field(max_length=64)] | None = None

    @field_validator("metadata")
    @classmethod
    def _leaves_room(cls, given: dict[str, str]) -> dict[str, str]:
        if taken := [name for name in ADDED if name in given]:
            raise ValueError(f"{' and '.join(taken)}: a schedule adds that itself")
        if len(given) > OWN_METADATA_MAX:
            raise ValueError(
                f"{OWN_METADATA_MAX} pairs at most: a schedule adds {' and '.join(ADDED)}"
            )
        return given


class ScheduleCreate(Body):
    """What `POST /v1/schedules` takes."""

    cron: Cron
    timezone: Timezone = "UTC"
    run: ScheduledRun
    name: Label | None = None
    overlap: Overlap = "skip"
    late_max_s: Late | None = None
    enabled: bool = True
    metadata: Metadata = Field(default_factory=dict)


class ScheduleChange(Body):
    """What `PATCH /v1/schedules/{id}` takes: what is not named stays; `run` is set as a whole."""

    cron: Cron = ""
    timezone: Timezone = ""
    run: ScheduledRun | None = None
    name: Label | None = None
    overlap: Overlap = "skip"
    late_max_s: Late | None = None
    enabled: bool = True
    metadata: Metadata = Field(default_factory=dict)

    @field_validator("run")
    @classmethod
    def _is_there(cls, run: ScheduledRun | None) -> ScheduledRun:
        if run is None:
            raise ValueError("a schedule has a run; disable it where there shall be none")
        return run


def schedule_of(
    body: ScheduleCreate, principal: Principal, schedule_id: str, now_ms: int
) -> ScheduleRow:
    """Return the schedule that this caller asks for; raise if it may not act for the run's user."""
    return ScheduleRow(
        id=schedule_id,
        tenant=principal.tenant,
        name=body.name,
        cron=body.cron,
        timezone=body.timezone,
        overlap=body.overlap,
        late_max_ms=_milliseconds(body.late_max_s),
        enabled=int(body.enabled),
        metadata=orjson.dumps(body.metadata).decode(),
        next_ms=None,
        last=None,
        last_run_id=None,
        version=1,
        created_ms=now_ms,
        updated_ms=now_ms,
        **asdict(_asked_of(principal, body.run)),
    )


def edited(row: ScheduleRow, body: ScheduleChange, principal: Principal) -> ScheduleRow:
    """Return the schedule with what the body names, and nothing else, changed.

    Who says what it runs answers for that from then on.
    """
    named = body.model_fields_set
    plain = ("cron", "timezone", "name", "overlap")
    told: dict[str, Any] = {name: getattr(body, name) for name in plain if name in named}
    if "enabled" in named:
        told["enabled"] = int(body.enabled)
    if "late_max_s" in named:
        told["late_max_ms"] = _milliseconds(body.late_max_s)
    if "metadata" in named:
        told["metadata"] = orjson.dumps(body.metadata).decode()
    if body.run:
        told |= asdict(_asked_of(principal, body.run))
    return replace(row, **told)


def timed(row: ScheduleRow, now_ms: int) -> ScheduleRow:
    """Return the schedule as it comes next behind this time, if it is enabled.

    Raises `InvalidError` if its zone, which was known when it was named, is not any more.
    """
    if not row.enabled:
        return replace(row, next_ms=None)
    try:
        timetable = Timetable.of(row.cron, row.timezone)
    except ValueError as error:
        raise InvalidError(f"timezone {row.timezone!r}: {error}", pointer="/timezone") from error
    return replace(row, next_ms=timetable.after(now_ms))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a schedule is to run, and in whose name; see `ScheduleRow`."""

    agent: str
    user: str | None
    run: str
    queued_event: str
    scopes: str
    made_by: str


def _asked_of(principal: Principal, run: ScheduledRun) -> _Asked:
    """Return what this caller wants to be run; raise if it may not act for the run's user.

    There may be a thousand of them, and a page shows a hundred.
    """
    user = principal.acting_as(run.user)
    shown = orjson.dumps(_shown(run))
    if len(shown) > RUN_BYTES_MAX:
        raise InvalidError(
            f"what a schedule runs has at most {RUN_BYTES_MAX} bytes as JSON, not {len(shown)}",
            pointer="/run",
        )
    # Which agent that is, is looked up whenever the schedule comes.
    queued = queued_event(run, AgentVersion("", run.agent, 0), user)
    return _Asked(
        agent=run.agent,
        user=user,
        run=shown.decode(),
        queued_event=encode(replace(queued, input=messages_of(run.input))).decode(),
        scopes=orjson.dumps(sorted(principal.scopes)).decode(),
        made_by=principal.id,
    )


def _shown(run: ScheduledRun) -> dict[str, Any]:
    """Return what was asked for, with all that was left unsaid, and what matters most first."""
    told = run.model_dump(mode="json", by_alias=True)
    return {"agent": told["agent"], "input": told["input"], **told}


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
