"""A file of providers: what it says is read, and what cannot be is named with its remedy."""

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.core.errors import ConfigurationError
from milepost.providers.anthropic import PATIENCE as ANTHROPIC_PATIENCE
from milepost.providers.anthropic_request import Dialect
from milepost.providers.declared import DeclaredProvider, known_vendors
from milepost.providers.providers_file import read_providers
from milepost.providers.reading import Patience
from milepost.providers.windows import Quota

ENVIRONMENT = {
    "OPENAI_API_KEY": "sk-openai",
    "LOCAL_KEY": "sk-local",
    "GATEWAY_TOKEN": "sk-gateway",
    "EMPTY": "",
}

FULL = """
[providers.local]
wire = "openai"
base_url = "http://127.0.0.1:8080/v1"
api_key_env = "LOCAL_KEY"
headers = { X-Team = "blue", X-Gateway = "Bearer ${env:GATEWAY_TOKEN}" }
first_token_s = 20
between_tokens_s = 5.5
request_s = 300
concurrency = 4
requests_per_minute = 60
tokens_per_minute = 90_000
queue_s = 12
tools = "text"
tokens_field = "max_completion_tokens"
reasoning_field = "reasoning"
free = true

[providers.o]
wire = "responses"
reasoning_summary = "auto"

[providers.claude]
wire = "anthropic"
base_url = "http://127.0.0.1:8080"
request_s = 60
sampling = true
schemas = false
key_header = "x-api-key"
"""


def read(folder: Path, text: str) -> dict[str, DeclaredProvider]:
    file = folder / "milepost.toml"
    file.write_text(text)
    return read_providers(file, ENVIRONMENT)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(folder, text)
    return str(caught.value)


def test_all_that_can_be_said_is_read(tmp_path: Path) -> None:
    declared = read(tmp_path, FULL)

    assert declared["local"] == DeclaredProvider(
        wire="openai",
        base_url="http://127.0.0.1:8080/v1",
        api_key="sk-local",
        headers={"X-Team": "blue", "X-Gateway": "Bearer sk-gateway"},
        patience=Patience(first_s=20, between_s=5.5, whole_s=300),
        calls_max=4,
        queue_s=12,
        quota=Quota(60, 90_000, 12),
        tokens_field="max_completion_tokens",
        reasoning_field="reasoning",
        text_tools=True,
        free=True,
    )
    assert declared["o"] == DeclaredProvider(
        wire="responses",
        base_url="https://api.openai.com/v1",
        api_key="sk-openai",
        patience=Patience(first_s=300, between_s=120),
        reasoning_summary="auto",
    )
    assert declared["claude"] == DeclaredProvider(
        wire="anthropic",
        base_url="http://127.0.0.1:8080",
        patience=Patience(first_s=60, between_s=60, whole_s=60),
        dialect=Dialect(sampling=True, schemas=False, key_header="x-api-key"),
        schemas=False,
    )


def test_a_wire_that_is_slow_by_nature_keeps_its_patience(tmp_path: Path) -> None:
    text = '[providers.c]\nwire = "anthropic"\nbase_url = "http://h"\nbetween_tokens_s = 7\n'

    patience = read(tmp_path, text)["c"].patience

    assert patience == replace(ANTHROPIC_PATIENCE, between_s=7)


def test_a_vendors_key_goes_to_no_other_address(tmp_path: Path) -> None:
    text = '[providers.local]\nwire = "openai"\nbase_url = "http://127.0.0.1:8080/v1"\n'

    assert read(tmp_path, text)["local"].api_key is None


def test_no_wait_is_longer_than_the_whole_request(tmp_path: Path) -> None:
    declared = read(tmp_path, '[providers.a]\nwire = "openai"\nrequest_s = 3\n')["a"]

    assert declared.patience == Patience(first_s=3, between_s=3, whole_s=3)


def test_what_is_secret_is_not_shown(tmp_path: Path) -> None:
    assert "sk-" not in repr(read(tmp_path, FULL))


