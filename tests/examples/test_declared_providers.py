"""The example of declared providers declares what it says."""

from pathlib import Path

from milepost.providers.building import open_models, share
from milepost.providers.cache_memory import InProcessCache
from milepost.providers.providers_file import read_providers
from milepost.providers.windows import Quota

EXAMPLE = Path(__file__).parents[2] / "examples" / "milepost.toml"
KEYS = {"ANTHROPIC_API_KEY": "sk-1", "GATEWAY_KEY": "sk-2", "GATEWAY_TEAM": "blue"}


async def test_the_example_declares_providers_that_can_be_built() -> None:
    declared = read_providers(EXAMPLE, KEYS)

    async with open_models(declared, share(InProcessCache()), built_in={}) as models:
        assert models.catalog.names == ("claude", "gateway", "local", "tiny")
        assert models.free == {"local", "tiny"}
    assert (declared["local"].api_key, declared["local"].calls_max) == (None, 4)
    assert (declared["tiny"].text_tools, declared["tiny"].schemas) == (True, False)
    assert declared["gateway"].headers == {"X-Team": "blue"}
    assert declared["claude"].api_key == "sk-1"
    assert declared["claude"].quota == Quota(requests=50, tokens=40_000)
