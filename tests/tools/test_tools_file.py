"""Tools declared in a TOML file."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from milepost.core.errors import ConfigurationError
from milepost.tools.tools_file import Outside, declared_tools
from tests.stubs import mcp_server
from tests.stubs.web_server import saying, web_server
from tests.tools.http.calling import called, to_loopback

PETS = {
    "openapi": "3.1.0",
    "servers": [{"url": "https://pets.example"}],
    "paths": {"/pets": {"get": {"operationId": "listPets"}}},
}


@pytest.fixture
async def outside() -> AsyncIterator[Outside]:
    """A way out to this machine, and an environment of one variable."""
    async with to_loopback() as egress, AsyncExitStack() as held:
        yield Outside(egress, {"SHOP_TOKEN": "t0ken"}, held)


def written(folder: Path, text: str) -> Path:
    path = folder / "tools.toml"
    path.write_text(text)
    return path


async def test_a_file_declares_tools_of_each_kind(tmp_path: Path, outside: Outside) -> None:
    (tmp_path / "pets.yaml").write_text(yaml.safe_dump(PETS))
    (tmp_path / "pets.json").write_text(json.dumps(PETS))
    path = written(
        tmp_path,
        f"""
        [[http_tools]]
        name = "get_order"
        description = "Look an order up."
        url = "https://shop.example/orders/{{id}}"
        headers = {{ Authorization = "Bearer ${{env:SHOP_TOKEN}}" }}

        [[openapi]]
        document = "pets.yaml"

        [[openapi]]
        document = "pets.json"
        prefix = "more_"

        [[mcp_servers]]
        name = "stub"
        command = {json.dumps(sys.executable)}
        args = [{json.dumps(str(Path(mcp_server.__file__)))}]
        tools = ["pid"]

        [[client_tools]]
        name = "click"
        description = "Click somewhere."
        parameters = {{ type = "object" }}
        """,
    )

    tools = await declared_tools(path, outside)

    assert [(tool.name, tool.kind) for tool in tools] == [
        ("click", "client"),
        ("get_order", "http"),
        ("listPets", "http"),
        ("more_listPets", "http"),
        ("stub__pid", "mcp"),
    ]


async def test_a_secret_comes_from_the_environment_by_its_name(
    tmp_path: Path, outside: Outside
) -> None:
    async with web_server(saying(1)) as server:
        path = written(
            tmp_path,
            f"""
            [[http_tools]]
            name = "ask"
            description = "Ask."
            url = "{server.url}"
            headers = {{ Authorization = "Bearer ${{env:SHOP_TOKEN}}" }}
            """,
        )
        (tool,) = await declared_tools(path, outside)
        await called(tool)

    assert server.asked[0].headers["authorization"] == "Bearer t0ken"


HTTP = '[[http_tools]]\nname = "x"\ndescription = "X."\nurl = "https://example.com"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[http_tools", "cannot be read"),
        ("", r"declares nothing; it may have \[\[http_tools\]\]"),
        ("[[http_tool]]\n", "http_tool: "),
        (HTTP + 'method = "BREW"', r"http_tools\.0\.method"),
        (HTTP.replace("https", "ftp"), r"http_tools\.0\.url.*http or https"),
        (HTTP + 'headers = { A = "${env:NOT_SET}" }', r"\$\{env:NOT_SET\} is not in the environ"),
        (HTTP + 'headers = { A = "${secret:S}" }', r"tenant's secret.*\$\{env:S\}"),
        (HTTP + 'parameters = { type = "array" }', "must be of type object"),
        ('[[openapi]]\ndocument = "none.yaml"', "none.yaml cannot be read"),
        ('[[openapi]]\ndocument = "broken.yaml"', "broken.yaml cannot be read"),
        ('[[openapi]]\ndocument = "list.yaml"', r"openapi\.0\.document"),
        (
            '[[mcp_servers]]\nname = "m"\ncommand = "/bin/false"',
            "MCP server m cannot be reached",
        ),
        ('[[mcp_servers]]\nname = "m"\ncommand = "no-such"', "no command 'no-such'"),
        ('[[mcp_servers]]\nname = "m"\nurl = "http://10.0.0.1/"', "no public address"),
    ],
)
async def test_a_file_that_cannot_be_used_is_told_in_one_line(
    tmp_path: Path, outside: Outside, text: str, message: str
) -> None:
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "list.yaml").write_text("[1]")
    path = written(tmp_path, text)

    with pytest.raises(ConfigurationError, match=message) as refused:
        await declared_tools(path, outside)

    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


async def test_a_file_that_is_not_there_is_named(tmp_path: Path, outside: Outside) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml cannot be read"):
        await declared_tools(tmp_path / "nowhere.toml", outside)
