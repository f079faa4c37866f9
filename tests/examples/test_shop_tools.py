"""The example's tools do what their effects promise."""

from pathlib import Path

import pytest

from examples import shop_tools
from milepost.runtime.agents_file import read_agents
from milepost.tools import ToolContext, load, tool_of

EXAMPLES = Path(shop_tools.__file__).parent


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shop's books are in the folder that the service runs in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def called(key: str) -> ToolContext:
    return ToolContext("run_1", "ses_1", "default", None, "call_1_0", 1, key)


def test_a_repeated_reservation_is_one() -> None:
    shop_tools.reserve("teapot", 2, called("one"))

    shop_tools.reserve("teapot", 2, called("one"))
    shop_tools.reserve("teapot", 1, called("another"))

    assert shop_tools.look_up("teapot")["reserved"] == 3


def test_a_refund_is_gated_and_never_repeated() -> None:
    refund = tool_of(shop_tools.refund)

    said = shop_tools.refund(7, 2900)

    assert (refund.effect, refund.requires_approval) == ("once", True)
    assert said == "order 7: 2900 cents paid back"


def test_the_agents_have_tools_that_are_there() -> None:
    agents = read_agents(EXAMPLES / "agents.toml")

    [shop, _] = agents

    assert set(shop.tools) == {tool.name for tool in load(str(EXAMPLES / "shop_tools.py"))}
