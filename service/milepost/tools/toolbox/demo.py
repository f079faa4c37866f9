"""The tools of the offline demo: small, real, and harmless. Mail goes into a file."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from milepost.tools.context import ToolContext
from milepost.tools.decorator import tool, tool_of
from milepost.tools.definition import Tool
from milepost.tools.toolbox.clock import clock

OUTBOX = "outbox.jsonl"


def demo_tools(folder: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> list[Tool]:
    """Return the demo's tools; `send_email` writes below `folder`, `now` is an aware clock."""

    @tool(requires_approval=True)
    def send_email(
        to: Annotated[str, "The recipient's address"],
        subject: str,
        body: str,
        context: ToolContext,
    ) -> str:
        """Send an email. This is a demo: it is written to a file and reaches nobody."""
        mail = {
            "to": to,
            "subject": subject,
            "body": body,
            "time": now().isoformat(timespec="seconds"),
            "run_id": context.run_id,
            "idempotency_key": context.idempotency_key,
        }
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / OUTBOX).open("a", encoding="utf-8") as outbox:
            outbox.write(json.dumps(mail, ensure_ascii=False) + "\n")
        return f"Written to {OUTBOX}, not sent: this demo has no mail server. Recipient: {to}"

    return [tool_of(add), tool_of(multiply), clock(now), tool_of(send_email)]


@tool(effect="read")
async def add(a: int | float, b: int | float) -> int | float:
    """Add two numbers."""
    return a + b


@tool(effect="read")
async def multiply(a: int | float, b: int | float) -> int | float:
    """Multiply two numbers."""
    return a * b
