"""`milepost retention`: how long things are kept."""

from typing import Annotated

import typer

from milepost.cli.calling import connected
from milepost.cli.flags import CLIENT, with_settings
from milepost.cli.printing import show_json
from milepost.client.users import KeptFor
from milepost.settings import Settings

FOREVER = "forever"

app = typer.Typer(help="See and change how long things are kept.", no_args_is_help=True)


def _span(text: str) -> str:
    """Refuse what says no time, before a server is asked."""
    if text != FOREVER and not (text.isascii() and text.isdecimal()):
        raise typer.BadParameter(f"{text!r} is neither seconds nor {FOREVER}")
    return text


Span = Annotated[str | None, typer.Option(parser=_span, metavar=f"SECONDS|{FOREVER}")]


@app.command()
@with_settings(CLIENT)
def show(settings: Settings) -> None:
    """Print how long things are kept, in seconds; null is for good."""
    with connected(settings) as milepost:
        show_json(milepost.users.retention().raw)


@app.command("set")
@with_settings(CLIENT)
def set_rules(
    settings: Settings,
    *,
    runs_s: Span = None,
    events_s: Span = None,
    artifacts_s: Span = None,
    traces_s: Span = None,
    memories_s: Span = None,
) -> None:
    """Say how long things are kept; what is not named stays as it is."""
    if all(each is None for each in (runs_s, events_s, artifacts_s, traces_s, memories_s)):
        raise typer.BadParameter("name what is to be kept for how long, such as --runs-s 86400")
    with connected(settings) as milepost:
        present = milepost.users.retention()
        kept = KeptFor(
            runs_s=_kept(runs_s, present.runs_s),
            events_s=_kept(events_s, present.events_s),
            artifacts_s=_kept(artifacts_s, present.artifacts_s),
            traces_s=_kept(traces_s, present.traces_s),
            memories_s=_kept(memories_s, present.memories_s),
        )
        show_json(milepost.users.keep(if_still=present.version, **kept).raw)


def _kept(said: str | None, present_s: int | None) -> int | None:
    if said is None:
        return present_s
    return None if said == FOREVER else int(said)
