"""The demo's tools do what they say, and say what they do."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from milepost.core.errors import ToolError
from milepost.core.json import Json
from milepost.tools import Invoker, Registry, Tool, ToolContext, ToolThreads
from milepost.tools.toolbox.demo import OUTBOX, demo_tools

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def demo(tmp_path: Path) -> Registry:
    """Return the demo's tools at a fixed time."""
    return Registry(demo_tools(tmp_path / "demo", lambda: NOW))


@pytest.fixture
def invoker(threads: ToolThreads) -> Invoker:
    """Return what runs tools."""
    return Invoker(threads)


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("add", {"a": 2, "b": 3}, 5),
        ("add", {"a": "2", "b": 0.5}, 2.5),
        ("multiply", {"a": 6, "b": 7}, 42),
        ("current_time", {}, "2026-01-02T03:04:05+00:00"),
        ("current_time", {"timezone": "utc"}, "2026-01-02T03:04:05+00:00"),
        ("current_time", {"timezone": "Asia/Kolkata"}, "2026-01-02T08:34:05+05:30"),
    ],
)
async def test_the_demo_calculates_and_tells_the_time(
    demo: Registry,
    invoker: Invoker,
    context: ToolContext,
    name: str,
    arguments: dict[str, Json],
    result: Json,
) -> None:
    assert await invoker.invoke(tool_named(demo, name), arguments, context) == result


@pytest.mark.parametrize("timezone", ["Mars/Base", "../etc/passwd", ""])
async def test_an_unknown_time_zone_is_answered_with_a_known_one(
    demo: Registry, invoker: Invoker, context: ToolContext, timezone: str
) -> None:
    with pytest.raises(ToolError, match="use an IANA name such as Europe/Oslo"):
        await invoker.invoke(tool_named(demo, "current_time"), {"timezone": timezone}, context)


async def test_an_email_goes_into_a_file_and_says_so(
    demo: Registry, invoker: Invoker, context: ToolContext, tmp_path: Path
) -> None:
    arguments: dict[str, Json] = {"to": "a@b.c", "subject": "hi", "body": "Grüße\nhier"}

    await invoker.invoke(tool_named(demo, "send_email"), arguments, context)
    result = await invoker.invoke(tool_named(demo, "send_email"), arguments, context)

    lines = (tmp_path / "demo" / OUTBOX).read_text(encoding="utf-8").splitlines()
    assert "not sent" in str(result)
    assert len(lines) == 2
    assert json.loads(lines[0]) == {
        **arguments,
        "time": "2026-01-02T03:04:05+00:00",
        "run_id": "run_1",
        "idempotency_key": "key-1",
    }


def test_sending_is_gated_and_never_repeated_and_the_rest_only_reads(demo: Registry) -> None:
    gates = {tool.name: (tool.effect, tool.requires_approval) for tool in demo}

    assert gates == {
        "add": ("read", False),
        "multiply": ("read", False),
        "current_time": ("read", False),
        "send_email": ("once", True),
    }


def test_the_real_clock_is_the_default(tmp_path: Path) -> None:
    current_time = tool_named(Registry(demo_tools(tmp_path)), "current_time")

    assert datetime.fromisoformat(str(current_time.function())).tzinfo is not None


def tool_named(registry: Registry, name: str) -> Tool:
    """Return the tool, which must be there."""
    tool = registry.get(name)
    assert tool is not None
    return tool
