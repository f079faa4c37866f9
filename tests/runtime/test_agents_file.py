"""Agents from files: applied at every start, versioned only where they changed."""

from pathlib import Path

import pytest

from milepost.core.errors import ConfigurationError
from milepost.runtime.agents_file import apply_agents, read_agents
from milepost.store import agents
from tests.runtime.workshop import TENANT, Workshop

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
        ("agents.yaml", "", "has no list `agents`"),
        ("agents.toml", '[[agents]]\nname = "clerk"', r"agents.toml: model: Field required"),
        ("agents.yaml", "agents: [{name: a, model: b/c, limits: {max_steps: x}}]",
         "limits.max_steps"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_meant_is_refused_by_its_name(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        read_agents(written(tmp_path, name, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml"):
        read_agents(tmp_path / "nowhere.toml")


async def test_applying_twice_makes_one_version_and_a_change_the_next(
    shop: Workshop, tmp_path: Path
) -> None:
    first = read_agents(written(tmp_path, "agents.toml", TOML))
    await apply_agents(TENANT, first, shop.ports)
    await apply_agents(TENANT, first, shop.ports)
    assert (await shop.store.read(agents.find(TENANT, "clerk"))).version == 1

    changed = read_agents(written(tmp_path, "agents.toml", TOML.replace("= 3", "= 4")))
    await apply_agents(TENANT, changed, shop.ports)

    assert (await shop.store.read(agents.find(TENANT, "clerk"))).version == 2
