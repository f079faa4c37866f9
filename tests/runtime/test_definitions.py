"""Agents' definitions: what is stored of a version is what comes back, by whatever version."""

from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from milepost.core.agents import (
    Agent,
    Limits,
    LoopDetection,
    Memory,
    StopRule,
    StructuredOutput,
    Summarize,
    Window,
)
from milepost.core.errors import NotFoundError
from milepost.core.guardrails import (
    Coherence,
    Guardrails,
    InjectionRail,
    JsonSchemaRail,
    LengthRail,
    PiiRail,
    PythonRail,
    RegexRail,
    TopicsRail,
)
from milepost.core.policy import Policy
from milepost.runtime.agent_spec import AgentSpec, agent_of, show_spec
from milepost.runtime.definitions import Definitions, decode_definition, encode_definition
from milepost.store import agents
from tests.runtime.workshop import TENANT, Workshop

NAMES = st.lists(st.text(max_size=8), max_size=3).map(tuple)
RAILS = st.lists(
    st.builds(PiiRail, kinds=st.just(("email",)))
    | st.builds(InjectionRail)
    | st.builds(LengthRail, max_chars=st.integers(1, 9), tools=NAMES)
    | st.builds(RegexRail, pattern=st.just("a+b"))
    | st.builds(TopicsRail, words=NAMES)
    | st.builds(JsonSchemaRail, schema=st.just({"enum": ["a"]}))
    | st.builds(PythonRail, name=st.text(max_size=4)),
    max_size=3,
).map(tuple)
AGENTS = st.builds(
    Agent,
    id=st.just("agt_1"),
    version=st.just(3),
    name=st.text(min_size=1, max_size=8),
    model=st.just("openai/gpt-5-mini"),
    instructions=st.text(max_size=20),
    tools=NAMES,
    policy=st.none() | st.builds(Policy, NAMES, NAMES, NAMES),
    limits=st.builds(
        Limits,
        max_steps=st.integers(1, 9),
        temperature=st.none() | st.just(0.5),
        stop_sequences=NAMES,
    ),
    cache_ttl_s=st.none() | st.just(3.5),
    fallbacks=NAMES,
    parallel_tools=st.booleans(),
    routing_only=st.booleans(),
    response_format=st.none() | st.builds(StructuredOutput, schema=st.just({"type": "object"})),
    loop_detection=st.none() | st.builds(LoopDetection, repeat=st.integers(2, 9)),
    stop_when=st.lists(st.builds(StopRule, st.text(max_size=4)), max_size=2).map(tuple),
    guardrails=st.none()
    | st.builds(
        Guardrails,
        input=RAILS,
        output=RAILS,
        tool_arguments=RAILS,
        tool_results=RAILS,
        coherence=st.none() | st.builds(Coherence, st.just("openai/m"), tools=NAMES),
        hold_output=st.booleans(),
    ),
    memory=st.none()
    | st.builds(
        Memory,
        window=st.none() | st.builds(Window, messages=st.integers(1, 9)),
        summarize=st.none() | st.builds(Summarize, st.just("openai/m")),
    ),
    metadata=st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
)


@settings(deadline=None)
@given(AGENTS)
def test_a_definition_comes_back_as_it_was_stored(agent: Agent) -> None:
    assert decode_definition("agt_1", 3, encode_definition(agent)) == agent


@settings(deadline=None)
@given(AGENTS)
def test_equal_agents_are_stored_alike(agent: Agent) -> None:
    assert encode_definition(agent) == encode_definition(replace(agent, id="agt_2", version=9))


def test_a_definition_of_another_version_is_read_as_far_as_it_is_known() -> None:
    later = orjson.dumps(
        {"name": "clerk", "model": "openai/m", "limits": {"max_steps": 2, "spins": 3}, "mood": "ok"}
    ).decode()

    agent = decode_definition("agt_1", 1, later)

    assert agent.limits == Limits(max_steps=2)
    assert agent.policy is None


async def test_a_version_stays_readable_when_its_agent_is_gone(shop: Workshop) -> None:
    agent = shop.agent()
    await shop.store.write(
        agents.create(TENANT, agent.name, encode_definition(agent), agent_id=agent.id, now_ms=0)
    )
    await shop.store.write(agents.delete(TENANT, agent.id, now_ms=0))
    definitions = Definitions(shop.store)

    assert await definitions.get(TENANT, agent.id, 1) == agent
    assert await definitions.get(TENANT, agent.id, 1) is await definitions.get(TENANT, agent.id, 1)
    with pytest.raises(NotFoundError):
        await definitions.get(TENANT, agent.id, 2)


def test_a_spec_says_everything_that_an_agent_is() -> None:
    said = {
        "name": "clerk",
        "model": "openai/gpt-5-mini",
        "instructions": "Be kind.",
        "tools": ["add"],
        "policy": {"deny": ["x"], "ask": ["y"], "allow": ["z"]},
        "cache": {"ttl_s": 3.0},
        "compression": {"model": "openai/gpt-5-nano", "threshold_chars": 500},
        "fallbacks": ["openai/gpt-5-mini"],
        "parallel_tools": False,
        "routing_only": True,
        "response_format": {
            "type": "json_schema",
            "schema": {"type": "object"},
            "name": "verdict",
            "retries": 1,
            "mode": "native",
        },
        "loop_detection": {"repeat": 2, "stall": 4, "ping_pong": 5, "action": "stop"},
        "stop_when": [{"tool": "find_*", "contains": "found"}],
        "guardrails": {
            "input": [{"type": "pii", "action": "block", "kinds": ["email"], "tools": []}],
            "output": [
                {
                    "type": "topics",
                    "words": ["x"],
                    "action": "block",
                    "replacement": "[y]",
                    "tools": [],
                }
            ],
            "tool_arguments": [
                {"type": "python", "name": "mine", "on_error": "pass", "tools": ["find_*"]}
            ],
            "tool_results": [],
            "coherence": {"model": "openai/m", "on_error": "block", "tools": []},
            "hold_output": True,
        },
        "memory": {
            "window": {"messages": 20, "tokens": None},
            "summarize": {"model": "openai/m"},
            "extract": None,
            "recall": None,
        },
        "limits": {"max_steps": 2, "retry_backoff_s": 0.0, "rate_limit_cooldown_s": 0.5},
        "metadata": {"team": "blue"},
    }

    shown = show_spec(agent_of(AgentSpec.model_validate(said)))

    limits = shown.pop("limits")
    assert shown == {key: value for key, value in said.items() if key != "limits"}
    assert limits["max_steps"] == 2
    assert limits["retry_backoff_s"] == 0.0
    assert limits["tool_timeout_s"] == 60.0


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("model", "gpt-5", "a model is <provider>/<model>"),
        ("tools", ["add", "add"], "a tool is named twice"),
        ("compression", {"model": "small"}, "a model is <provider>/<model>"),
        ("mood", "good", "Extra inputs are not permitted"),
        ("limits", {"retry_backoff_s": -1}, "greater than or equal to 0"),
    ],
)
def test_what_a_spec_cannot_mean_is_refused(field: str, value: object, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        AgentSpec.model_validate({"name": "clerk", "model": "openai/m", field: value})


def test_an_agent_names_its_model_for_nobody_chooses_one_for_it() -> None:
    with pytest.raises(ValidationError) as refused:
        AgentSpec.model_validate({"name": "clerk"})

    assert [error["loc"] for error in refused.value.errors()] == [("model",)]
