"""Finding a provider by its name."""

import pytest

from milepost.core.errors import InvalidError
from milepost.providers.catalog import Catalog
from milepost.providers.scripted import Scripted


def test_a_provider_is_found_by_its_name() -> None:
    local = Scripted([])

    assert Catalog({"local": local, "demo": Scripted([])}).get("local") is local


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    catalog = Catalog({"openai": Scripted([]), "demo": Scripted([])})

    with pytest.raises(
        InvalidError, match="'opneai'; this installation has demo, openai"
    ) as caught:
        catalog.get("opneai")

    assert caught.value.code == "unknown_provider"
