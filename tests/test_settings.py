"""Settings: a flag wins over the environment, that over the default, and nonsense is named."""

import pytest

from milepost.core.errors import ConfigurationError
from milepost.settings import flag, load_settings, unread, variable


def test_a_flag_wins_over_the_environment_and_that_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MILEPOST_SLOTS", "7")
    monkeypatch.setenv("MILEPOST_QUEUE_MAX", "8")

    settings = load_settings({"slots": 9, "queue_max": None})

    assert (settings.slots, settings.queue_max, settings.port) == (9, 8, 8000)


def test_an_empty_variable_is_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_PORT", "")
    monkeypatch.setenv("OPENAI_API_KEY", "")

    settings = load_settings({})

    assert (settings.port, settings.openai_api_key) == (8000, None)


def test_a_vendors_own_name_is_read_and_has_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")

    assert (flag("openai_base_url"), variable("openai_base_url")) == (
        "--openai-base-url",
        "OPENAI_BASE_URL",
    )
    assert load_settings({}).openai_base_url == "http://127.0.0.1:1/v1"
    assert load_settings({"openai_base_url": "http://127.0.0.1:2/v1"}).openai_base_url.endswith(
        "2/v1"
    )


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("port", 70_000, r"--port \(MILEPOST_PORT\) cannot be 70000"),
        ("port", -1, "greater than or equal to 0"),
        ("slots", -1, r"--slots \(MILEPOST_SLOTS\) cannot be -1"),
        ("lease_s", 0, "greater than 0"),
        ("lease_s", 1e300, r"--lease-s \(MILEPOST_LEASE_S\).*less than or equal to 86400"),
        ("sweep_s", 1e300, "less than or equal to 86400"),
        ("drain_s", 1e300, "less than or equal to 86400"),
        ("queue_max", 10**20, "less than or equal to 1000000000"),
        ("kept_max_s", 1e300, "less than or equal to 3153600000"),
        ("drain_s", float("nan"), "finite"),
        ("log_level", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("temporal_namespace", "", "at least 1 character"),
        ("temporal_task_queue", "", r"--temporal-task-queue.*at least 1 character"),
        ("public_url", "agents.example.com", "write it as in https://agents.example.com"),
        ("otlp_endpoint", "collector:4317", "OTEL_EXPORTER_OTLP_ENDPOINT.*write it as in https:"),
        ("openai_base_url", "localhost:8080", "OPENAI_BASE_URL.*write it as in https:"),
        ("base_url", "localhost:8000", "MILEPOST_BASE_URL.*write it as in https:"),
        ("base_url", "http://[::1", "MILEPOST_BASE_URL.*write it as in https:"),
        ("temporal_address", "temporal", "MILEPOST_TEMPORAL_ADDRESS.*as in temporal.example:7233"),
        ("temporal_address", "http://t.example:7233", "write it as in temporal.example:7233"),
        ("temporal_address", "t.example:99999", "write it as in temporal.example:7233"),
        ("public_url", "http://agents.example.com:99999", "MILEPOST_PUBLIC_URL.*write it as in"),
        ("otlp_endpoint", "http://:4318", "OTEL_EXPORTER_OTLP_ENDPOINT.*write it as in https:"),
        ("capture_content", "maybe", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"),
    ],
)
def test_what_cannot_be_is_named_by_its_flag_and_its_variable(
    name: str, value: object, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        load_settings({name: value})


def test_a_variable_is_named_as_its_flag_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_PORT", "eighty")

    with pytest.raises(ConfigurationError, match=r"--port \(MILEPOST_PORT\) cannot be 'eighty'"):
        load_settings({})


def test_a_variable_that_looks_like_a_setting_and_is_none_is_found_with_the_nearest() -> None:
    environment = {
        "MILEPOST_DATABSE_URL": "postgresql://...",
        "MILEPOST_ZZZ": "1",
        "MILEPOST_SLOT": "",
        "MILEPOST_PORT": "9000",
        "milepost_host": "127.0.0.1",
        "OPENAI_API_KEY": "sesame",
    }

    assert unread(environment) == {
        "MILEPOST_DATABSE_URL": "MILEPOST_DATABASE_URL",
        "MILEPOST_ZZZ": None,
    }


def test_secrets_are_not_shown() -> None:
    settings = load_settings(
        {"secret_key": "sesame-1", "openai_api_key": "sesame-2", "api_key": "sesame-3"}
    )

    assert "sesame" not in repr(settings)
