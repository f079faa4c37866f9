"""Requests on the Messages wire, checked against the official client's types and its requests."""

from typing import Any

import orjson
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import CacheControlEphemeralParam
from anthropic.types.message_create_params import MessageCreateParamsStreaming

from milepost.core.json import Json
from milepost.core.messages import Image, Message, ToolCall
from milepost.core.model import ModelRequest, ResponseFormat, ToolSchema
from milepost.providers.anthropic import ANTHROPIC, Messages
from milepost.providers.anthropic_request import TOKENS_MAX, Dialect, MessagesEncoder
from milepost.tools.projections import project
from tests.stubs.anthropic_official import check_request
from tests.stubs.anthropic_server import serving
from tests.stubs.raw_server import Heard

MARK = {"cache_control": {"type": "ephemeral"}}

HI = Message("user", "Hi")
INTEGERS: dict[str, Json] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
ADD = ToolSchema("add", "Add two numbers", INTEGERS)
MULTIPLY = ToolSchema("multiply", "Multiply two numbers", INTEGERS)
CITY: dict[str, Json] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


def encoded(request: ModelRequest, dialect: Dialect = ANTHROPIC) -> dict[str, Any]:
    """Return the body as the server reads it, which the official client's types accept."""
    body: dict[str, Any] = orjson.loads(MessagesEncoder(dialect).encode(request))
    # The client's types have no sampling any more, and other servers still do.
    check_request(
        {key: value for key, value in body.items() if key not in ("temperature", "top_p")}
    )
    return body


def asked(*messages: Message, **settings: Any) -> dict[str, Any]:
    return encoded(ModelRequest("t", "claude-stub", messages, **settings))


# --- What is sent ------------------------------------------------------------------------------


def test_a_plain_request_asks_for_a_stream_and_for_nothing_else() -> None:
    assert asked(HI) == {
        "model": "claude-stub",
        "max_tokens": TOKENS_MAX,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }


def test_the_bound_on_tokens_is_sent_when_set_and_there_is_one_anyway() -> None:
    assert asked(HI, tokens_max=50)["max_tokens"] == 50
    assert asked(HI)["max_tokens"] == TOKENS_MAX


def test_sequences_to_stop_at_are_sent() -> None:
    assert asked(HI, stop=("END", "\n\nHuman:"))["stop_sequences"] == ["END", "\n\nHuman:"]


def test_a_temperature_is_not_sent_where_every_temperature_is_refused() -> None:
    body = asked(HI, temperature=0.0, top_p=0.9)

    assert "temperature" not in body
    assert "top_p" not in body


def test_a_temperature_is_sent_to_a_server_that_takes_one() -> None:
    request = ModelRequest("t", "local", (HI,), temperature=0.0, top_p=0.9)

    body = encoded(request, Dialect(sampling=True))

    assert (body["temperature"], body["top_p"]) == (0.0, 0.9)


def test_what_the_system_says_first_stands_apart_and_the_rest_where_it_was_said() -> None:
    body = asked(
        Message("system", "Be kind."),
        Message("system", " "),
        HI,
        Message("assistant", "Hello!"),
        Message("system", "Be brief, too."),
        Message("user", "Bye"),
    )

    assert body["system"] == [
        {"type": "text", "text": "Be kind.", **MARK},
    ]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert [block["text"] for block in body["messages"][-1]["content"]] == ["Be brief, too.", "Bye"]


def test_tools_are_sent_as_they_are_projected() -> None:
    body = asked(HI, tools=(ADD, MULTIPLY))

    told = [project("anthropic", tool, None, "read") for tool in (ADD, MULTIPLY)]
    assert body["tools"] == [told[0], {**told[1], **MARK}]
    assert "tool_choice" not in body


def test_alternatives_at_the_top_of_a_tool_are_told_in_words() -> None:
    either: dict[str, Json] = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    tool = ToolSchema("add", "Add", {**INTEGERS, **either})

    [sent] = asked(HI, tools=(tool,))["tools"]

    assert sent["input_schema"] == INTEGERS
    assert sent["description"] == 'Add (anyOf: [{"required": ["a"]}, {"required": ["b"]}])'


