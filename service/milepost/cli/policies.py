"""`milepost policies` and `milepost grants`: which calls may be made, and who allowed them."""

from typing import Annotated

import typer

from milepost.cli.calling import connected, json_object, text_of
from milepost.cli.flags import CLIENT, with_settings
from milepost.cli.printing import show_json, show_page
from milepost.settings import Settings

Session = Annotated[
    str | None, typer.Option("--session", help="of this session, instead of the tenant's")
]

policies = typer.Typer(help="See and change which calls may be made.", no_args_is_help=True)
grants = typer.Typer(help="See what people allow for a session.", no_args_is_help=True)


@policies.command()
@with_settings(CLIENT)
def get(settings: Settings, *, session_id: Session = None) -> None:
    """Print the policy, null where there is none."""
    with connected(settings) as milepost:
        show_json(milepost.policies.get(session_id).raw)


@policies.command()
@with_settings(CLIENT)
def put(
    settings: Settings,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON; - reads what is piped in")],
    session_id: Session = None,
    if_still: Annotated[int | None, typer.Option(help="only in place of this version")] = None,
) -> None:
    """Put another policy in place of the present one, as a whole."""
    policy = json_object(text_of(file), file)
    with connected(settings) as milepost:
        show_json(milepost.policies.put(policy, session_id, if_still=if_still).raw)


@policies.command()
@with_settings(CLIENT)
def check(
    settings: Settings,
    *,
    agent: Annotated[str, typer.Argument(help="by name or id")],
    tool: Annotated[str, typer.Argument()],
    arguments: Annotated[str, typer.Argument(metavar="JSON", help="what it would get")] = "{}",
    user: Annotated[str | None, typer.Option(help="for whom it would be called")] = None,
    session_id: Annotated[str | None, typer.Option("--session", help="in this session")] = None,
) -> None:
    """Say what would become of a call, and why; it is not made. Fails where it is not allowed."""
    given = json_object(arguments, "what the tool would get")
    with connected(settings) as milepost:
        verdict = milepost.policies.check(agent, tool, given, user=user, session_id=session_id)
    show_json(verdict.raw)
    if verdict.verdict != "allow":
        raise typer.Exit(1)


@grants.command("list")
@with_settings(CLIENT)
def list_grants(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    session_id: Annotated[str | None, typer.Option("--session", help="of this session")] = None,
    tool: Annotated[str | None, typer.Option(help="of this tool")] = None,
    everything: Annotated[bool, typer.Option("--all", help="those that are over, too")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="the id of the last one already seen")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, for programs")] = False,
) -> None:
    """List what people have allowed for sessions, the newest first."""
    with connected(settings) as milepost:
        page = milepost.grants.list(
            session_id=session_id,
            tool=tool,
            active=None if everything else True,
            limit=limit,
            after=after,
        )
    show_page(
        page,
        ("GRANT", "SESSION", "TOOL", "BY"),
        lambda each: (each.id, each.session_id, each.tool, each.granted_by),
        as_json=as_json,
    )


@grants.command()
@with_settings(CLIENT)
def revoke(
    settings: Settings, *, grant_id: Annotated[str, typer.Argument(metavar="GRANT_ID")]
) -> None:
    """Take a grant back: people are asked again."""
    with connected(settings) as milepost:
        show_json(milepost.grants.revoke(grant_id).raw)
