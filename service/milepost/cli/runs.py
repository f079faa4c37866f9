"""`milepost runs`: start runs, watch them, list them, end them."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict
from typing import Annotated

import typer

from milepost.cli.calling import connected, finite, pairs
from milepost.cli.flags import CLIENT, with_settings
from milepost.cli.printing import Telling, show_json, show_line, show_table
from milepost.client import Event
from milepost.client.milepost import PATIENCE
from milepost.client.runs import RunFilters, RunOptions
from milepost.client.shapes import RunStatus
from milepost.settings import Settings

app = typer.Typer(help="Start runs, watch them, list them, end them.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for programs")]
RunId = Annotated[str, typer.Argument(metavar="RUN_ID")]
Metadata = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="may be repeated")]


@app.command()
@with_settings(CLIENT)
def create(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="its name or id")],
    words: Annotated[str, typer.Argument(metavar="INPUT", help="what the run is to do")],
    session: Annotated[str | None, typer.Option(help="the session that it goes on with")] = None,
    user: Annotated[str | None, typer.Option(help="for whom it acts")] = None,
    metadata: Metadata = None,
    priority: Annotated[int, typer.Option(min=-100, max=100)] = 0,
    deadline_s: Annotated[
        float | None, typer.Option(help="when it must have ended", callback=finite)
    ] = None,
    delay_s: Annotated[
        float | None, typer.Option(help="when it may begin", callback=finite)
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="watch it until it ends")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a run, and print it; or watch it."""
    options: RunOptions = {"priority": priority, "metadata": pairs(metadata or [])}
    if session is not None:
        options["session_id"] = session
    if user is not None:
        options["user"] = user
    if deadline_s is not None:
        options["deadline_s"] = deadline_s
    if delay_s is not None:
        options["delay_s"] = delay_s
    with connected(settings) as milepost:
        run = milepost.runs.create(agent, words, **options)
    if not stream:
        show_json(run.raw)
        return
    with connected(settings, PATIENCE) as milepost:
        _show(milepost.runs.stream(run.id), as_json=as_json)


@app.command()
@with_settings(CLIENT)
def tail(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    run_id: RunId,
    after: Annotated[str | None, typer.Option(help="the id of the last event already seen")] = None,
    types: Annotated[str, typer.Option(help="globs such as run.*,tool_call.*")] = "",
    deltas: Annotated[bool, typer.Option(help="text as it is written")] = True,
    until_waiting: Annotated[
        bool, typer.Option("--until-waiting", help="leave when the run waits for somebody")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a run from its beginning until it ends, across broken connections."""
    globs = [glob.strip() for glob in types.split(",") if glob.strip()]
    with connected(settings) as milepost:
        run = milepost.runs.get(run_id)  # A wrong address or id is told of before patience begins.
    with connected(settings, PATIENCE) as milepost:
        events = milepost.runs.stream(
            run.id, after=after, types=globs, deltas=deltas, until_waiting=until_waiting
        )
        _show(events, as_json=as_json)


@app.command("list")
@with_settings(CLIENT)
def list_runs(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    status: Annotated[RunStatus | None, typer.Option()] = None,
    agent: Annotated[str | None, typer.Option()] = None,
    session: Annotated[str | None, typer.Option()] = None,
    user: Annotated[str | None, typer.Option()] = None,
    metadata: Metadata = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="the id of the last run already seen")] = None,
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first."""
    filters: RunFilters = {
        "status": status,
        "agent": agent,
        "session_id": session,
        "user": user,
        "metadata": pairs(metadata or []),
        "limit": limit,
        "after": after,
    }
    with connected(settings) as milepost:
        page = milepost.runs.list(**filters)
    if as_json:
        for run in page.items:
            show_line(run.raw)
        return
    rows = ((run.id, run.status, run.agent, run.created_at, run.text) for run in page.items)
    show_table(("RUN", "STATUS", "AGENT", "CREATED", "OUTPUT"), rows)
    if page.next_cursor:
        typer.echo(f"There are more: --after {page.next_cursor}", err=True)


@app.command()
@with_settings(CLIENT)
def cancel(
    settings: Settings,
    run_id: RunId,
    reason: Annotated[str | None, typer.Option(help="what the log is to say")] = None,
) -> None:
    """Ask a run to end; one that is over stays as it is."""
    with connected(settings) as milepost:
        show_json(milepost.runs.cancel(run_id, reason).raw)


def _show(events: Generator[Event, None, None], *, as_json: bool) -> None:
    telling = Telling()
    with closing(events):
        for event in events:
            if as_json:
                show_line(asdict(event))
            else:
                telling.show(event)
