"""`milepost approvals`: see what waits for a person, and answer."""

from typing import Annotated

import orjson
import typer

from milepost.cli.calling import connected
from milepost.cli.flags import CLIENT, with_settings
from milepost.cli.printing import show_json, show_line, show_table
from milepost.client.approvals import DecisionOptions
from milepost.client.shapes import ApprovalStatus, Decision
from milepost.settings import Settings

app = typer.Typer(help="See what waits for a person, and answer.", no_args_is_help=True)


@app.command("list")
@with_settings(CLIENT)
def list_approvals(
    settings: Settings,
    *,
    status: Annotated[ApprovalStatus, typer.Option(help="pending is the inbox")] = "pending",
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="the id of the last one already seen")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, for programs")] = False,
) -> None:
    """List approvals, the newest first."""
    with connected(settings) as milepost:
        page = milepost.approvals.list(status=status, limit=limit, after=after)
    if as_json:
        for each in page.items:
            show_line(each.raw)
        return
    rows = ((each.id, each.status, each.run_id, each.preview) for each in page.items)
    show_table(("APPROVAL", "STATUS", "RUN", "CALL"), rows)
    if page.next_cursor:
        typer.echo(f"There are more: --after {page.next_cursor}", err=True)


@app.command()
@with_settings(CLIENT)
def decide(
    settings: Settings,
    *,
    approval_id: Annotated[str, typer.Argument(metavar="APPROVAL_ID")],
    decision: Annotated[Decision, typer.Argument(metavar="approve|deny")],
    comment: Annotated[str | None, typer.Option(help="what the log is to say")] = None,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="approve the call with these instead")
    ] = None,
    digest: Annotated[str | None, typer.Option(help="the digest of the call that was seen")] = None,
) -> None:
    """Approve or deny a call; the first answer counts."""
    options: DecisionOptions = {"comment": comment, "digest": digest}
    if arguments is not None:
        options["arguments"] = _object(arguments)
    with connected(settings) as milepost:
        show_json(milepost.approvals.decide(approval_id, decision, **options).raw)


def _object(text: str) -> dict[str, object]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"--arguments is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise typer.BadParameter('--arguments is a JSON object, such as \'{"to": "a@b.c"}\'')
    return value
