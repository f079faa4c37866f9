"""`milepost schedules`: runs that come again and again."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, cast

import typer

from milepost.cli.calling import connected, finite, pairs
from milepost.cli.flags import CLIENT, with_settings
from milepost.cli.printing import show_json, show_page
from milepost.client.schedules import ScheduleChanges
from milepost.client.shapes import Overlap, Schedule, ScheduledRun
from milepost.settings import Settings

app = typer.Typer(
    help="Have runs made again and again, and change or pause that.", no_args_is_help=True
)

ScheduleId = Annotated[str, typer.Argument(metavar="SCHEDULE_ID")]
Name = Annotated[str | None, typer.Option(help="what people call it")]
User = Annotated[str | None, typer.Option(help="for whom the runs act")]
Session = Annotated[
    str | None, typer.Option(help="the session that they go on with, instead of one each")
]
LateMax = Annotated[
    float | None,
    typer.Option(help="how late a run may be made; unset: however late", callback=finite),
]
Metadata = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="the schedule's own; may be repeated"),
]

CRON = typer.Option(help="when: minute, hour, day, month and weekday")
TIMEZONE = typer.Option(help="on whose clock, such as Europe/Berlin")
OVERLAP = typer.Option(help="what becomes of a time while the last run is not over")

HEADINGS = ("SCHEDULE", "NAME", "AGENT", "CRON", "TIMEZONE", "NEXT", "LAST")


class Droppable(StrEnum):
    """What a schedule can be without, by its flag's name."""

    NAME = "name"
    USER = "user"
    SESSION = "session"
    LATE_MAX_S = "late-max-s"
    METADATA = "metadata"


# What the contract calls them, and what they are then.
_EMPTY: Mapping[Droppable, tuple[str, object]] = {
    Droppable.NAME: ("name", None),
    Droppable.USER: ("user", None),
    Droppable.SESSION: ("session_id", None),
    Droppable.LATE_MAX_S: ("late_max_s", None),
    Droppable.METADATA: ("metadata", {}),
}


@app.command("list")
@with_settings(CLIENT)
def list_schedules(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    enabled: Annotated[bool | None, typer.Option("--enabled/--paused", help="only these")] = None,
    agent: Annotated[str | None, typer.Option(help="that name the agent so")] = None,
    user: Annotated[str | None, typer.Option(help="whose runs act for this user")] = None,
    metadata: Metadata = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="the id of the last one already seen")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, for programs")] = False,
) -> None:
    """List schedules, the newest first."""
    with connected(settings) as milepost:
        page = milepost.schedules.list(
            enabled=enabled,
            agent=agent,
            user=user,
            metadata=pairs(metadata or ()),
            limit=limit,
            after=after,
        )
    show_page(page, HEADINGS, _row_of, as_json=as_json)


@app.command()
@with_settings(CLIENT)
def get(settings: Settings, *, schedule_id: ScheduleId) -> None:
    """Print a schedule: when it comes next, and what became of it last."""
    with connected(settings) as milepost:
        show_json(milepost.schedules.get(schedule_id).raw)


@app.command()
@with_settings(CLIENT)
def create(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="its name or id")],
    words: Annotated[str, typer.Argument(metavar="INPUT", help="what each run is to do")],
    cron: Annotated[str, CRON],
    timezone: Annotated[str, TIMEZONE] = "UTC",
    name: Name = None,
    user: User = None,
    session: Session = None,
    overlap: Annotated[Overlap, OVERLAP] = "skip",
    late_max_s: LateMax = None,
    disabled: Annotated[
        bool, typer.Option("--disabled", help="make no runs until it is resumed")
    ] = False,
    metadata: Metadata = None,
) -> None:
    """Have a run made again and again, and print the schedule with the times to come."""
    run: ScheduledRun = {"agent": agent, "input": words, "user": user, "session_id": session}
    with connected(settings) as milepost:
        schedule = milepost.schedules.create(
            cron,
            run,
            timezone=timezone,
            name=name,
            overlap=overlap,
            late_max_s=late_max_s,
            enabled=not disabled,
            metadata=pairs(metadata or ()),
        )
    show_json(schedule.raw)


@app.command()
@with_settings(CLIENT)
def update(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    schedule_id: ScheduleId,
    agent: Annotated[str | None, typer.Option(help="another agent, by name or id")] = None,
    words: Annotated[str | None, typer.Option("--input", help="what each run is to do")] = None,
    cron: Annotated[str | None, CRON] = None,
    timezone: Annotated[str | None, TIMEZONE] = None,
    name: Name = None,
    user: User = None,
    session: Session = None,
    overlap: Annotated[Overlap | None, OVERLAP] = None,
    late_max_s: LateMax = None,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="as resume and pause do")
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="in place of all that it has; may be repeated"),
    ] = None,
    unset: Annotated[
        list[Droppable] | None, typer.Option(help="take this away; may be repeated")
    ] = None,
) -> None:
    """Change what is named, and print the schedule; who changes its run answers for the runs."""
    dropped = unset or ()
    given = {
        "cron": cron,
        "timezone": timezone,
        "name": name,
        "overlap": overlap,
        "late_max_s": late_max_s,
        "enabled": enabled,
        "metadata": None if metadata is None else pairs(metadata),
    }
    changes = cast("ScheduleChanges", _named(given, dropped))
    of_run = _named({"agent": agent, "input": words, "user": user, "session_id": session}, dropped)
    if not changes and not of_run:
        raise typer.BadParameter("name what is to change, such as --timezone Europe/Berlin")
    with connected(settings) as milepost:
        version = None
        if of_run:
            present = milepost.schedules.get(schedule_id)
            version = present.version
            changes["run"] = cast("ScheduledRun", {**present.run, **of_run})
        show_json(milepost.schedules.update(schedule_id, if_still=version, **changes).raw)


@app.command()
@with_settings(CLIENT)
def pause(settings: Settings, *, schedule_id: ScheduleId) -> None:
    """Let no more runs be made, until it is resumed."""
    with connected(settings) as milepost:
        show_json(milepost.schedules.update(schedule_id, enabled=False).raw)


@app.command()
@with_settings(CLIENT)
def resume(settings: Settings, *, schedule_id: ScheduleId) -> None:
    """Let runs be made again, from the next time on; what was missed is not made up for."""
    with connected(settings) as milepost:
        show_json(milepost.schedules.update(schedule_id, enabled=True).raw)


@app.command()
@with_settings(CLIENT)
def delete(settings: Settings, *, schedule_id: ScheduleId) -> None:
    """Forget a schedule; the runs that it made stay, and go on."""
    with connected(settings) as milepost:
        milepost.schedules.delete(schedule_id)


def _named(given: Mapping[str, object], dropped: Iterable[Droppable]) -> dict[str, object]:
    """Return what is to change: what has a value, and what is to be empty from now on."""
    named = {name: value for name, value in given.items() if value is not None}
    for each in dropped:
        field, empty = _EMPTY[each]
        if field in named:
            raise typer.BadParameter(f"--{each} gives what --unset {each} takes away; name one")
        if field in given:
            named[field] = empty
    return named


def _row_of(schedule: Schedule) -> Sequence[object]:
    following = schedule.next_at if schedule.enabled else "paused"
    last = schedule.last["result"] if schedule.last else None
    told = (schedule.id, schedule.name, schedule.run["agent"])
    return *told, schedule.cron, schedule.timezone, following, last
