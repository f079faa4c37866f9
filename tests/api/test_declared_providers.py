"""Providers that a file declares serve agents as the built-in ones do."""

from pathlib import Path

import pytest

from milepost.core.errors import ConfigurationError
from milepost.declarations import load_providers
from milepost.settings import Settings, load_settings
from tests.api.asking import events
from tests.api.making import made
from tests.api.serving import serving, settings_for
from tests.stubs.directed_model import directed_model
from tests.stubs.web_server import saying, web_server

DECLARED = """
[providers.local]
wire = "openai"
base_url = "{base_url}"
api_key_env = "LOCAL_KEY"
requests_per_minute = 1
queue_s = 0.01
free = true
"""


@pytest.fixture
def local_key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The key that the declared provider takes from the environment."""
    monkeypatch.setenv("LOCAL_KEY", "sk-local-secret")
    return "sk-local-secret"


async def test_an_agent_uses_a_model_of_a_declared_provider(
    sqlite_database_url: str, local_key: str, tmp_path: Path
) -> None:
    async with directed_model() as model:
        file = tmp_path / "mine.toml"
        file.write_text(DECLARED.format(base_url=model.base_url))
        settings = settings_for(sqlite_database_url, providers=str(file))
        async with serving(settings) as service, service.client() as client:
            agent = {
                "name": "clerk",
                "model": "local/directed",
                "limits": {"model_retries": 0},
            }
            await made(client, "/v1/agents", agent)
            body = {"agent": "clerk", "input": "Hi"}
            runs = [await made(client, "/v1/runs?wait=20", body) for _ in range(2)]

    answered, limited = runs
    assert (answered["status"], answered["output"]["text"]) == ("completed", "said: Hi ")
    assert answered["usage"]["unpriced_calls"] == 0
    assert limited["status"] == "failed"
    assert limited["error"]["code"] == "provider_rate_limited"
    assert local_key not in str(runs)


def test_a_file_in_the_working_directory_needs_no_setting(
    local_key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "milepost.toml").write_text(DECLARED.format(base_url="http://127.0.0.1:1/v1"))

    declared = load_providers(load_settings({"openai_api_key": "sk-flag"}))

    assert sorted(declared) == ["local", "ollama", "openai"]
    assert declared["openai"].api_key == "sk-flag"


def test_a_file_goes_before_what_needs_none(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[providers.ollama]\nwire = "openai"\nbase_url = "http://other:11434/v1"\n')

    declared = load_providers(Settings(providers=str(file)))

    assert declared["ollama"].base_url == "http://other:11434/v1"


def test_a_file_that_is_named_must_be_there() -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml cannot be read.*--providers"):
        load_providers(Settings(providers="none.toml"))


async def test_a_run_goes_on_with_another_model_and_leaves_the_failing_one_alone(
    sqlite_database_url: str, tmp_path: Path
) -> None:
    """The first model is asked by three of five runs; the log says who stood in, and why."""
    async with directed_model() as model, web_server(saying({"error": "full"}, 503)) as full:
        file = tmp_path / "mine.toml"
        file.write_text(
            f'[providers.full]\nwire = "openai"\nbase_url = "{full.url}"\n'
            f'[providers.idle]\nwire = "openai"\nbase_url = "{model.base_url}"\n'
        )
        settings = settings_for(sqlite_database_url, providers=str(file))
        async with serving(settings) as service, service.client() as client:
            agent = {"name": "clerk", "model": "full/big", "fallbacks": ["idle/directed"]}
            await made(client, "/v1/agents", agent)
            body = {"agent": "clerk", "input": "Hi"}
            runs = [await made(client, "/v1/runs?wait=20", body) for _ in range(5)]
            logs = [await events(client, run["id"]) for run in runs]

    assert [run["status"] for run in runs] == ["completed"] * 5
    assert len(full.asked) == 3
    told = [event["data"] for log in logs for event in log if event["type"] == "model.fell_back"]
    assert {(each["failed"], each["chosen"]) for each in told} == {("full/big", "idle/directed")}
    assert [each["error"]["code"] for each in told] == [
        *["provider_overloaded"] * 3,
        *["provider_circuit_open"] * 2,
    ]
