"""`milepost schedules`: runs that come again and again."""

from collections.abc import Sequence
from typing import Annotated

import typer

from milepost.cli.calling import connected, finite
from milepost.cli.flags import CLIENT, with_settings
from milepost.cli.printing import show_json, show_page
from milepost.client.shapes import Overlap, Schedule, ScheduledRun
from milepost.settings import Settings

app = typer.Typer(help="Have runs made again and again, and pause that.", no_args_is_help=True)

ScheduleId = Annotated[str, typer.Argument(metavar="SCHEDULE_ID")]

HEADINGS = ("SCHEDULE", "NAME", "AGENT", "CRON", "TIMEZONE", "NEXT", "LAST")


@app.command("list")
@with_settings(CLIENT)
def list_schedules(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    enabled: Annotated[bool | None, typer.Option("--enabled/--paused", help="only these")] = None,
    agent: Annotated[str | None, typer.Option(help="that name the agent so")] = None,
    user: Annotated[str | None, typer.Option(help="whose runs act for this user")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="the id of the last one already seen")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, for programs")] = False,
) -> None:
    """List schedules, the newest first."""
    with connected(settings) as milepost:
        page = milepost.schedules.list(
            enabled=enabled, agent=agent, user=user, limit=limit, after=after
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
    cron: Annotated[str, typer.Option(help="when: minute, hour, day, month and weekday")],
    timezone: Annotated[str, typer.Option(help="on whose clock, such as Europe/Berlin")] = "UTC",
    name: Annotated[str | None, typer.Option(help="what people call it")] = None,
    user: Annotated[str | None, typer.Option(help="for whom the runs act")] = None,
    session: Annotated[
        str | None, typer.Option(help="the session that they go on with, instead of one each")
    ] = None,
    overlap: Annotated[
        Overlap, typer.Option(help="what becomes of a time while the last run is not over")
    ] = "skip",
    late_max_s: Annotated[
        float | None,
        typer.Option(help="how late a run may be made; unset: however late", callback=finite),
    ] = None,
) -> None:
    """Have a run made again and again, and print the schedule with the times to come."""
    run: ScheduledRun = {"agent": agent, "input": words, "user": user, "session_id": session}
    with connected(settings) as milepost:
        schedule = milepost.schedules.create(
            cron, run, timezone=timezone, name=name, overlap=overlap, late_max_s=late_max_s
        )
    show_json(schedule.raw)


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


def _row_of(schedule: Schedule) -> Sequence[object]:
    following = schedule.next_at if schedule.enabled else "paused"
    last = schedule.last["result"] if schedule.last else None
    told = (schedule.id, schedule.name, schedule.run["agent"])
    return *told, schedule.cron, schedule.timezone, following, last
