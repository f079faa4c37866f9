"""The pages of agents and models name what agents and providers may say, no more and no less."""

import ast
import dataclasses
import re
from collections.abc import Iterator
from typing import get_args

from milepost import Agent as InProcess
from milepost.agent.asking import RunOptions
from milepost.core.agents import Limits
from milepost.core.guardrails import RailSpec
from milepost.guardrails.patterns import REACH_MAX
from milepost.providers.providers_file import _Declared
from milepost.runtime.agent_spec import AgentSpec, LimitsSpec
from milepost.runtime.guardrail_spec import PLACES, RAILS_MAX
from tests.law.pages import ROOT, prose_of, text_of

AGENTS = ROOT / "docs" / "agents.md"
MODELS = ROOT / "docs" / "models.md"
GUARDRAILS = ROOT / "docs" / "guardrails.md"
PYTHON = ROOT / "docs" / "python.md"

_CODE = re.compile(r"`([^`]+)`")
_WORD = re.compile(r"\w+")


def table(page_text: str, heading: str) -> list[list[str]]:
    """Return the rows of the table whose first cell is headed so."""
    lines = page_text.splitlines()
    [at] = [number for number, line in enumerate(lines) if line.startswith(f"| {heading} |")]
    rows: list[list[str]] = []
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def named_in(cell: str) -> list[str]:
    """Return what a cell has as code."""
    return _CODE.findall(cell)


def test_every_field_of_an_agent_is_told() -> None:
    told = [name for row in table(text_of(AGENTS), "Field") for name in named_in(row[0])]

    assert sorted(told) == sorted(AgentSpec.model_fields)


def test_every_field_of_an_agent_in_python_is_told_and_every_option_of_a_run() -> None:
    fields = [field.name for field in dataclasses.fields(InProcess) if field.init]

    told = {word for code in named_in(prose_of(PYTHON)) for word in _WORD.findall(code)}

    assert sorted({*fields, *RunOptions.__annotations__} - told) == []


def test_every_limit_is_told_with_its_default() -> None:
    told = {
        name: row[1]
        for row in table(text_of(AGENTS), "`limits` | Default")
        for name in named_in(row[0])
    }

    assert told == {name: shown(name, told.get(name, "")) for name in LimitsSpec.model_fields}


def shown(name: str, told: str) -> str:
    """Return a limit's default as the page says it: a number, `none`, or that it is not sent."""
    default = getattr(Limits(), name)
    if default is None or default == ():
        return told if told in {"none", "not sent"} else "none"
    return f"{default:,.10g}"


def test_every_way_to_stop_at_a_limit_is_told() -> None:
    told = [row[1] for row in table(text_of(AGENTS), "`status`")]

    reasons = {name for cell in told for name in named_in(cell)}
    others = {"stop", "terminal", "routed", "cancelled"}
    expiries = {"expired: deadline", "expired: active_time"}
    assert reasons == {*reasons_in_the_code(), *others, *expiries}


def reasons_in_the_code() -> Iterator[str]:
    """Yield the reasons with which the loop ends runs as incomplete."""
    tree = ast.parse((ROOT / "service/milepost/core/decide.py").read_text())
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("RunIncomplete"), [ast.Constant(str(reason)), *_]):
                yield reason
            case _:
                pass


def test_every_key_of_a_provider_is_told() -> None:
    told = [name for row in table(text_of(MODELS), "Key") for name in named_in(row[0])]

    assert sorted(told) == sorted(_Declared.model_fields)


def test_every_rail_and_place_is_told() -> None:
    page = text_of(GUARDRAILS)

    rails = [name for row in table(page, "`type`") for name in named_in(row[0])]
    places = [name for row in table(page, "Place") for name in named_in(row[0])]

    assert sorted(rails) == sorted(
        rail.__dataclass_fields__["type"].default for rail in get_args(RailSpec)
    )
    assert places == list(PLACES)
    assert f"at most {RAILS_MAX} rails" in page
    assert f"more than {REACH_MAX} characters" in page
