"""Every command that talks to a server says in one line that what answers is none of Milepost's."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from milepost.cli.commands import app
from tests.cli.typed import FAILED, typed
from tests.client.scripted_server import answer, scripted

GIVEN = {
    "at_seq": ["1"],
    "decision": ["approve"],
    "cron": ["--cron", "0 0 1 1 *"],
    "set": ["--runs-s", "60"],
    "update": ["--timezone", "UTC"],
}


def commands(group: Any, *path: str) -> Iterator[list[str]]:
    """Yield the words of every command that takes a server's address."""
    for name, each in getattr(group, "commands", {}).items():
        yield from commands(each, *path, name)
    if any(each.name == "base_url" for each in group.params):
        required = [each.name for each in group.params if each.required]
        given = [word for name in required for word in GIVEN.get(name, ["x"])]
        yield [*path, *given, *GIVEN.get(path[-1], [])]


@pytest.mark.parametrize("words", [*commands(typer.main.get_command(app))], ids=" ".join)
async def test_every_command_notices_json_of_somebody_else(
    words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("{}")

    async with scripted([answer("200 OK", {"a": 1})] * 2) as server:
        at = {"MILEPOST_BASE_URL": server.base_url}
        said = await asyncio.to_thread(typed, tmp_path, *words, **at)

    assert "is no Milepost server: " in said.complaint
    assert (said.code, said.out) == (FAILED, "")


@pytest.mark.parametrize("words", ["batches list", "schedules list", "runs tool-calls x"])
async def test_a_list_of_somebody_elses_things_ends_in_one_line(words: str, tmp_path: Path) -> None:
    things = [{"id": "x", "call_id": "x", "output": "hello", "run": 1, "error": {}}]

    async with scripted([answer("200 OK", {"object": "list", "data": things})]) as server:
        at = {"MILEPOST_BASE_URL": server.base_url}
        said = await asyncio.to_thread(typed, tmp_path, *words.split(), **at)

    assert "is no Milepost server: " in said.complaint
    assert (said.code, said.out) == (FAILED, "")


async def test_what_somebody_else_says_is_no_command_to_the_terminal(tmp_path: Path) -> None:
    refusal = {"code": "gone", "detail": "gone\x1b[2J\u2028to \x9b1A"}

    async with scripted([answer("410 Gone", refusal)]) as server:
        at = {"MILEPOST_BASE_URL": server.base_url}
        said = await asyncio.to_thread(typed, tmp_path, "runs", "get", "x", **at)

    assert said.complaint == r"gone\x1b[2J to \x9b1A"
