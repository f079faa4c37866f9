"""One request to an HTTP API: made from a call's arguments, its answer mapped to a result."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from yarl import URL

from milepost.core.errors import ToolError
from milepost.core.json import Json
from milepost.core.repetition import ToolEffect
from milepost.tools.context import ToolContext
from milepost.tools.definition import Tool
from milepost.tools.egress import Egress, EgressError, Incoming, Outgoing
from milepost.tools.http.templates import as_word, fill, fill_path, pointed
from milepost.tools.references import (
    Revealed,
    Secrets,
    references_in,
    require_one_line,
    reveal,
)

TIMEOUT_S = 30.0
BODY_CHARS_MAX = 1_500
SAFE_METHODS = frozenset({"GET", "HEAD"})
_RETRYABLE = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Operation:
    """What is sent where. Everything but the method may have `{name}` in it.

    `query` is of pairs, since a name may come twice; a list is sent as several,
    an object by its members: `name[key]=value`.
    `body` of None sends none. `result` points at the part of a JSON answer that is the result.
    `rest` says where arguments go, under their own names, that are not among those `placed`.
    """

    method: str
    url: str
    query: tuple[tuple[str, Json], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Json = None
    result: str = ""
    timeout_s: float = TIMEOUT_S
    placed: frozenset[str] = frozenset()
    rest: Literal["query", "body"] | None = None

    def rest_in(self, place: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Return the arguments that have no place of their own, if this is where they go."""
        if self.rest != place:
            return {}
        return {name: value for name, value in arguments.items() if name not in self.placed}


@dataclass(frozen=True, slots=True)
class Described:
    """What a model and the rules are told of an operation."""

    name: str
    description: str
    parameters: Mapping[str, Json]
    effect: ToolEffect | None = None
    requires_approval: bool = False


def default_effect(method: str) -> ToolEffect:
    """Return what may be repeated after a crash: by HTTP's own word, what only reads."""
    return "read" if method in SAFE_METHODS else "once"


def http_tool(described: Described, operation: Operation, egress: Egress, secrets: Secrets) -> Tool:
    """Return the operation as a tool. Raises ToolValidationError for parameters that don't fit."""

    effect = described.effect or default_effect(operation.method)
    once = effect == "once"

    async def request(milepost_context: ToolContext, **arguments: Json) -> Json:
        return await perform(operation, arguments, milepost_context, egress, secrets, once=once)

    return Tool(
        name=described.name,
        description=described.description,
        function=request,
        kind="http",
        parameters=described.parameters,
        effect=effect,
        timeout_s=operation.timeout_s,
        requires_approval=described.requires_approval,
    )


async def perform(
    operation: Operation,
    arguments: Mapping[str, Json],
    context: ToolContext,
    egress: Egress,
    secrets: Secrets,
    *,
    once: bool = False,
) -> Json:
    """Make the request and return its result. Raises ToolError, told to the model, for the rest."""
    revealed = await _secrets_in(operation.headers, secrets)
    body = None if operation.body is None else fill(operation.body, arguments)
    body = operation.rest_in("body", arguments) or body
    headers = {
        "accept": "application/json, text/*;q=0.9, */*;q=0.1",
        **({} if body is None else {"content-type": "application/json"}),
        **_headers(operation.headers, arguments, revealed),
        "idempotency-key": context.idempotency_key,
    }
    outgoing = Outgoing(
        operation.method,
        _url(operation, arguments),
        headers,
        None if body is None else json.dumps(body, ensure_ascii=False).encode(),
        operation.timeout_s,
        once=once,
    )
    return _result(operation, await _fetched(outgoing, egress, revealed), revealed)


async def _secrets_in(headers: Mapping[str, str], secrets: Secrets) -> Revealed:
    """Return the value of each reference that the declaration makes, by the reference as text."""
    named = {str(each) for text in headers.values() for each in references_in(text)}
    return await reveal({reference: reference for reference in named}, secrets)


def _headers(
    declared: Mapping[str, str], arguments: Mapping[str, Json], revealed: Revealed
) -> dict[str, str]:
    """Return the headers as they are sent. Raises ToolError for one that would be several."""
    given = fill(dict(declared), arguments)
    assert isinstance(given, dict)
    headers = {name: _header(declared[name], arguments, revealed) for name in given}
    require_one_line(headers)
    return {name.lower(): text for name, text in headers.items()}


