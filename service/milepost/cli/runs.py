"""`milepost runs`: start runs, look at them, say something to them, end them."""

import json
from typing import Annotated

import typer

from milepost.cli.calling import connected, finite, pairs
from milepost.cli.flags import CLIENT, with_settings
from milepost.cli.printing import show_events, show_json, show_page
from milepost.client.milepost import PATIENCE
from milepost.client.runs import ForkOptions, RunFilters, RunOptions, ToolCallFilters
from milepost.client.shapes import Run, RunStatus, ToolCall, ToolCallState
from milepost.settings import Settings

app = typer.Typer(
    help="Start runs, look at them, say something to them, end them.", no_args_is_help=True
)

COMPLETED = "run.completed"

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
    """Start a run, and print it; or watch it. Watched, it fails unless the run completes."""
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
        last = show_events(milepost.runs.stream(run.id), as_json=as_json)
    if last != COMPLETED:
        raise typer.Exit(1)


@app.command()
@with_settings(CLIENT)
def get(
    settings: Settings,
    *,
    run_id: RunId,
    wait_s: Annotated[
        float | None,
        typer.Option(
            "--wait", metavar="SECONDS", min=0, help="for its end, so long at most", callback=finite
        ),
    ] = None,
) -> None:
    """Print a run as it is; with --wait, as it is at its end or when the time is up."""
    with connected(settings) as milepost:
        run = milepost.runs.get(run_id)  # A wrong address or id is told of before patience begins.
    if wait_s is not None and not run.ended:
        run = _waited_for(settings, run_id, wait_s)
    show_json(run.raw)


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
        show_events(events, as_json=as_json)


@app.command("list")
@with_settings(CLIENT)
def list_runs(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    status: Annotated[RunStatus | None, typer.Option()] = None,
    agent: Annotated[str | None, typer.Option()] = None,
    session: Annotated[str | None, typer.Option()] = None,
    user: Annotated[str | None, typer.Option()] = None,
    made_by: Annotated[str | None, typer.Option(metavar="KEY_ID")] = None,
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
        "made_by": made_by,
        "metadata": pairs(metadata or []),
        "limit": limit,
        "after": after,
    }
    with connected(settings) as milepost:
        page = milepost.runs.list(**filters)
    show_page(
        page,
        ("RUN", "STATUS", "AGENT", "CREATED", "OUTPUT"),
        lambda run: (run.id, run.status, run.agent, run.created_at, run.text),
        as_json=as_json,
    )


@app.command("tool-calls")
@with_settings(CLIENT)
def tool_calls(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    run_id: RunId,
    state: Annotated[ToolCallState | None, typer.Option()] = None,
    tool: Annotated[str | None, typer.Option()] = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="the former page's next_cursor")] = None,
    as_json: AsJson = False,
) -> None:
    """List what became of a run's tool calls."""
    filters: ToolCallFilters = {"state": state, "tool": tool, "limit": limit, "after": after}
    with connected(settings) as milepost:
        page = milepost.runs.tool_calls(run_id, **filters)
    show_page(page, ("CALL", "TOOL", "STATE", "TRIES", "CAME TO"), _row_of, as_json=as_json)


@app.command()
@with_settings(CLIENT)
def say(
    settings: Settings,
    *,
    run_id: RunId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="what its model is to read next")],
) -> None:
    """Say something to a run that is under way, and print the message's id."""
    with connected(settings) as milepost:
        show_json({"message_id": milepost.runs.steer(run_id, text), "run_id": run_id})


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


@app.command()
@with_settings(CLIENT)
def retry(settings: Settings, *, run_id: RunId) -> None:
    """Send a run on that waits for an operator, since its workers crashed; print it."""
    with connected(settings) as milepost:
        show_json(milepost.runs.retry(run_id).raw)


@app.command()
@with_settings(CLIENT)
def fork(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    run_id: RunId,
    at_seq: Annotated[int, typer.Argument(metavar="SEQ", min=1, help="the event to go on behind")],
    agent: Annotated[str | None, typer.Option(help="another agent, by name or id")] = None,
    agent_version: Annotated[int | None, typer.Option(min=1, help="a version of it")] = None,
    words: Annotated[str | None, typer.Option("--input", help="what is said next")] = None,
    user: Annotated[str | None, typer.Option(help="for whom it acts")] = None,
    metadata: Metadata = None,
) -> None:
    """Start a run that goes on from the middle of another one, and print it."""
    options: ForkOptions = {"metadata": pairs(metadata or [])}
    if agent is not None:
        options["agent"] = agent
    if agent_version is not None:
        options["agent_version"] = agent_version
    if words is not None:
        options["input"] = words
    if user is not None:
        options["user"] = user
    with connected(settings) as milepost:
        show_json(milepost.runs.fork(run_id, at_seq, **options).raw)


@app.command()
@with_settings(CLIENT)
def replay(
    settings: Settings,
    *,
    run_id: RunId,
    agent: Annotated[str | None, typer.Option(help="another agent, by name or id")] = None,
    agent_version: Annotated[int | None, typer.Option(min=1, help="a version of it")] = None,
) -> None:
    """Play a run's log again, calling nobody. Fails where the agent would have done otherwise."""
    with connected(settings) as milepost:
        replayed = milepost.runs.replay(run_id, agent, agent_version)
    show_json(replayed.raw)
    if not replayed.identical:
        raise typer.Exit(1)


def _waited_for(settings: Settings, run_id: str, wait_s: float) -> Run:
    with connected(settings, PATIENCE) as milepost:
        try:
            return milepost.runs.wait(run_id, timeout_s=wait_s)
        except TimeoutError:
            return milepost.runs.get(run_id)


def _row_of(call: ToolCall) -> tuple[str, ...]:
    came_to = call.result if call.error is None else call.error.get("message")
    shown = came_to if isinstance(came_to, str) else json.dumps(came_to, ensure_ascii=False)
    tries = str(len(call.attempts))
    return call.call_id, call.tool, call.state, tries, "" if came_to is None else shown
