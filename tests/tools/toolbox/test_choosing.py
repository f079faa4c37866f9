"""Which tools of the toolbox there are, how they ask people, and how they reach the web."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milepost.core.errors import ConfigurationError, ToolError
from milepost.tools import ToolContext
from milepost.tools.context import Approved
from milepost.tools.egress import Egress, open_egress
from milepost.tools.toolbox.asking import ask_user
from milepost.tools.toolbox.choosing import toolbox
from milepost.tools.toolbox.web import http_get_over
from tests.api.serving import serving, settings_for
from tests.stubs.web_server import saying, web_server

ALL = (
    "ask_user", "calculator", "current_time", "http_get", "json_query", "list_files", "read_file",
    "table_from_csv", "text_search", "write_file",
)  # fmt: skip


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    """A way out to the public web alone."""
    async with open_egress() as egress:
        yield egress


def test_only_what_is_named_is_there(egress: Egress, tmp_path: Path) -> None:
    assert toolbox([], egress) == []
    assert [tool.name for tool in toolbox(["calculator"], egress)] == ["calculator"]
    assert [tool.name for tool in toolbox(ALL, egress, tmp_path)] == list(ALL)


@pytest.mark.parametrize(
    ("name", "root", "words"),
    [
        ("hammer", None, "the toolbox has no 'hammer'; it has: ask_user, calculator"),
        ("read_file", None, "name it with --files-root"),
        ("read_file", "nowhere", "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_had_keeps_the_service_from_starting(
    egress: Egress, name: str, root: str | None, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        toolbox([name], egress, Path(root) if root else None)


async def test_an_installation_has_none_of_it_unless_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/milepost.db"

    async def names(**changes: Any) -> set[str]:
        settings = settings_for(url, **changes)
        async with serving(settings) as service, service.client() as client:
            listed = (await client.get("/v1/tools")).json()["data"]
        return {tool["name"] for tool in listed}

    assert "calculator" not in await names()
    chosen = await names(toolbox="calculator,current_time,read_file", files_root=str(tmp_path))
    assert chosen == {
        "add", "multiply", "send_email", "calculator", "current_time", "read_file",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("approval", "answer"),
    [
        (Approved("key_1", "the blue one"), "the blue one"),
        (Approved("key_1"), "They said yes to 'Which one?', and nothing else."),
    ],
)
def test_the_answer_to_a_question_is_the_comment_of_who_approves_it(
    context: ToolContext, approval: Approved, answer: str
) -> None:
    assert ask_user("Which one?", replace(context, approval=approval)) == answer


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1/", "no public address"),
        ("http://169.254.169.254/latest", "no public address"),
        ("file:///etc/passwd", "http"),
        ("http://[::1", "no URL"),
    ],
)
async def test_nothing_inside_is_read_over_the_web(egress: Egress, url: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        await http_get_over(egress).function(url)


async def test_what_may_be_reached_is_read_with_its_status() -> None:
    async with web_server(saying({"sum": 42})) as server, open_egress(["127.0.0.1"]) as egress:
        answer = await http_get_over(egress).function(server.url)

    assert (answer["status"], answer["media_type"]) == (200, "application/json")
    assert "42" in answer["text"]
    assert answer["cut"] is False
