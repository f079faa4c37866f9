"""`milepost approvals`: see what waits for a person, and answer."""

from contextlib import closing
from typing import Annotated, Any

import orjson
import typer

from milepost.cli.calling import connected, finite
from milepost.cli.flags import CLIENT, with_settings
from milepost.cli.printing import one_line, show_json, show_line, show_page
from milepost.client.approvals import ApprovalFilters, DecisionOptions, FollowFilters
from milepost.client.milepost import PATIENCE
from milepost.client.shapes import ApprovalStatus, Decision
from milepost.settings import Settings

app = typer.Typer(help="See what waits for a person, and answer.", no_args_is_help=True)


AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for programs")]
Run = Annotated[str | None, typer.Option(metavar="RUN_ID", help="of this run")]
Tool = Annotated[str | None, typer.Option(help="of this tool")]
Mine = Annotated[bool, typer.Option("--mine", help="those that one may approve oneself")]


@app.command("list")
@with_settings(CLIENT)
def list_approvals(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    status: Annotated[ApprovalStatus, typer.Option(help="pending is the inbox")] = "pending",
    run: Run = None,
    tool: Tool = None,
    mine: Mine = False,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="the id of the last one already seen")] = None,
    as_json: AsJson = False,
) -> None:
    """List approvals, the newest first."""
    filters: ApprovalFilters = {
        "status": status,
        "run_id": run,
        "tool": tool,
        "mine": mine or None,
        "limit": limit,
        "after": after,
    }
    with connected(settings) as milepost:
        page = milepost.approvals.list(**filters)
    show_page(
        page,
        ("APPROVAL", "STATUS", "RUN", "CALL"),
        lambda each: (each.id, each.status, each.run_id, each.preview),
        as_json=as_json,
    )


@app.command()
@with_settings(CLIENT)
def get(
    settings: Settings,
    *,
    approval_id: Annotated[str, typer.Argument(metavar="APPROVAL_ID")],
) -> None:
    """Print an approval: the whole call, why it is asked, and what was said before it."""
    with connected(settings) as milepost:
        show_json(milepost.approvals.get(approval_id).raw)


@app.command()
@with_settings(CLIENT)
def tail(
    settings: Settings,
    *,
    run: Run = None,
    tool: Tool = None,
    mine: Mine = False,
    after: Annotated[str | None, typer.Option(help="the id of the last change seen")] = None,
    as_json: AsJson = False,
) -> None:
    """Watch the inbox: what waits, and then every change, across broken connections."""
    filters: FollowFilters = {"run_id": run, "tool": tool, "mine": mine or None}
    with connected(settings) as milepost:
        milepost.approvals.list(limit=1)  # A wrong address or key is told of before patience.
    with (
        connected(settings, PATIENCE) as milepost,
        closing(milepost.approvals.follow(after=after, **filters)) as changes,
    ):
        for change in changes:
            approval = change.approval
            if as_json:
                said = {"type": change.type, "id": change.id, "approval": approval.raw}
                show_line(said)
            else:
                kind = change.type.removeprefix("approval.")
                preview = one_line(approval.preview)
                typer.echo(f"{kind:<10}  {approval.status:<10}  {approval.id}  {preview}")


@app.command()
@with_settings(CLIENT)
def decide(  # noqa: PLR0913 - an option each
    settings: Settings,
    *,
    approval_id: Annotated[str, typer.Argument(metavar="APPROVAL_ID")],
    decision: Annotated[
        Decision, typer.Argument(metavar="approve|deny|happened|not_happened|stop")
    ],
    comment: Annotated[str | None, typer.Option(help="what the log is to say")] = None,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="approve the call with these instead")
    ] = None,
    digest: Annotated[str | None, typer.Option(help="the digest of the call that was seen")] = None,
    result: Annotated[
        str | None, typer.Option(metavar="JSON", help="what a call that happened has brought")
    ] = None,
    remember_s: Annotated[
        float | None,
        typer.Option(help="allow the same call for so long in the session", callback=finite),
    ] = None,
) -> None:
    """Answer a question; the first answer counts."""
    options: DecisionOptions = {"comment": comment, "digest": digest}
    if arguments is not None:
        options["arguments"] = _object(arguments)
    if result is not None:
        options["result"] = _json("--result", result)
    if remember_s is not None:
        options["remember"] = {"for": "session", "ttl_s": remember_s}
    with connected(settings) as milepost:
        show_json(milepost.approvals.decide(approval_id, decision, **options).raw)


@app.command()
@with_settings(CLIENT)
def withdraw(
    settings: Settings,
    *,
    approval_id: Annotated[str, typer.Argument(metavar="APPROVAL_ID")],
    reason: Annotated[str | None, typer.Option(help="what the log is to say")] = None,
) -> None:
    """Take a question back, which means no."""
    with connected(settings) as milepost:
        show_json(milepost.approvals.withdraw(approval_id, reason=reason).raw)


def _json(option: str, text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"{option} is not JSON: {error}") from error


def _object(text: str) -> dict[str, object]:
    value = _json("--arguments", text)
    if not isinstance(value, dict):
        raise typer.BadParameter('--arguments is a JSON object, such as \'{"to": "a@b.c"}\'')
    return value
