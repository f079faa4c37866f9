"""The example of declared tools declares what it says."""

import sys
from contextlib import AsyncExitStack
from pathlib import Path

from milepost.tools.egress import open_egress
from milepost.tools.tools_file import Outside, declared_tools, read_tools_file
from tests.tools.http.calling import secrets

EXAMPLE = Path(__file__).parents[2] / "examples" / "tools.toml"


async def test_the_example_declares_tools_of_each_kind() -> None:
    declared = read_tools_file(EXAMPLE)

    async with open_egress() as egress:
        (order,) = [each.tool(egress, secrets) for each in declared.http_tools]
        (pets,) = [each.tools(egress, secrets) for each in declared.openapi]
    assert (order.name, order.effect, order.timeout_s) == ("get_order", "read", 10)
    assert [tool.name for tool in pets] == ["pets_listPets", "pets_getPet"]
    assert [each.name for each in declared.mcp_servers] == ["time"]
    assert [each.name for each in declared.client_tools] == ["pick_colour"]


async def test_the_service_starts_with_the_example() -> None:
    environment = {"SHOP_TOKEN": "t0ken", "PATH": str(Path(sys.executable).parent)}

    async with open_egress() as egress, AsyncExitStack() as held:
        tools = await declared_tools(EXAMPLE, Outside(egress, environment, held))

    assert {"get_order", "pets_getPet", "time__get_current_time", "pick_colour"} <= {
        tool.name for tool in tools
    }
