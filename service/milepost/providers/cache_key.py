"""Under which key a reply is kept: all that shapes it, and whose it is."""

import hashlib
from collections.abc import Iterator, Mapping
from itertools import count

import orjson

from milepost.core.messages import Message
from milepost.core.model import ModelRequest

_TENANT_HEX_DIGITS = 16


def tenant_prefix(tenant: str) -> str:
    """Return what all keys of `tenant` begin with, so that its replies can be purged alone."""
    return hashlib.sha256(tenant.encode()).hexdigest()[:_TENANT_HEX_DIGITS] + ":"


def owner_key(tenant: str, user: str) -> str:
    """Return how a cache knows a user, of whom it can tell nobody."""
    return tenant_prefix(tenant) + hashlib.sha256(user.encode()).hexdigest()


def cache_key(request: ModelRequest, scope: str) -> str:
    """Return the key of `request`'s reply by the vendor, address and credential that `scope` names.

    What differs on the vendor's wire differs here, an argument `1` from `1.0` too. Only ids are
    read for what they link, since each run has its own.
    """
    shape = {
        "tenant": request.tenant,
        "scope": scope,
        "model": request.model,
        "messages": list(_messages(request.messages)),
        "tools": [[tool.name, tool.description, tool.parameters] for tool in request.tools],
        "temperature": None if request.temperature is None else float(request.temperature),
        "tokens_max": request.tokens_max,
        "top_p": None if request.top_p is None else float(request.top_p),
        "stop": request.stop,
        "reasoning_effort": request.reasoning_effort,
        "parallel_tools": request.parallel_tools,
        "response_format": request.response_format,
    }
    digest = hashlib.sha256(orjson.dumps(shape, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return tenant_prefix(request.tenant) + digest


def _messages(messages: tuple[Message, ...]) -> Iterator[list[object]]:
    """Number the calls in their order, and let each result name its call by that number."""
    ordinals: dict[str | None, int] = {}
    counter = count()
    for message in messages:
        calls: list[object] = []
        for call in message.calls:
            # The latest call of an id is the one that a result after it answers.
            ordinals[call.id] = next(counter)
            calls.append([call.name, _plain(call.arguments), call.malformed])
        images = [image.url for image in message.images]
        answers = ordinals.get(message.call_id)
        yield [message.role, message.content, calls, answers, images, message.sealed]


def _plain(arguments: Mapping[str, object]) -> dict[str, object]:
    return dict(arguments)
