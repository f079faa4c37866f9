"""A bridge between a chat and Milepost: the terminal, or the webhooks of the WhatsApp Cloud API.

python examples/chat_bridge.py --agent demo
python examples/chat_bridge.py --agent demo --listen 8081 --send-to https://graph.facebook.com/...
"""

import argparse
import asyncio
import hashlib
import hmac
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from milepost.client import ChannelAnswer, Milepost, PendingAction

BUTTONS = {"confirm": "Yes", "cancel": "No"}
TOLD_S_MAX = 20.0
BODY_CHARS_MAX = 1_024


@dataclass(frozen=True)
class Incoming:
    """A message of a user: what they wrote, or the button that they pressed."""

    id: str
    sender: str
    text: str | None = None
    button: str | None = None


class Bridge:
    """Passes messages on, and puts what came of them into words for the user."""

    def __init__(self, milepost: Milepost, channel: str, agent: str) -> None:
        self._milepost = milepost
        self._channel = channel
        self._agent = agent

    async def answer(self, message: Incoming) -> ChannelAnswer:
        """Return what the message did. A message that comes again does nothing, and is answered."""
        # A button says under what it stood, so that an old one cannot confirm anything new.
        intent, _, under = (message.button or "").partition(":")
        expected_id, _, expected_digest = under.partition(":")
        return await self._milepost.channels.send(
            self._channel,
            message.sender,
            message.id,
            user=message.sender,
            text=message.text,
            intent=intent or None,
            expected_id=expected_id or None,
            expected_digest=expected_digest or None,
            agent=self._agent,
        )


def words_of(answer: ChannelAnswer) -> str:
    """Return what to tell the user."""
    said = [answer.reply] if answer.reply else []
    if answer.pending:
        said.append(answer.pending.user_prompt)
    return "\n\n".join(said) or "I am still at it."


def named(intent: str, pending: PendingAction) -> str:
    """Return what a button is called under what waits: what it means, and to what."""
    return f"{intent}:{pending.id}:{pending.digest}"


# --- The terminal ---


async def talk(bridge: Bridge) -> None:
    """Pass on what is typed, a line each; `/yes` and `/no` press the buttons."""
    sender, answer = f"terminal-{uuid.uuid4().hex[:8]}", None
    async for line in lines():
        button = {"/yes": "confirm", "/no": "cancel"}.get(line)
        if button and answer and answer.pending:
            button = named(button, answer.pending)
        text = None if button else line
        answer = await bridge.answer(Incoming(uuid.uuid4().hex, sender, text, button))
        print(words_of(answer), flush=True)


async def lines() -> AsyncIterator[str]:
    """Yield the lines that are typed."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.strip():
            yield line.strip()


# --- Webhooks ---


class Webhooks:
    """Takes the webhooks of one WhatsApp number, and sends the answers to `send_to`."""

    def __init__(self, bridge: Bridge, send_to: str, secret: str, token: str) -> None:
        self._bridge = bridge
        self._send_to = send_to
        self._secret = secret.encode()
        self._headers = {"authorization": f"Bearer {token}"}

    async def take(self, request: web.Request) -> web.Response:
        """Answer all messages of one webhook, and only then say that they came in.

        Whoever gets no 200 in time sends them again, which is harmless: each has an id.
        """
        body = await request.read()
        if not self._is_signed(body, request.headers.get("X-Hub-Signature-256", "")):
            return web.Response(status=401)
        async with aiohttp.ClientSession(headers=self._headers) as http:
            for message in messages_in(json.loads(body)):
                told = shown(message.sender, await self._bridge.answer(message))
                timeout = aiohttp.ClientTimeout(TOLD_S_MAX)
                async with http.post(self._send_to, json=told, timeout=timeout) as sent:
                    sent.raise_for_status()
        return web.Response()

    def _is_signed(self, body: bytes, signature: str) -> bool:
        """Say whether it is from who knows the secret: anybody can call this address."""
        ours = "sha256=" + hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(ours, signature)


def messages_in(webhook: dict[str, Any]) -> Iterator[Incoming]:
    """Yield the messages; what else webhooks tell of is left aside."""
    for entry in webhook.get("entry", []):
        for change in entry.get("changes", []):
            for message in change.get("value", {}).get("messages", []):
                match message:
                    case {"type": "text", "id": id, "from": sender, "text": {"body": body}}:
                        yield Incoming(id, sender, text=body)
                    case {
                        "type": "interactive",
                        "id": id,
                        "from": sender,
                        "interactive": {"button_reply": {"id": button}},
                    }:
                        yield Incoming(id, sender, button=button)
                    case _:
                        pass  # a picture, or whether one of ours was read


def shown(recipient: str, answer: ChannelAnswer) -> dict[str, Any]:
    """Return the message to send: with two buttons while something waits for the user.

    What is too long to stand above buttons is answered in words.
    """
    message: dict[str, Any] = {"messaging_product": "whatsapp", "to": recipient}
    if answer.pending is None or len(words_of(answer)) > BODY_CHARS_MAX:
        return message | {"type": "text", "text": {"body": words_of(answer)}}
    buttons = [
        {"type": "reply", "reply": {"id": named(intent, answer.pending), "title": title}}
        for intent, title in BUTTONS.items()
    ]
    body, action = {"text": words_of(answer)}, {"buttons": buttons}
    interactive = {"type": "button", "body": body, "action": action}
    return message | {"type": "interactive", "interactive": interactive}


# --- Both ---


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", required=True, help="who answers")
    parser.add_argument("--listen", type=int, help="take webhooks on this port of 127.0.0.1")
    parser.add_argument("--send-to", help="where answers to webhooks go")
    return parser.parse_args()


async def main() -> None:
    """Bridge until the input ends, or for ever."""
    given = arguments()
    base_url = os.environ.get("MILEPOST_BASE_URL", "http://127.0.0.1:8000")
    async with Milepost(base_url, os.environ.get("MILEPOST_API_KEY")) as milepost:
        if given.listen is None:
            await talk(Bridge(milepost, "terminal", given.agent))
            return
        webhooks = Webhooks(
            Bridge(milepost, "whatsapp", given.agent),
            given.send_to,
            os.environ["WHATSAPP_APP_SECRET"],
            os.environ["WHATSAPP_TOKEN"],
        )
        app = web.Application()
        app.router.add_post("/webhook", webhooks.take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", given.listen)
        await site.start()
        print(f"The bridge takes webhooks on port {runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
