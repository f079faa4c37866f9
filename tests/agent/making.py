"""What tests of agents in process are made of: real parts, and a model that plays its script."""

import os
from collections.abc import Callable
from typing import Any

from milepost import Agent, tool
from milepost.core.errors import ProviderError
from milepost.core.messages import Message
from milepost.core.model import ModelRequest
from milepost.providers.scripted import Script, Scripted, calling, saying

MODEL = "test/model"
AT_ONCE = {"retry_backoff_s": 0, "rate_limit_cooldown_s": 0}
ADD = calling(("add", {"a": 17, "b": 25}))
BUSY = ProviderError("busy", code="provider_unavailable", retryable=True)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(isolation="process", effect="read")
def process_id() -> int:
    """Say in which process this runs."""
    return os.getpid()


def agent(*replies: Script, model: Scripted | None = None, **fields: Any) -> Agent:
    """Return an agent whose model plays these replies."""
    provider = Scripted(replies) if model is None else model
    return Agent(MODEL, **{"providers": {"test": provider}, "limits": AT_ONCE, **fields})


def adding(**fields: Any) -> Agent:
    """Return an agent that adds 17 and 25, and then says so."""
    return agent(ADD, saying("It is 42."), **{"tools": [add], **fields})


def last_of(request: ModelRequest) -> str:
    """Return what a request ends with."""
    return request.messages[-1].content


def echo(request: ModelRequest) -> str:
    """Repeat what the user said, and how many messages came with it."""
    return f"{len(request.messages)}: {last_of(request)}"


def function_agent(answer: Callable[[ModelRequest], Any], **fields: Any) -> Agent:
    """Return an agent whose model is a function."""
    return Agent(MODEL, providers={"test": answer}, limits=AT_ONCE, **fields)


def user(text: str) -> Message:
    """Return a user's message."""
    return Message("user", text)
