"""The vendor's own client as a judge: of what we send, and of what we make of what it sends."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from tests.stubs.raw_server import SSE_HEAD, serving

CHAT = TypeAdapter[Any](CompletionCreateParamsStreaming)
RESPONSES = TypeAdapter[Any](ResponseCreateParamsStreaming)


def as_declared(parameters: TypeAdapter[Any], body: Mapping[str, Any]) -> Any:
    """Return what the client's types make of `body`: they leave out every field unknown to them."""
    return _whole(parameters.validate_python(body))


@asynccontextmanager
async def client_of(base_url: str) -> AsyncIterator[AsyncOpenAI]:
    """Yield the vendor's client, talking to `base_url`."""
    async with AsyncOpenAI(base_url=base_url, api_key="sk-stub", max_retries=0) as client:
        yield client


async def sent_by_the_client(ask: Callable[[AsyncOpenAI], Awaitable[Any]]) -> dict[str, Any]:
    """Return the body that the vendor's client sends when it is used as `ask` says."""
    async with serving((SSE_HEAD,)) as stub, client_of(stub.base_url) as client:
        await ask(client)
    return stub.requests[0].body


def _whole(value: Any) -> Any:
    """Read the iterators out into which a type's iterables turn."""
    if isinstance(value, Mapping):
        return {key: _whole(inner) for key, inner in value.items()}
    if value is None or isinstance(value, (str, int, float)):
        return value
    return [_whole(inner) for inner in value]
