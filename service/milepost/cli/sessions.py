"""`milepost sessions`: conversations, what happens in them, and taking them elsewhere."""

from typing import Annotated, Literal

import typer

from milepost.cli.calling import connected, json_object, pairs, text_of
from milepost.cli.flags import CLIENT, with_settings
from milepost.cli.printing import show_events, show_json, show_page
from milepost.client.milepost import PATIENCE
from milepost.settings import Settings

app = typer.Typer(
    help="Find conversations, follow them, fork them, take them elsewhere.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for programs")]
SessionId = Annotated[str, typer.Argument(metavar="SESSION_ID")]


@app.command("list")
@with_settings(CLIENT)
def list_sessions(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    title: Annotated[str | None, typer.Option(help="with this in the title")] = None,
    user: Annotated[str | None, typer.Option()] = None,
    kind: Annotated[
        Literal["chat", "child", "trial", "any"], typer.Option(help="what they were made for")
    ] = "chat",
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="may be repeated")
    ] = None,
    archived: Annotated[
        bool | None, typer.Option("--archived/--not-archived", help="only these")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="the id of the last one already seen")] = None,
    as_json: AsJson = False,
) -> None:
    """List sessions, the newest first."""
    with connected(settings) as milepost:
        page = milepost.sessions.list(
            title=title,
            user=user,
            kind=kind,
            metadata=pairs(metadata or ()),
            archived=archived,
            limit=limit,
            after=after,
        )
    show_page(
        page,
        ("SESSION", "USER", "TITLE", "RUNS", "UPDATED"),
        lambda s: (s.id, s.user, s.title, s.runs_ended, s.updated_at),
        as_json=as_json,
    )


@app.command()
@with_settings(CLIENT)
def tail(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    session_id: SessionId,
    after: Annotated[str | None, typer.Option(help="the id of the last event already seen")] = None,
    types: Annotated[str, typer.Option(help="globs such as run.*,tool_call.*")] = "",
    deltas: Annotated[bool, typer.Option(help="text as it is written")] = True,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="leave when no run is under way")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Watch what happens in a session, run after run, across broken connections."""
    globs = [glob.strip() for glob in types.split(",") if glob.strip()]
    with connected(settings) as milepost:
        found = milepost.sessions.get(session_id)  # A wrong id is told of before patience begins.
    with connected(settings, PATIENCE) as milepost:
        events = milepost.sessions.stream(
            found.id, after=after, types=globs, deltas=deltas, until_idle=until_idle
        )
        show_events(events, as_json=as_json)


@app.command()
@with_settings(CLIENT)
def archive(
    settings: Settings,
    *,
    session_id: SessionId,
    undo: Annotated[bool, typer.Option("--undo", help="take it out of the archive")] = False,
) -> None:
    """Put a session away: it takes no more runs, and all of it can be read."""
    with connected(settings) as milepost:
        show_json(milepost.sessions.update(session_id, archived=not undo).raw)


@app.command()
@with_settings(CLIENT)
def fork(
    settings: Settings,
    *,
    session_id: SessionId,
    at: Annotated[str | None, typer.Option(metavar="PLACE", help="the last shared message")] = None,
    title: Annotated[str | None, typer.Option()] = None,
) -> None:
    """Begin a session that shares another one's past and goes its own way."""
    with connected(settings) as milepost:
        show_json(milepost.sessions.fork(session_id, at=at, title=title).raw)


@app.command()
@with_settings(CLIENT)
def export(settings: Settings, *, session_id: SessionId) -> None:
    """Print a session as JSON, to be taken elsewhere."""
    with connected(settings) as milepost:
        show_json(milepost.sessions.export(session_id))


@app.command("import")
@with_settings(CLIENT)
def take_in(
    settings: Settings,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON; - reads what is piped in")],
) -> None:
    """Make a session out of one that was exported, here or elsewhere."""
    exported = json_object(text_of(file), file)
    with connected(settings) as milepost:
        show_json(milepost.sessions.import_(exported).raw)
