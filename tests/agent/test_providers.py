"""Who answers: providers that are given, and those that are found by their names."""

import asyncio
from pathlib import Path

import pytest

from milepost import Agent, Providers
from milepost.core.errors import ConfigurationError
from milepost.core.model import ModelRequest
from milepost.providers.cache_memory import InProcessCache
from milepost.providers.scripted import Scripted, saying
from tests.agent.making import AT_ONCE, BUSY, MODEL, add, echo
from tests.stubs import openai_server

PRICES = '["test/model"]\ninput = 1\noutput = 2\n'


async def test_a_vendor_is_found_by_name_with_its_key_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with openai_server.serving(tokens=3) as base_url:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", base_url)
        asked = Agent("openai/gpt-5-mini", tools=[add])

        result = await asked.arun("What is 17 + 25?")

    assert result.raise_for_status().content == "token0 token1 token2 "
    assert [call.result for call in result.tool_calls] == [42]
    assert (result.provider_used, result.usage.input_tokens) == ("openai", 100)


async def test_a_provider_of_a_file_is_found_by_name(tmp_path: Path) -> None:
    async with openai_server.serving(tokens=2) as base_url:
        file = tmp_path / "milepost.toml"
        file.write_text(
            f'[providers.local]\nwire = "openai"\nbase_url = "{base_url}"\nfree = true\n'
        )
        asked = Agent("local/some-model", tools=[add], providers=Providers(file=file))

        pieces = [each async for each in asked.astream("What is 17 + 25?")]

    assert str(pieces[-1]) == "token0 token1 "


async def test_connections_stay_open_while_the_agent_is_kept_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with openai_server.serving(tokens=2) as base_url:
        monkeypatch.setenv("OPENAI_BASE_URL", base_url)
        asked = Agent("openai/gpt-5-mini", tools=[add])
        async with asked:
            results = [await asked.arun("Go.") for _ in range(3)]

    assert [each.status for each in results] == ["completed"] * 3


async def test_what_is_given_goes_before_what_has_the_same_name() -> None:
    asked = Agent("openai/gpt-5-mini", providers={"openai": Scripted([saying("Mine.")])})

    assert str(await asked.arun("Hi.")) == "Mine."


async def test_the_offline_demo_is_always_there() -> None:
    result = await Agent("demo/milepost-demo", tools=[add]).arun("What is 17 + 25?")

    assert "42" in result.content
    assert (result.usage.cost_nanos, result.usage.unpriced_calls) == (0, 0)


def test_a_provider_that_is_nowhere_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="no provider 'acme'"):
        Agent("acme/model")


def test_a_file_that_is_missing_is_named_as_it_was_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="name it with file="):
        Providers(file=tmp_path / "no.toml")
    with pytest.raises(ConfigurationError, match="name it with prices="):
        Providers(prices=tmp_path / "no.toml")


def test_prices_of_ones_own_make_a_cost(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES)
    given = {"test": Scripted([saying("Hi.")])}

    asked = Agent(MODEL, providers=Providers(given, prices=prices))

    assert asked.run("Hi.").usage.cost_nanos == 10 * 1_000 + 5 * 2_000
    assert asked.total_cost == pytest.approx(0.00002)


def test_a_sync_function_answers_and_holds_nothing_up() -> None:
    result = Agent(MODEL, providers={"test": echo}).run("Hi.")

    assert (result.content, result.usage.output_tokens) == ("1: Hi.", 2)


async def test_a_model_of_ones_own_is_told_of_the_schema_in_words() -> None:
    asked: list[ModelRequest] = []

    async def answer(request: ModelRequest) -> str:
        asked.append(request)
        return '{"n": 1}'

    wanted = {"type": "object", "properties": {"n": {"type": "integer"}}}
    await Agent(MODEL, providers={"test": answer}, response_format=wanted).arun("Go.")

    assert asked[0].response_format is None
    assert "JSON Schema" in asked[0].messages[0].content


class Sized(InProcessCache):
    """Counts as nothing as long as nothing is in it."""

    def __len__(self) -> int:
        return len(self._entries)


def test_a_cache_that_is_empty_is_the_one_that_was_given() -> None:
    cache = Sized()

    assert Providers(cache=cache).cache is cache


def test_agents_may_share_their_cache_and_circuits() -> None:
    cache = InProcessCache()
    shared = Providers({"test": Scripted([saying("Once.")])}, cache=cache)
    one, other = (Agent(MODEL, providers=shared, cache_ttl_s=60) for _ in range(2))

    assert (one.run("Hi.").content, other.run("Hi.").content) == ("Once.", "Once.")
    assert asyncio.run(cache.stats()).hits == 1
    assert shared.cache is cache


def test_a_model_that_keeps_failing_is_left_alone_from_run_to_run() -> None:
    failing = Scripted([BUSY] * 9)
    asked = Agent(
        "one/model",
        fallbacks=["two/model"],
        providers={"one": failing, "two": Scripted([saying("Here.")] * 5)},
        limits=AT_ONCE,
    )

    assert [asked.run("Hi.").content for _ in range(5)] == ["Here."] * 5
    assert len(failing.requests) == 3
