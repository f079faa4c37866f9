"""A real service that a module's tests share, and a client that loses no time with waiting.

Such a module runs on one event loop: `pytestmark = pytest.mark.asyncio(loop_scope="module")`.
"""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from milepost.client import Milepost, Patience
from tests.journeys.processes import Installation, Server, installed
from tests.stubs.directed_model import DirectedModel, directed_model

AGENT = """
[[agents]]
name = "parrot"
model = "openai/directed"
tools = ["look"]
"""
TOOLS = """
[[client_tools]]
name = "look"
description = "Look at the screen."
parameters = { type = "object", properties = { at = { type = "string" } } }
"""

EAGER = Patience(tries_max=100, wait_s=0.0, asked_s_max=0.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model() -> AsyncIterator[DirectedModel]:
    """A model that the test directs by what it says."""
    async with directed_model() as serving:
        yield serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    tmp_path_factory: pytest.TempPathFactory, model: DirectedModel
) -> AsyncIterator[Installation]:
    """A folder for services with the demo agent, and with one that says what it is told."""
    folder = tmp_path_factory.mktemp("service")
    agents = folder / "agents.toml"
    agents.write_text(AGENT)
    tools = folder / "tools.toml"
    tools.write_text(TOOLS)
    environment = {
        "MILEPOST_AGENTS": str(agents),
        "MILEPOST_TOOLS": str(tools),
        "MILEPOST_LOG_LEVEL": "warning",
        "MILEPOST_DEMO_WORD_DELAY_S": "0",
        "OPENAI_BASE_URL": model.base_url,
        "PATH": os.environ["PATH"],
    }
    async with installed(folder, environment) as installation:
        yield installation


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(installation: Installation) -> Server:
    """A running `milepost serve`."""
    return await installation.start()


@pytest.fixture
def base_url(server: Server) -> str:
    """Where the service is."""
    return str(server.http.base_url).rstrip("/")


@pytest_asyncio.fixture(loop_scope="module")
async def milepost(base_url: str) -> AsyncIterator[Milepost]:
    """A client of it."""
    async with Milepost(base_url, patience=EAGER) as client:
        yield client
