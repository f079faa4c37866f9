"""`milepost memories`: what was learned of conversations."""

from collections.abc import Sequence
from typing import Annotated

import typer

from milepost.cli.calling import connected
from milepost.cli.flags import CLIENT, with_settings
from milepost.cli.printing import show_line, show_list, show_page
from milepost.client.shapes import Memory, MemoryKind, MemoryScope
from milepost.settings import Settings

app = typer.Typer(help="List, look for, export and forget what was learned.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for programs")]
Scope = Annotated[MemoryScope | None, typer.Option(help="only of this scope")]
OwnerId = Annotated[str | None, typer.Option("--owner", help="whose it is; of an agent its id")]
Kind = Annotated[MemoryKind | None, typer.Option(help="only of this kind")]
User = Annotated[str | None, typer.Option(help="only what is known about this user")]
Limit = Annotated[int, typer.Option(min=1, max=100)]

HEADINGS = ("MEMORY", "SCOPE", "OWNER", "KIND", "SAYS")


@app.command("list")
@with_settings(CLIENT)
def list_memories(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    scope: Scope = None,
    owner: OwnerId = None,
    kind: Kind = None,
    user: User = None,
    limit: Limit = 20,
    after: Annotated[str | None, typer.Option(help="the id of the last one already seen")] = None,
    as_json: AsJson = False,
) -> None:
    """List memories, the newest first."""
    with connected(settings) as milepost:
        page = milepost.memories.list(
            scope=scope, owner=owner, kind=kind, user=user, limit=limit, after=after
        )
    show_page(page, HEADINGS, _row_of, as_json=as_json)


@app.command()
@with_settings(CLIENT)
def search(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    words: Annotated[str, typer.Argument(help="what to look for")],
    scope: Scope = None,
    owner: OwnerId = None,
    kind: Kind = None,
    user: User = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Look for memories by words, the best first."""
    with connected(settings) as milepost:
        page = milepost.memories.list(
            q=words, scope=scope, owner=owner, kind=kind, user=user, limit=limit
        )
    show_list(page.items, HEADINGS, _row_of, as_json=as_json)


@app.command()
@with_settings(CLIENT)
def export(
    settings: Settings, *, user: Annotated[str, typer.Argument(help="whom they are about")]
) -> None:
    """Print all that is known about a user as JSON, a memory a line."""
    with connected(settings) as milepost:
        for each in milepost.memories.of_user(user):
            show_line(each.raw)


@app.command()
@with_settings(CLIENT)
def delete(
    settings: Settings, *, memory_id: Annotated[str, typer.Argument(metavar="MEMORY_ID")]
) -> None:
    """Forget a memory."""
    with connected(settings) as milepost:
        milepost.memories.delete(memory_id)


def _row_of(memory: Memory) -> Sequence[object]:
    return memory.id, memory.scope, memory.owner, memory.kind, _said(memory)


def _said(memory: Memory) -> str:
    terms = (memory.subject, memory.predicate, memory.object, memory.content)
    return " ".join(" ".join(term.split()) for term in terms if term)