def _header(template: str, arguments: Mapping[str, Json], revealed: Revealed) -> str:
    """Return a header's value.

    Only the template's own references are read: an argument that looks like one is plain text,
    and so is a secret that looks like a place for an argument.
    """
    said = ""
    for reference in references_in(template):
        before, _, template = template.partition(str(reference))
        said += as_word(fill(before, arguments)) + revealed.texts[str(reference)]
    return said + as_word(fill(template, arguments))


async def _fetched(outgoing: Outgoing, egress: Egress, revealed: Revealed) -> Incoming:
    try:
        return await egress.fetch(outgoing)
    except EgressError as error:
        if (told := revealed.hidden(error)) is error:
            raise
        raise told from None


def _url(operation: Operation, arguments: Mapping[str, Json]) -> URL:
    url = URL(fill_path(operation.url, arguments), encoded=True)
    rest = operation.rest_in("query", arguments)
    filled = [
        *((name, fill([value], arguments)) for name, value in operation.query if name not in rest),
        *((name, [value]) for name, value in rest.items()),
    ]
    given = (pair for name, values in filled for pair in _pairs(name, values))
    pairs = [*url.query.items(), *((name, as_word(value)) for name, value in given)]
    return url.with_query(pairs) if pairs else url


def _pairs(name: str, values: Json) -> list[tuple[str, Json]]:
    """Return what a query parameter is sent as: nothing, one pair, or one for each member."""
    assert isinstance(values, list), "a list is filled as one"
    match values:
        case [list(items)]:
            return [(name, item) for item in items]
        case [dict(members)]:
            return [(f"{name}[{key}]", member) for key, member in members.items()]
        case _:
            return [(name, item) for item in values]


def _result(operation: Operation, answer: Incoming, revealed: Revealed) -> Json:
    if answer.status >= 400 or answer.status < 200:
        raise _refused(answer, revealed)
    if answer.status >= 300:
        reason = revealed.hide(answer.reason)
        raise ToolError(f"the server answered {answer.status} {reason}, and nothing else")
    text = revealed.hide(answer.text)
    if not answer.body.strip():
        document: Json = None
    elif _is_json(answer.media_type):
        document = _loaded(answer, revealed)
    elif operation.result:
        raise ToolError(f"the server answered {answer.media_type} where JSON was due: {_cut(text)}")
    elif answer.media_type.startswith("text/") or answer.media_type.endswith("xml"):
        document = text
    else:
        document = f"[{answer.media_type}, {len(answer.body)} bytes: not shown]"
    return _picked(operation, document)


def _refused(answer: Incoming, revealed: Revealed) -> ToolError:
    told = f"HTTP {answer.status} {revealed.hide(answer.reason)}".rstrip()
    if body := _cut(_shown(answer, revealed)):
        told += f": {body}"
    return ToolError(told, retryable=answer.status >= 500 or answer.status in _RETRYABLE)


def _is_json(media_type: str) -> bool:
    return media_type == "application/json" or media_type.endswith("+json")


def _shown(answer: Incoming, revealed: Revealed) -> str:
    """Return what a refusal says; JSON is read first, since it can write a secret otherwise."""
    if _is_json(answer.media_type):
        with suppress(ToolError):
            return json.dumps(_loaded(answer, revealed), ensure_ascii=False)
    return revealed.hide(answer.text)


def _loaded(answer: Incoming, revealed: Revealed) -> Json:
    try:
        return revealed.hide_in(json.loads(answer.text))
    except (ValueError, RecursionError) as error:
        raise ToolError(f"the server's {answer.media_type} cannot be read: {error}") from error


def _picked(operation: Operation, document: Json) -> Json:
    try:
        return pointed(document, operation.result)
    except KeyError:
        shown = _cut(json.dumps(document, ensure_ascii=False))
        raise ToolError(f"the server's answer has nothing at {operation.result}: {shown}") from None


def _cut(text: str) -> str:
    text = text.strip()
    if len(text) <= BODY_CHARS_MAX:
        return text
    return f"{text[:BODY_CHARS_MAX]} [cut: {len(text)} characters]"
