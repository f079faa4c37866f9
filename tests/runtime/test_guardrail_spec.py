"""Guardrails as people write them: what they mean, and what cannot be meant."""

from typing import Any

import pytest
from pydantic import ValidationError

from milepost.core.errors import InvalidError
from milepost.core.guardrails import (
    PII_KINDS,
    Coherence,
    Guardrails,
    InjectionRail,
    LengthRail,
    PiiRail,
)
from milepost.providers.catalog import Catalog
from milepost.providers.scripted import Scripted
from milepost.runtime.agent_spec import AgentSpec, agent_of, require_known
from milepost.runtime.guardrail_spec import decode_guardrails
from milepost.tools import Registry


def known(guardrails: dict[str, Any], *rails: str) -> Guardrails | None:
    """Return the guardrails of an agent that an installation with these rails takes."""
    said = {"name": "clerk", "model": "test/m", "guardrails": guardrails}
    agent = agent_of(AgentSpec.model_validate(said))
    return require_known(agent, Registry(), Catalog({"test": Scripted([])}), rails).guardrails


def test_what_is_not_said_has_its_default() -> None:
    guardrails = known(
        {"input": [{"type": "pii"}], "tool_results": [{"type": "injection"}], "coherence": {}}
    )

    assert guardrails == Guardrails(
        input=(PiiRail(action="rewrite", kinds=PII_KINDS),),
        tool_results=(InjectionRail(action="block"),),
        coherence=Coherence("test/m", "pass"),
    )


def test_an_agent_without_them_has_none() -> None:
    assert agent_of(AgentSpec.model_validate({"name": "a", "model": "test/m"})).guardrails is None


@pytest.mark.parametrize(
    ("place", "rail", "told"),
    [
        ("output", {"type": "regex", "pattern": "(a+)+$"}, "in too many ways"),
        ("output", {"type": "regex", "pattern": "["}, "cannot be read"),
        ("output", {"type": "regex", "pattern": "a", "mode": "require", "action": "rewrite"},
         "what is missing cannot be rewritten"),
        ("output", {"type": "length"}, "bounds nothing"),
        ("output", {"type": "length", "min_chars": 2, "action": "rewrite"}, "too short cannot"),
        ("tool_arguments", {"type": "length", "max_chars": 2, "action": "rewrite"},
         "arguments cannot be cut"),
        ("output", {"type": "json_schema", "schema": {"not": {}}}, "uses not"),
        ("output", {"type": "json_schema", "schema": {"required": ["a"]}}, "says required of a"),
        ("output", {"type": "json_schema", "schema": {"type": "array", "items": {"items": {}}}},
         "says items of a"),
        ("input", {"type": "pii", "tools": ["add"]}, "no tool stands at the input"),
        ("output", {"type": "topics", "words": ["tea", "\u200b"]}, "sees anything of '.u200b'"),
        ("output", {"type": "topics", "words": ["\x1c"]}, "sees anything of '.x1c'"),
    ],
)  # fmt: skip
def test_a_rail_that_cannot_do_what_it_says_is_refused(
    place: str, rail: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidError, match=told) as refused:
        known({place: [{"type": "pii"}, rail]})

    assert (refused.value.code, refused.value.pointer) == (
        "invalid_guardrail", f"/guardrails/{place}/1"
    )  # fmt: skip


def test_a_rail_in_python_must_be_there() -> None:
    mine = {"output": [{"type": "python", "name": "mine"}]}

    assert known(mine, "mine", "yours") is not None
    with pytest.raises(InvalidError, match="those of this installation are: yours") as refused:
        known(mine, "yours")
    assert (refused.value.code, refused.value.pointer) == (
        "unknown_guardrail", "/guardrails/output/0/name"
    )  # fmt: skip


def test_the_model_that_judges_calls_must_have_a_provider() -> None:
    with pytest.raises(InvalidError) as refused:
        known({"coherence": {"model": "nobody/m"}})

    assert (refused.value.code, refused.value.pointer) == (
        "unknown_provider", "/guardrails/coherence/model"
    )  # fmt: skip


@pytest.mark.parametrize(
    "guardrails",
    [
        {"inputs": []},
        {"input": [{"type": "magic"}]},
        {"input": [{"type": "pii", "kinds": ["name"]}]},
        {"input": [{"type": "pii", "kinds": []}]},
        {"input": [{"type": "injection", "action": "rewrite"}]},
        {"input": [{"type": "topics", "words": []}]},
        {"input": [{"type": "topics", "words": [" "]}]},
        {"input": [{"type": "pii"}] * 21},
        {"coherence": {"model": "m"}},
        {"coherence": {"on_error": "fail"}},
    ],
)
def test_what_no_guardrail_is_is_refused(guardrails: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        known(guardrails)


def test_an_option_of_a_later_version_is_dropped_and_a_rail_of_one_is_not() -> None:
    later = {"output": [{"type": "length", "max_chars": 5, "max_smiles": 3}]}

    assert decode_guardrails(later) == Guardrails(output=(LengthRail(max_chars=5),))
    with pytest.raises(KeyError):
        decode_guardrails({"output": [{"type": "taste"}]})
