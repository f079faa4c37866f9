"""Agents from files: applied at every start, versioned only where they changed."""

import logging
from pathlib import Path

import pytest

from milepost.core.errors import ConfigurationError
from milepost.runtime.agents_file import apply_agents, read_agents
from milepost.store import agents
from tests.runtime.workshop import TENANT, Workshop
from tests.telemetry.spoken import spoken

TOML = """
[[agents]]
name = "clerk"
model = "demo/offline"
tools = ["add"]
[agents.limits]
max_steps = 3
"""
YAML = """
agents:
  - name: clerk
    model: demo/offline
    tools: [add]
    limits: {max_steps: 3}
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_both_forms_say_the_same(tmp_path: Path) -> None:
    [clerk] = read_agents(written(tmp_path, "agents.toml", TOML))

    assert [clerk] == read_agents(written(tmp_path, "agents.yaml", YAML))
    assert (clerk.name, clerk.tools, clerk.limits.max_steps) == ("clerk", ("add",), 3)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("agents.toml", "[[agents]", "agents.toml: "),
        ("agents.yaml", "agents: {", "agents.yaml: "),
        ("agents.yaml", "- 1", "has no list `agents`"),
        ("agents.yaml", "", "has no list `agents`; write each agent below `agents:`"),
        ("agents.toml", '[agents]\nname = "a"', r"; begin each agent with \[\[agents\]\]"),
        ("agents.toml", '[[agents]]\nname = "a"\nmodel = "b/c"\nresponse_format.type = "object"',
         "agents.1.response_format: the JSON Schema stands under `schema`"),
        ("agents.toml", '[[agents]]\nname = "clerk"', r"toml: agents.1.model: Field required"),
        ("agents.toml", '[[agents]]\nname = "a"\nmodel = "b/c"\ntool = []',
         r"agents.1.tool: no such field"),
        ("agents.yaml", "agents: [{name: a, model: b/c, limits: {max_steps: x}}]",
         "limits.max_steps"),
        ("agents.yaml", "agents:\n- name: a\n  model: b/c\n  policy: {deny: [x]}\n  policy: {}",
         "'policy' stands there twice"),
        ("agents.yaml", "agents: [{name: 2024-13-45, model: b/c}]", "agents.yaml: month must be"),
        ("agents.yaml", "agents: " + "[" * 5_000, "agents.yaml: maximum recursion"),
        ("agents.toml", "agents = " + "[" * 5_000, "agents.toml: maximum recursion"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_meant_is_refused_by_its_name(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        read_agents(written(tmp_path, name, text))


def test_what_agents_have_in_common_may_be_merged_in(tmp_path: Path) -> None:
    both = """
common: &common {model: demo/offline, tools: [add]}
cautious: &cautious {<<: *common, tools: []}
agents:
  - {name: one, <<: *cautious}
  - {<<: *cautious, name: two, tools: [multiply]}
"""

    one, two = read_agents(written(tmp_path, "agents.yaml", both))

    assert (one.tools, two.tools, two.model) == ((), ("multiply",), "demo/offline")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml"):
        read_agents(tmp_path / "nowhere.toml")


async def test_applying_twice_makes_one_version_and_a_change_the_next(
    shop: Workshop, tmp_path: Path
) -> None:
    first = read_agents(written(tmp_path, "agents.toml", TOML))
    await apply_agents(TENANT, {"agents.toml": first}, shop.ports)
    await apply_agents(TENANT, {"agents.toml": first}, shop.ports)
    assert (await shop.store.read(agents.find(TENANT, "clerk"))).version == 1

    changed = read_agents(written(tmp_path, "agents.toml", TOML.replace("= 3", "= 4")))
    await apply_agents(TENANT, {"agents.toml": changed}, shop.ports)

    assert (await shop.store.read(agents.find(TENANT, "clerk"))).version == 2


async def test_a_file_that_undoes_a_change_says_so(
    shop: Workshop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    described = {"agents.toml": read_agents(written(tmp_path, "agents.toml", TOML))}
    await apply_agents(TENANT, described, shop.ports)
    clerk = await shop.store.read(agents.find(TENANT, "clerk"))
    await shop.store.write(agents.revise(TENANT, clerk.id, "{}", now_ms=shop.clock()))

    shop.clock.ahead_ms = 60_000
    await apply_agents(TENANT, described, shop.ports)
    shop.clock.ahead_ms = 120_000
    await apply_agents(TENANT, described, shop.ports)

    assert [(line["level"], line["event"]) for line in spoken(caplog, "agents")] == [
        ("info", "agent clerk: version 1 from agents.toml"),
        ("info", "agent clerk: version 3 from agents.toml"),
    ]