def test_a_tool_of_nothing_is_one_of_an_object() -> None:
    [sent] = asked(HI, tools=(ToolSchema("now", "Tell the time", {}),))["tools"]

    assert sent["input_schema"] == {"type": "object"}


@pytest.mark.parametrize(("parallel", "disabled"), [(False, True), (True, False)])
def test_whether_calls_may_come_together_is_sent_with_tools_alone(
    parallel: bool, disabled: bool
) -> None:
    chosen = {"type": "auto", "disable_parallel_tool_use": disabled}

    assert asked(HI, tools=(ADD,), parallel_tools=parallel)["tool_choice"] == chosen
    assert "tool_choice" not in asked(HI, parallel_tools=parallel)


@pytest.mark.parametrize("effort", ["low", "medium", "high", "xhigh", "max"])
def test_an_effort_lets_the_model_think_as_it_sees_fit_and_aloud(effort: str) -> None:
    body = asked(HI, reasoning_effort=effort)

    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": effort}


def test_an_effort_in_tokens_is_a_budget_with_room_for_an_answer_beside_it() -> None:
    body = asked(HI, reasoning_effort="8000")

    assert body["thinking"] == {"type": "enabled", "budget_tokens": 8000}
    assert body["max_tokens"] == TOKENS_MAX + 8000
    assert "output_config" not in body


