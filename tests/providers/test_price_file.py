"""Prices from a file: exact, or refused."""

from pathlib import Path

import pytest

from milepost.core.errors import ConfigurationError
from milepost.core.usage import Usage
from milepost.providers.price_file import read_prices
from milepost.providers.pricing import Pricing

PRICES = """
["openai/my-model"]
input = 0.15
output = 0.6

["openai/Qwen/Qwen3"]
input = 1
output = 2
cache_read = 0.25
cache_write = 1.5
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_prices_what_it_names(tmp_path: Path) -> None:
    pricing = Pricing(own=read_prices(written(tmp_path, PRICES)))
    used = Usage(input_tokens=100, output_tokens=10, cache_read_tokens=40, cache_write_tokens=20)

    assert pricing.cost_nanos("openai", "my-model", used) == 100 * 150 + 10 * 600
    assert pricing.cost_nanos("openai", "Qwen/Qwen3", used) == (
        40 * 1_000 + 40 * 250 + 20 * 1_500 + 10 * 2_000
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[openai", "prices.toml: "),
        ("model = 3", "'model' is no table of a `provider/model`"),
        ("[openai.gpt]\ninput = 1", "'openai' is no table of a `provider/model`"),
        ('["openai/x"]\ninput = 1', "openai/x: output: Field required"),
        ('["openai/x"]\ninput = -1\noutput = 1', "openai/x: input: "),
        ('["openai/x"]\ninput = inf\noutput = 1', "openai/x: input: "),
        ('["openai/x"]\ninput = 1\noutput = 1\nimages = 2', "openai/x: images: no such field"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_by_its_name(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        read_prices(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml cannot be read: No such file"):
        read_prices(tmp_path / "nowhere.toml")
