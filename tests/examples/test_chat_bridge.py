"""The example's bridge: a talk in a terminal, and webhooks, against a real service."""

import asyncio
import hashlib
import hmac
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web

from examples import chat_bridge
from tests.journeys.processes import Server, installed

BRIDGE = Path(chat_bridge.__file__)
MAIL = "Send a mail to ann@example.com about lunch saying hello"
SECRET = "the app's own"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A service with the demo agent, whose mails are gated."""
    environment = {"MILEPOST_DEMO_WORD_DELAY_S": "0", "PATH": os.environ["PATH"]}
    async with installed(tmp_path, environment) as installation:
        yield await installation.start()


@asynccontextmanager
async def bridge(server: Server, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the example."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(BRIDGE), "--agent", "demo", *arguments),
        env={
            **os.environ,
            "MILEPOST_BASE_URL": str(server.http.base_url),
            "WHATSAPP_APP_SECRET": SECRET,
            "WHATSAPP_TOKEN": "t",
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def mails(folder: Path) -> list[str]:
    outbox = folder / ".milepost" / "outbox.jsonl"
    return outbox.read_text().splitlines() if outbox.exists() else []


async def typed(server: Server, *lines: str) -> str:
    """Return what the bridge says to these lines."""
    async with bridge(server) as process, asyncio.timeout(60):
        said, _ = await process.communicate("".join(f"{line}\n" for line in lines).encode())
    assert process.returncode == 0
    return said.decode()


async def test_a_mail_is_sent_once_its_writer_says_yes(server: Server, tmp_path: Path) -> None:
    said = await typed(server, MAIL, "yes", "What is 17 + 25?")

    assert "Reply yes to confirm or no to cancel" in said
    assert said.rstrip().endswith("17 + 25 = 42.")
    assert len(mails(tmp_path)) == 1


async def test_a_mail_is_not_sent_after_a_no_or_anything_else(
    server: Server, tmp_path: Path
) -> None:
    said = await typed(server, MAIL, "/no", MAIL, "What is 17 + 25?")

    assert said.rstrip().endswith("17 + 25 = 42.")
    assert mails(tmp_path) == []


@asynccontextmanager
async def vendor() -> AsyncIterator[tuple[str, "asyncio.Queue[dict[str, Any]]"]]:
    """Stand in for whoever delivers what the bridge answers."""
    sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        assert request.headers["authorization"] == "Bearer t"
        sent.put_nowait(await request.json())
        return web.Response()

    app = web.Application()
    app.router.add_post("/messages", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/messages", sent
    await runner.cleanup()


async def webhook(address: str, message: dict[str, Any], secret: str = SECRET) -> int:
    """Deliver a message as WhatsApp would; return the status."""
    value = {"messages": [{"from": "5511999", **message}]}
    body = json.dumps({"entry": [{"changes": [{"value": value}]}]}).encode()
    signature = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:
        headers = {"X-Hub-Signature-256": signature}
        return (await http.post(address, content=body, headers=headers)).status_code


async def test_webhooks_are_answered_with_buttons_and_a_second_delivery_acts_once(
    server: Server, tmp_path: Path
) -> None:
    async with (
        vendor() as (send_to, sent),
        bridge(server, "--listen", "0", "--send-to", send_to) as process,
        asyncio.timeout(60),
    ):
        assert process.stdout is not None
        port = re.findall(rb"\d+", await process.stdout.readline())[0].decode()
        address = f"http://127.0.0.1:{port}/webhook"
        forged = await webhook(address, {"type": "text", "id": "w0", "text": {}}, "guessed")
        await webhook(address, {"type": "text", "id": "w1", "text": {"body": MAIL}})
        asked = await sent.get()
        yes = asked["interactive"]["action"]["buttons"][0]["reply"]["id"]
        pressed = {"type": "interactive", "id": "w2", "interactive": {"button_reply": {"id": yes}}}
        statuses = [await webhook(address, pressed) for _ in range(2)]
        told = [await sent.get() for _ in range(2)]

    assert (forged, statuses) == (401, [200, 200])
    assert yes.startswith("confirm:apr_")
    assert told[0] == told[1]
    assert told[0]["type"] == "text"
    assert len(mails(tmp_path)) == 1
