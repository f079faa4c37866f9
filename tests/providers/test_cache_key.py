"""Under which key a reply is kept."""

from dataclasses import fields, replace
from typing import Any

import pytest

from milepost.core.json import Json
from milepost.core.messages import Image, Message, Sealed, ToolCall
from milepost.core.model import ModelRequest, ResponseFormat, ToolSchema
from milepost.providers.cache_key import cache_key, tenant_prefix

SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"a": {"type": "integer", "description": "first"}},
}
CALL = ToolCall("call_1_0", "add", {"a": 1}, "vendor_1")
REQUEST = ModelRequest(
    tenant="acme",
    model="gpt-5-mini",
    messages=(
        Message("user", "Hi"),
        Message("assistant", "", (CALL,)),
        Message("tool", "2", call_id="call_1_0"),
    ),
    tools=(ToolSchema("add", "Add", SCHEMA),),
    temperature=0.0,
    tokens_max=50,
    cache_ttl_s=60,
)

DESCRIBED: dict[str, Json] = {
    "type": "object",
    "properties": {"a": {"type": "integer", "description": "other"}},
}
CHANGES: dict[str, list[Any]] = {
    "tenant": ["other"],
    "model": ["gpt-5"],
    "messages": [
        REQUEST.messages[:1],
        (Message("system", "Hi"), *REQUEST.messages[1:]),
        (Message("user", "Hi!"), *REQUEST.messages[1:]),
        (REQUEST.messages[0], Message("assistant", "", (replace(CALL, arguments={"a": 2}),))),
        (REQUEST.messages[0], Message("assistant", "", (replace(CALL, arguments={"a": 1.0}),))),
        (REQUEST.messages[0], Message("assistant", "", (replace(CALL, malformed="{"),))),
        (REQUEST.messages[0], Message("assistant", "", (replace(CALL, name="sub"),))),
        (
            replace(REQUEST.messages[0], images=(Image("https://x.test/a.png"),)),
            REQUEST.messages[1],
        ),
        (REQUEST.messages[0], replace(REQUEST.messages[1], sealed=(Sealed("a", {"b": 1}),))),
    ],
    "tools": [
        (),
        (ToolSchema("add", "Add two", SCHEMA),),
        (ToolSchema("add", "Add", DESCRIBED),),
        (*REQUEST.tools, ToolSchema("b", "B", SCHEMA)),
        (ToolSchema("b", "B", SCHEMA), *REQUEST.tools),
    ],
    "temperature": [None, 0.5],
    "tokens_max": [None, 51],
    "top_p": [0.5],
    "stop": [("END",)],
    "reasoning_effort": ["low"],
    "parallel_tools": [False],
    "response_format": [
        ResponseFormat(SCHEMA),
        ResponseFormat(SCHEMA, "other"),
        ResponseFormat(DESCRIBED),
    ],
}


def test_every_part_of_a_request_that_shapes_the_reply_is_in_the_key() -> None:
    keys = [
        cache_key(replace(REQUEST, **{name: value}), "scope")
        for name, values in CHANGES.items()
        for value in values
    ]

    assert len({*keys, cache_key(REQUEST, "scope")}) == len(keys) + 1
    assert {*CHANGES, "cache_ttl_s", "user"} == {field.name for field in fields(ModelRequest)}


def test_who_answers_is_in_the_key() -> None:
    assert cache_key(REQUEST, "one") != cache_key(REQUEST, "two")


@pytest.mark.parametrize(
    "same",
    [
        replace(REQUEST, cache_ttl_s=1),
        replace(REQUEST, user="ann"),
        replace(REQUEST, temperature=0),
        replace(
            REQUEST,
            messages=(
                REQUEST.messages[0],
                Message("assistant", "", (replace(CALL, id="call_9_9", provider_id="vendor_9"),)),
                Message("tool", "2", call_id="call_9_9"),
            ),
        ),
        replace(REQUEST, tools=(ToolSchema("add", "Add", dict(reversed(list(SCHEMA.items())))),)),
    ],
    ids=[
        "another time to live",
        "another user",
        "0 and 0.0",
        "other ids",
        "other order of a schema's keys",
    ],
)
def test_what_does_not_shape_the_reply_is_not(same: ModelRequest) -> None:
    assert cache_key(same, "scope") == cache_key(REQUEST, "scope")


def test_it_matters_which_call_a_result_answers() -> None:
    calls = (ToolCall("one", "add", {}), ToolCall("two", "add", {}))

    def answered(first: str, second: str) -> str:
        results = (Message("tool", "1", call_id=first), Message("tool", "2", call_id=second))
        messages = (Message("assistant", "", calls), *results)
        return cache_key(replace(REQUEST, messages=messages), "scope")

    assert answered("one", "two") != answered("two", "one")


def test_the_key_begins_with_the_tenants_prefix_and_does_not_show_the_tenant() -> None:
    key = cache_key(REQUEST, "scope")

    assert key.startswith(tenant_prefix("acme"))
    assert not key.startswith(tenant_prefix("other"))
    assert "acme" not in key
    assert set(key) <= set("0123456789abcdef:")