WIRE = '[providers.local]\nwire = "openai"\n'
KEYLESS = WIRE + 'base_url = "http://127.0.0.1:1"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "declares none; write [providers.NAME] with a wire"),
        ("providers = 3", "declares none; write [providers.NAME] with a wire"),
        ("[provider.local]", "provider: no such key; a file has [providers.NAME] tables"),
        ("[providers.local", "Expected ']'"),
        ("[providers.local]", "providers.local.wire: Field required"),
        ('providers.local = "openai"', "providers.local: "),
        ('[providers.a]\nwire = "cohere"', "providers.a.wire: Input should be 'openai', 'respon"),
        (WIRE + "colour = 1", "providers.local.colour: no such key"),
        (WIRE + "concurrency = 0", "providers.local.concurrency: Input should be greater than or"),
        (WIRE + 'concurrency = "4"', "providers.local.concurrency: Input should be a valid int"),
        (WIRE + "request_s = 0", "providers.local.request_s: Input should be greater than 0"),
        (WIRE + "request_s = nan", "providers.local.request_s: Input should be"),
        (WIRE + 'api_key_env = "NOT_THERE"',
         "providers.local.api_key_env: NOT_THERE is not in the environment; set it and start"),
        (WIRE + 'api_key_env = "EMPTY"', "api_key_env: EMPTY is not in the environment"),
        ('[providers.c]\nwire = "anthropic"',
         "providers.c.api_key_env: ANTHROPIC_API_KEY is not in the environment; set it"),
        (WIRE + 'base_url = "localhost:8080"', "'localhost:8080' is no http:// or https:// addr"),
        (WIRE + 'base_url = "ftp://host"', "providers.local.base_url: 'ftp://host' is no http"),
        (WIRE + 'base_url = "http://[::1"', "providers.local.base_url: it is no address"),
        (WIRE + 'base_url = "http://host:99999"', "'http://host:99999' is no http:// or https://"),
        (WIRE + 'base_url = "http://api..host"', "'http://api..host' is no http:// or https://"),
        (WIRE + 'base_url = "http://my host"', "'http://my host' is no http:// or https://"),
        (WIRE + 'api_key = "sk-1"', "api_key: no key belongs in a file; name the variable"),
        (WIRE + 'base_url = "https://host/v1?key=1"', "it goes on behind its path; end it at ?"),
        (WIRE + 'base_url = "https://host/v1#x"', "it goes on behind its path; end it at ?"),
        (KEYLESS + 'headers = { "X Y" = "1" }', "providers.local.headers.X Y: it is no name of"),
        (KEYLESS + 'headers = { Host = "x" }', "providers.local.headers.Host: it is set already"),
        (WIRE + 'headers = { Authorization = "x" }', "headers.Authorization: it is set already"),
        (KEYLESS + 'headers = { X = "a\\nb" }', "headers.X: its value has a line end, or a letter"),
        (KEYLESS + 'headers = { X = "${env:NONE}" }', "headers.X: NONE is not in the environment"),
        (KEYLESS + 'headers = { X = "${secret:A}" }', "headers.X: it has a ${…} that is no ${env:"),
        ('[providers.g]\nwire = "responses"\ntokens_field = "max_tokens"',
         "providers.g.tokens_field: only wire = 'openai' has that; leave it out"),
        (WIRE + 'reasoning_summary = "auto"',
         "providers.local.reasoning_summary: only wire = 'responses' has that; leave it out"),
        (KEYLESS + "sampling = true",
         "providers.local.sampling: only wire = 'anthropic' has that; leave it out"),
        ('[providers.demo]\nwire = "openai"', "providers.demo: 'demo' is built in; take another"),
        ('[providers.direct]\nwire = "openai"', "'direct' is built in; take another name"),
        ('[providers."A/b"]\nwire = "openai"', "providers.A/b: a name has lower-case letters"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named_by_its_file_and_key_with_the_remedy(
    tmp_path: Path, text: str, told: str
) -> None:
    said = refusal(tmp_path, text)

    assert said.startswith(f"providers file {tmp_path}/milepost.toml")
    assert told in said


@pytest.mark.parametrize("user", ["sesame@", "me:sesame@", "sesame:@"])
def test_credentials_in_an_address_are_refused_and_not_repeated(tmp_path: Path, user: str) -> None:
    said = refusal(tmp_path, f'{WIRE}base_url = "https://{user}host/v1"')

    assert "it holds credentials; put the key where api_key_env names it" in said
    assert "sesame" not in said


@pytest.mark.parametrize("line", ['api_key = "sesame"', 'api_key_env = ["sesame"]'])
def test_a_secret_in_the_wrong_place_is_not_repeated(tmp_path: Path, line: str) -> None:
    assert "sesame" not in refusal(tmp_path, WIRE + line)


def test_a_header_may_bring_the_key_where_there_is_no_other(tmp_path: Path) -> None:
    text = KEYLESS + 'headers = { Authorization = "Basic ${env:LOCAL_KEY}" }'

    assert read(tmp_path, text)["local"].headers == {"Authorization": "Basic sk-local"}


def test_a_file_that_is_not_there_is_named_with_its_flag(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml cannot be read: No such .*--provid"):
        read_providers(tmp_path / "none.toml", {})


# --- Without a file ---------------------------------------------------------------------------


def test_vendors_whose_key_is_in_the_environment_need_no_file() -> None:
    keys = {"ANTHROPIC_API_KEY": "a", "GEMINI_API_KEY": "g", "OPENAI_API_KEY": "o"}

    declared = known_vendors(keys, "https://api.openai.com/v1")

    assert {name: (each.wire, each.api_key) for name, each in declared.items()} == {
        "openai": ("openai", "o"),
        "ollama": ("openai", None),
        "anthropic": ("anthropic", "a"),
        "gemini": ("gemini", "g"),
    }


def test_without_a_key_there_are_those_that_may_need_none() -> None:
    declared = known_vendors({"ANTHROPIC_API_KEY": ""}, "http://127.0.0.1:8080/v1")

    assert {name: each.base_url for name, each in declared.items()} == {
        "openai": "http://127.0.0.1:8080/v1",
        "ollama": "http://127.0.0.1:11434/v1",
    }
