"""`milepost demo`: the whole journey over HTTP, as any client would make it, crash included."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import orjson
import typer

from milepost.cli.demo_service import DemoService, demo_service
from milepost.cli.printing import Telling
from milepost.client import Approval, Event, Milepost
from milepost.core.errors import MilepostError
from milepost.tools.toolbox.demo import OUTBOX

AGENT = "demo"
TERMINATED = 143
"""How shells tell that a command ended by SIGTERM."""
DELTAS_BEFORE_KILL = 8

Events = AsyncGenerator[Event, None]


def walk() -> None:
    """Walk the journey and print it. Raises `MilepostError` where it does not go as it should."""
    try:
        asyncio.run(_walk())
    except asyncio.CancelledError:
        raise typer.Exit(TERMINATED) from None


async def _walk() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with demo_service() as service, Milepost(service.base_url) as milepost:
        _say(f"A service of the demo's own runs at {service.base_url}.")
        await _arithmetic(milepost)
        parked, seen = await _park(milepost)
        await _survive(milepost, service)
        await _approve(milepost, parked, after=seen)
        await _look_back(milepost, parked.run_id)
        _count_mails(service.folder)
        code = await service.stop()
        _expect(code == 0, f"the service was asked to stop and ended with {code}")
    _say("\nThe service has drained and stopped, and its folder is gone.")


async def _arithmetic(milepost: Milepost) -> None:
    _title("1. A run, watched while it happens", "POST /v1/runs, GET /v1/runs/{id}/events")
    run = await milepost.runs.create(AGENT, "What is 17 + 25, and what is 6 times 7?")
    events = await _watch(milepost.runs.stream(run.id))
    _expect(events[-1].type == "run.completed", f"the run ended with {events[-1].type}")


async def _park(milepost: Milepost) -> tuple[Approval, str]:
    """Return the question, and the id of the last event that was seen."""
    _title("2. A call that a person must allow", "GET /v1/approvals?status=pending")
    words = "Send an email to ann@example.com saying the parcel has arrived"
    run = await milepost.runs.create(AGENT, words)
    events = await _watch(milepost.runs.stream(run.id, until_waiting=True))
    inbox = await milepost.approvals.list(status="pending")
    for each in inbox.items:
        _say(f"   {each.id}  {each.preview}  ({each.reason})")
    _expect([each.run_id for each in inbox.items] == [run.id], "the call does not wait alone")
    return inbox.items[0], events[-1].id


async def _survive(milepost: Milepost, service: DemoService) -> None:
    _title("3. kill -9 in the middle of a sentence", "the stream finds its way back by itself")
    run = await milepost.runs.create(AGENT, "Who are you?")
    events = await _watch(_with_a_crash(milepost.runs.stream(run.id), service))
    seqs = [event.seq for event in events if event.seq is not None]
    _expect(seqs == list(range(1, len(seqs) + 1)), f"the log has gaps: {seqs}")
    _expect("run.resumed" in {event.type for event in events}, "the run was not taken up again")
    _say(f"   {len(seqs)} events, numbered 1 to {len(seqs)}: none lost, none twice.")


async def _with_a_crash(events: Events, service: DemoService) -> Events:
    """Pass the events on, and crash the service while it writes."""
    deltas = 0
    async with aclosing(events):
        async for event in events:
            yield event
            deltas += event.type == "message.delta"
            if deltas == DELTAS_BEFORE_KILL:
                deltas += 1
                await service.kill()
                _say("\n\n   >>> The service was killed (SIGKILL), and is started again. <<<\n")
                await service.start()


async def _approve(milepost: Milepost, parked: Approval, *, after: str) -> None:
    _title("4. Yes", "POST /v1/approvals/{id}/decision: the question has survived, too")
    decided = await milepost.approvals.decide(parked.id, "approve", comment="fine by me")
    _say(f"   {decided.id} is {decided.status} by {decided.decided_by}")
    events = await _watch(milepost.runs.stream(parked.run_id, after=after))
    _expect(events[-1].type == "run.completed", f"the run ended with {events[-1].type}")


async def _look_back(milepost: Milepost, run_id: str) -> None:
    _title("5. Asked later", "GET /v1/runs/{id}/trace, GET /v1/runs/{id}/usage")
    trace = await milepost.runs.trace(run_id)
    _expect(bool(trace["spans"]), "the trace is empty")
    for span in sorted(trace["spans"], key=lambda span: (span["started_at"], span["seq"])):
        _say(f"   {span['name']:<28} {span['duration_ms']:>7} ms  {span['status']}")
    used = await milepost.runs.usage(run_id)
    _say(
        f"   {used['input_tokens']} tokens in, {used['output_tokens']} out,"
        f" {used['cost_usd']} dollars"
    )


def _count_mails(folder: Path) -> None:
    mails = (folder / ".milepost" / OUTBOX).read_text().splitlines()
    _expect(len(mails) == 1, f"{len(mails)} mails were written instead of one")
    _say(f"   The outbox has it, once: {orjson.loads(mails[0])['body']!r}")


async def _watch(events: Events) -> list[Event]:
    """Print events as they come; return them."""
    telling, seen = Telling(indent="  "), []
    async with aclosing(events):
        async for event in events:
            telling.show(event)
            seen.append(event)
    telling.rest()
    return seen


def _title(text: str, how: str) -> None:
    _say(f"\n{text}\n   {how}\n")


def _say(text: str) -> None:
    typer.echo(text)


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise MilepostError(f"the demo failed: {otherwise}", code="demo_failed")
