"""`milepost batches`: many runs of one agent at once."""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Annotated

import orjson
import typer

from milepost.cli.calling import connected, finite, pairs, text_of
from milepost.cli.flags import CLIENT, with_settings
from milepost.cli.printing import show_json, show_line, show_list, show_page
from milepost.client.batches import Item, UploadOptions
from milepost.client.milepost import PATIENCE
from milepost.client.shapes import Batch, BatchProgress, BatchResult, BatchStatus
from milepost.settings import Settings

app = typer.Typer(help="Make many runs at once, follow them, end them.", no_args_is_help=True)

BatchId = Annotated[str, typer.Argument(metavar="BATCH_ID")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for programs")]
Metadata = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="may be repeated")]


@app.command("list")
@with_settings(CLIENT)
def list_batches(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    status: Annotated[BatchStatus | None, typer.Option()] = None,
    agent: Annotated[str | None, typer.Option()] = None,
    user: Annotated[str | None, typer.Option()] = None,
    made_by: Annotated[str | None, typer.Option(metavar="KEY_ID")] = None,
    metadata: Metadata = None,
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    after: Annotated[str | None, typer.Option(help="the id of the last one already seen")] = None,
    as_json: AsJson = False,
) -> None:
    """List batches, the newest first."""
    with connected(settings) as milepost:
        page = milepost.batches.list(
            status=status,
            agent=agent,
            user=user,
            made_by=made_by,
            metadata=pairs(metadata or ()),
            limit=limit,
            after=after,
        )
    show_page(page, ("BATCH", "STATUS", "AGENT", "DONE", "OF", "CREATED"), _row_of, as_json=as_json)


@app.command()
@with_settings(CLIENT)
def get(settings: Settings, *, batch_id: BatchId) -> None:
    """Print a batch, and how far it is."""
    with connected(settings) as milepost:
        show_json(milepost.batches.get(batch_id).raw)


@app.command()
@with_settings(CLIENT)
def create(  # noqa: PLR0913 - a command's flags
    settings: Settings,
    *,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="its name or id")],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="its items, one a line in JSON; `-` for what is piped in"
        ),
    ],
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="how many are under way at once")
    ] = None,
    user: Annotated[str | None, typer.Option(help="for whom the runs act")] = None,
    metadata: Metadata = None,
    priority: Annotated[int | None, typer.Option(min=-100, max=100)] = None,
    deadline_s: Annotated[
        float | None, typer.Option(help="how long each run may take", callback=finite)
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="watch it until it is over")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a run of each item of a file, and print the batch; or watch it."""
    options: UploadOptions = {"metadata": pairs(metadata or ())}
    if concurrency is not None:
        options["concurrency"] = concurrency
    if user is not None:
        options["user"] = user
    if priority is not None:
        options["priority"] = priority
    if deadline_s is not None:
        options["deadline_s"] = deadline_s
    items = list(_items(text_of(file), file))
    with connected(settings) as milepost:
        batch = milepost.batches.upload(agent, items, **options)
    if not stream:
        show_json(batch.raw)
        return
    with connected(settings, PATIENCE) as milepost:
        _show_progress(milepost.batches.stream(batch.id), as_json=as_json)


@app.command()
@with_settings(CLIENT)
def tail(settings: Settings, *, batch_id: BatchId, as_json: AsJson = False) -> None:
    """Watch how far a batch is, until it is over."""
    with connected(settings) as milepost:
        batch = milepost.batches.get(batch_id)  # A wrong address or id is told of before patience.
    with connected(settings, PATIENCE) as milepost:
        _show_progress(milepost.batches.stream(batch.id), as_json=as_json)


@app.command()
@with_settings(CLIENT)
def results(
    settings: Settings,
    *,
    batch_id: BatchId,
    done: Annotated[bool, typer.Option("--done", help="only of items that are over")] = False,
    as_json: AsJson = False,
) -> None:
    """Print what became of the items, in their order."""
    with connected(settings) as milepost:
        found = milepost.batches.results(batch_id, done=done)
        show_list(found, ("INDEX", "ID", "STATUS", "RUN", "OUTPUT"), _result_of, as_json=as_json)


@app.command()
@with_settings(CLIENT)
def cancel(
    settings: Settings,
    *,
    batch_id: BatchId,
    reason: Annotated[str | None, typer.Option()] = None,
) -> None:
    """Let no other item begin, and stop those under way."""
    with connected(settings) as milepost:
        show_json(milepost.batches.cancel(batch_id, reason).raw)


@app.command()
@with_settings(CLIENT)
def delete(settings: Settings, *, batch_id: BatchId) -> None:
    """Erase a batch that is over; its runs stay."""
    with connected(settings) as milepost:
        milepost.batches.delete(batch_id)


def _items(text: str, file: str) -> Iterator[Item]:
    """Yield the items of a file; a line may be an input alone. Refuse what is neither."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            item = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise typer.BadParameter(f"line {number} of {file} is not JSON: {error}") from error
        if not isinstance(item, str | dict):
            raise typer.BadParameter(
                f'line {number} of {file} is no item, such as {{"input": "Hello"}}'
            )
        yield item


def _show_progress(stream: Generator[BatchProgress, None, None], *, as_json: bool) -> None:
    with closing(stream):
        for progress in stream:
            if as_json:
                show_line(asdict(progress))
                continue
            counts = (f"{count} {name}" for name, count in progress.counts.items() if count)
            told = ", ".join(each for each in counts if not each.endswith(" total"))
            typer.echo(f"{progress.status:<10} {progress.done} of {progress.total}: {told}")


def _row_of(batch: Batch) -> tuple[object, ...]:
    return (batch.id, batch.status, batch.agent, batch.done, batch.total, batch.created_at)


def _result_of(result: BatchResult) -> tuple[object, ...]:
    return (result.index, result.custom_id, result.status, result.run_id, result.text)
