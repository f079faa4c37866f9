"""An embeddings server that knows a few meanings: words of one meaning point the same way."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

MEANINGS = (
    ("tea", "coffee", "drink", "beverage", "thirsty"),
    ("cat", "dog", "pet", "animal"),
    ("oslo", "bergen", "city", "live", "lives"),
)


def meaning(text: str) -> list[float]:
    """Return the direction in which a text points."""
    words = "".join(char if char.isalnum() else " " for char in text.lower()).split()
    counts = [float(sum(word in known for word in words)) for known in MEANINGS]
    return [*counts, 0.1]


class EmbeddingsServer:
    """What was asked, and what is answered: `broken` answers 500, `answer` anything at all.

    A token is a word, and `tells` says whether it is told how many there were.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.broken = False
        self.tells = True
        self.answer: Any = None
        self.base_url = ""

    async def embed(self, request: web.Request) -> web.Response:
        """Answer one request, the last text first: order is said, and not given."""
        asked = await request.json()
        self.requests.append(asked)
        self.keys.append(request.headers.get("authorization"))
        if self.broken:
            return web.json_response({"error": {"message": "out of order"}}, status=500)
        if self.answer is not None:
            return web.json_response(self.answer)
        data = [
            {"object": "embedding", "index": index, "embedding": meaning(text)}
            for index, text in enumerate(asked["input"])
        ]
        answer = {"object": "list", "data": data[::-1], "model": asked["model"]}
        if self.tells:
            tokens = sum(len(text.split()) for text in asked["input"])
            answer["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
        return web.json_response(answer)


@asynccontextmanager
async def embeddings_server() -> AsyncIterator[EmbeddingsServer]:
    """Serve on a free port of loopback."""
    server = EmbeddingsServer()
    app = web.Application()
    app.router.add_post("/v1/embeddings", server.embed)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()