@pytest.mark.parametrize(
    ("room", "budget"), [(8_001, 8_000), (8_000, 4_000), (4_096, 2_048), (2_048, 1_024)]
)
def test_what_is_thought_leaves_room_for_an_answer_where_a_reply_has_little(
    room: int, budget: int
) -> None:
    body = asked(HI, reasoning_effort="8000", tokens_max=room)

    assert body["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert body["max_tokens"] == room


@pytest.mark.parametrize("room", [1, 64, 2_047])
def test_where_there_is_no_room_to_think_nothing_is_thought(room: int) -> None:
    body = asked(HI, reasoning_effort="8000", tokens_max=room)

    assert body["thinking"] == {"type": "disabled"}


def test_no_effort_is_no_thinking() -> None:
    body = asked(HI, reasoning_effort="none")

    assert body["thinking"] == {"type": "disabled"}
    assert "output_config" not in body


def test_an_answer_is_held_to_a_schema_by_the_vendor() -> None:
    body = asked(HI, response_format=ResponseFormat(CITY, "city"), reasoning_effort="low")

    closed = {**CITY, "additionalProperties": False}
    held = {"type": "json_schema", "schema": closed}
    assert body["output_config"] == {"effort": "low", "format": held}
    assert "system" not in body


@pytest.mark.parametrize(
    ("schema", "dialect"),
    [({"type": "object"}, ANTHROPIC), (CITY, Dialect(schemas=False))],
    ids=["beyond the vendor", "beyond the server"],
)
def test_a_schema_that_no_answer_is_held_to_is_told_to_the_model(
    schema: dict[str, Json], dialect: Dialect
) -> None:
    messages = (Message("system", "Be kind."), HI)
    wanted = ResponseFormat(schema)

    body = encoded(ModelRequest("t", "m", messages, response_format=wanted), dialect)

    assert "output_config" not in body
    assert body["system"][0] == {"type": "text", "text": "Be kind.", **MARK}
    assert body["system"][1]["text"].endswith(
        f"fits this JSON Schema: {orjson.dumps(schema).decode()}"
    )


# --- Where a prompt is marked for the cache ----------------------------------------------------


def marks(body: dict[str, Any]) -> list[str]:
    """Return where the marks are, by the text or name or id of what they are on."""
    blocks = [
        *body.get("tools", []),
        *body.get("system", []),
        *(block for turn in body["messages"] for block in turn["content"]),
    ]
    marked = [block for block in blocks if "cache_control" in block]
    return [
        next(str(b[key]) for key in ("text", "name", "tool_use_id") if key in b) for b in marked
    ]


def step(n: int) -> tuple[Message, ...]:
    calls = tuple(ToolCall(f"call_{n}_{m}", "add", {"a": n}) for m in range(2))
    results = (Message("tool", f"{n}", call_id=call.id) for call in calls)
    return (Message("assistant", calls=calls), *results)


def test_tools_instructions_and_the_ends_of_this_and_the_last_request_are_marked() -> None:
    system = (Message("system", "Be kind."), Message("system", "Remember: tea."))

    body = asked(*system, HI, *step(1), *step(2), tools=(ADD, MULTIPLY))

    assert marks(body) == ["multiply", "Be kind.", "call_1_1", "call_2_1"]


def test_in_the_first_step_the_question_is_marked() -> None:
    assert marks(asked(HI, tools=(ADD,))) == ["add", "Hi"]


def test_a_lone_question_without_tools_is_not_written_into_the_cache() -> None:
    assert marks(asked(Message("system", "Be kind."), HI)) == ["Be kind."]


def test_a_conversation_that_goes_on_is() -> None:
    assert marks(asked(HI, Message("assistant", "Hello!"), Message("user", "Bye"))) == ["Hi", "Bye"]


def test_where_a_run_begins_with_what_is_its_own_the_end_of_the_session_is_marked() -> None:
    session = (HI, Message("assistant", "Hello!"))
    own = (Message("system", "[Known Entities]\nAnn"), Message("user", "Bye"))

    assert marks(asked(*session, *own, tools=(ADD,))) == ["add", "Hello!", "Bye"]
    assert marks(asked(*session, *own, *step(1), tools=(ADD,))) == ["add", "Bye", "call_1_1"]


# --- The official client as an oracle ----------------------------------------------------------

STABLE: CacheControlEphemeralParam = {"type": "ephemeral"}
SUM: dict[str, object] = {"a": 17, "b": 25}
SCHEMA: dict[str, object] = {**INTEGERS}
CLOSED: dict[str, object] = {**CITY, "additionalProperties": False}
CALLED = ToolCall("call_1_0", "add", {"a": 17, "b": 25}, "toolu_1")
OURS = ModelRequest(
    "t",
    "claude-stub",
    (
        Message("system", "Be kind."),
        Message("user", "What is it?", images=(Image("data:image/png;base64,aGk="),)),
        Message("assistant", "I add.", (CALLED,)),
        Message("tool", "42", call_id="call_1_0"),
        Message("user", "Quick!", images=(Image("https://example.com/cat.webp"),)),
    ),
    tools=(ADD,),
    tokens_max=100,
    stop=("END",),
    reasoning_effort="high",
    parallel_tools=False,
    response_format=ResponseFormat(CITY),
)
THEIRS: MessageCreateParamsStreaming = {
    "model": "claude-stub",
    "max_tokens": 100,
    "stream": True,
    "system": [{"type": "text", "text": "Be kind.", "cache_control": STABLE}],
    "messages": [
        {
            "role": "user",
            "content": [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
                },
                {"type": "text", "text": "What is it?", "cache_control": STABLE},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I add."},
                {"type": "tool_use", "id": "toolu_1", "name": "add", "input": SUM},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "42"},
                {
                    "type": "image",
                    "source": {"type": "url", "url": "https://example.com/cat.webp"},
                },
                {"type": "text", "text": "Quick!", "cache_control": STABLE},
            ],
        },
    ],
    "tools": [
        {
            "name": "add",
            "description": "Add two numbers",
            "input_schema": SCHEMA,
            "cache_control": STABLE,
        }
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "stop_sequences": ["END"],
    "thinking": {"type": "adaptive", "display": "summarized"},
    "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": CLOSED}},
}


@pytest.fixture
async def official() -> Heard:
    """What the official client sends, asked for the same thing in its own words."""
    async with (
        serving() as stub,
        AsyncAnthropic(base_url=stub.base_url, api_key="key", max_retries=0) as client,
    ):
        await client.messages.create(**THEIRS)
        return stub.requests[0]


async def test_the_request_is_the_one_that_the_official_client_sends(official: Heard) -> None:
    assert encoded(OURS) == official.body


async def test_so_are_the_key_and_the_version(official: Heard) -> None:
    sent = Messages(ANTHROPIC).headers("key")

    lines = official.head.lower().splitlines()
    assert sent.keys() == {"Authorization", "anthropic-version"}
    assert all(f"{name}: {value}".lower() in lines for name, value in sent.items())
