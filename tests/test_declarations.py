"""What the settings name is loaded, or refused by the name of what is wrong with it."""

from pathlib import Path

import pytest

from milepost.core.errors import ConfigurationError
from milepost.declarations import load_agents, load_prices, load_tools
from milepost.providers.catalog import Catalog
from milepost.providers.demo import Demo
from milepost.settings import Settings

PROVIDERS = Catalog({"demo": Demo()})

TOOL = """
from milepost import tool

@tool
def {name}() -> int:
    "Count."
    return 1
"""
METHOD = """
from milepost import tool

class Till:
    @tool
    def pay(self) -> int:
        "Pay."
        return 1

pay = Till.pay
"""
AGENT = """
[[agents]]
name = "{name}"
model = "{model}"
tools = [{tools}]
"""


def agent(name: str = "clerk", model: str = "demo/offline", tools: str = "") -> str:
    return AGENT.format(name=name, model=model, tools=tools)


def written(folder: Path, **files: str) -> str:
    """Write Python files; return them as `--tools` takes them."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return ",".join(str(folder / f"{name}.py") for name in files)


def described(folder: Path, text: str) -> list[str]:
    """Return the names of the agents of a file that says this, beside the demo's own."""
    file = folder / "agents.toml"
    file.write_text(text)
    settings = Settings(agents=str(file))
    found = load_agents(settings, load_tools(settings), PROVIDERS)
    return [agent.name for each in found.values() for agent in each]


def test_tools_of_several_files_stand_beside_the_demos(tmp_path: Path) -> None:
    spec = written(tmp_path, a=TOOL.format(name="one"), b=TOOL.format(name="two"))

    assert {"add", "one", "two"} <= set(load_tools(Settings(tools=spec)).names)
    assert load_tools(Settings(tools=spec, demo=False)).names == ("one", "two")


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"a": TOOL.format(name="one"), "b": TOOL.format(name="one")},
         r"the tools of .*b\.py: there is a tool 'one' already; rename one: @tool\(name"),
        ({"a": TOOL.format(name="send_email")}, r"a\.py: there is a tool 'send_email' already"),
        ({"a": METHOD}, r"a\.py: tool 'pay' is a method and lacks its instance"),
        ({"a": "1 / 0"}, r"a\.py cannot be loaded at line 1: ZeroDivisionError"),
        ({"a": ""}, r"a\.py holds no tools; decorate its functions with @tool"),
    ],
)  # fmt: skip
def test_tools_that_cannot_be_used_are_named_with_their_file(
    tmp_path: Path, files: dict[str, str], told: str
) -> None:
    spec = written(tmp_path, **files)

    with pytest.raises(ConfigurationError, match=told):
        load_tools(Settings(tools=spec))


def test_agents_of_a_file_stand_beside_the_demos(tmp_path: Path) -> None:
    assert described(tmp_path, agent(tools='"add"')) == ["demo", "clerk"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (agent(tools='"fly"'), r"agents\.toml: agent 'clerk': there is no tool 'fly'; the tools"),
        (agent(model="acme/one"), r"agent 'clerk': there is no provider 'acme'; a model begins"),
        (agent() + agent(), "there is an agent 'clerk' already; rename one"),
        (agent(name="demo"), "there is an agent 'demo' already; rename one"),
    ],
)
def test_agents_that_could_not_run_are_named_with_their_file(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        described(tmp_path, text)


def test_prices_are_those_of_providers_that_are_there(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('["demo/mine"]\ninput = 1\noutput = 2\n')

    assert set(load_prices(Settings(prices=str(file)), PROVIDERS)) == {"demo/mine"}
    assert load_prices(Settings(), PROVIDERS) == {}


def test_a_price_that_would_never_be_looked_up_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('["opnai/mine"]\ninput = 1\noutput = 2\n')

    with pytest.raises(ConfigurationError, match="opnai/mine: No provider is called 'opnai'"):
        load_prices(Settings(prices=str(file)), PROVIDERS)
