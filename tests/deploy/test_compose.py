"""The composition: its commands are commands, its settings settings, its parts know each other."""

import re
from itertools import pairwise
from typing import Any

import pytest
import yaml

from milepost.settings import Settings, load_settings
from tests.deploy.files import (
    DEPLOY,
    PORT,
    complaint_about,
    example_environment,
    interpolated,
    known_variables,
    our_services,
    services,
    strings,
)

_REFERENCE = re.compile(r"\$\{([A-Z_]+)")
_NAMED = re.compile(r"(?:@|//)(?P<host>[a-z][a-z0-9-]+):(?P<port>\d+)")
LISTENING = {"postgres": "5432", "valkey": "6379", "otel-collector": "4318"}


def settings_of(service: dict[str, Any]) -> Settings:
    filled = {name: word or "a" * 40 for name, word in example_environment().items()}
    said = {name: interpolated(word, filled) for name, word in service["environment"].items()}
    with pytest.MonkeyPatch.context() as patch:
        for name, word in said.items():
            patch.setenv(name, word)
        return load_settings({})


def test_there_are_two_apis_two_workers_and_what_they_need() -> None:
    found = services()

    assert {"postgres", "valkey", "migrate", "otel-collector", "entry"} < set(found)
    assert [found[f"api-{n}"]["command"][0] for n in (1, 2)] == ["serve", "serve"]
    assert found["worker"]["deploy"]["replicas"] == 2


def test_every_command_is_one_with_flags_that_it_takes() -> None:
    commands = [
        [*each.get("entrypoint", ["milepost"])[1:], *each.get("command", [])]
        for each in our_services().values()
    ]

    assert [wrong for command in commands if (wrong := complaint_about(command))] == []


def test_an_api_drives_no_run_itself() -> None:
    [slots] = {
        value
        for name, each in services().items()
        if name.startswith("api-")
        for flag, value in pairwise(each["command"])
        if flag == "--slots"
    }

    assert slots == "0"


@pytest.mark.parametrize("name", sorted(our_services()))
def test_every_variable_is_a_setting_that_can_be(name: str) -> None:
    service = our_services()[name]

    assert set(service["environment"]) <= known_variables()
    assert not settings_of(service).migrate


def test_every_variable_that_is_asked_for_is_in_the_example() -> None:
    asked = {name for text in strings(services()) for name in _REFERENCE.findall(text)}

    assert asked == set(example_environment())


@pytest.mark.parametrize("name", sorted(our_services()))
def test_every_setting_of_the_file_that_is_filled_in_arrives(name: str) -> None:
    service = our_services()[name]

    assert service["env_file"] == [{"path": ".env", "required": False}]
    # What the composition itself decides is under `environment`, which goes before the file.
    decided = {
        "MILEPOST_DATABASE_URL",
        "MILEPOST_REDIS_URL",
        "MILEPOST_MIGRATE",
        "MILEPOST_DRAIN_S",
    }
    assert decided <= set(service["environment"])


def test_no_secret_is_written_down() -> None:
    example = example_environment()

    secrets = [name for name in example if re.search("PASSWORD|KEY", name)]

    assert secrets
    assert [name for name in secrets if example[name]] == []


def test_parts_find_each_other_where_they_listen() -> None:
    named = {match.groups() for text in strings(our_services()) for match in _NAMED.finditer(text)}
    said = {(host, port) for host, port in named if host in services()}

    assert said == set(LISTENING.items())


def test_the_collector_listens_where_spans_are_sent() -> None:
    config = yaml.safe_load((DEPLOY / "otel-collector.yaml").read_text())
    pipeline = config["service"]["pipelines"]["traces"]

    endpoint = config["receivers"]["otlp"]["protocols"]["http"]["endpoint"]

    assert endpoint.rpartition(":")[2] == LISTENING["otel-collector"]
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) <= set(config[kind])


def test_the_entry_asks_both_apis_whether_they_are_ready_and_tells_them_who_leaves() -> None:
    text = (DEPLOY / "Caddyfile").read_text()
    entry = services()["entry"]

    upstreams = re.search(r"reverse_proxy (.*) \{", text)

    assert upstreams
    assert upstreams[1].split() == [f"api-1:{PORT}", f"api-2:{PORT}"]
    assert entry["ports"] == ["127.0.0.1:8080:8080"]
    assert re.search(r"^:8080 \{", text, re.MULTILINE)
    lines = {line.strip() for line in text.splitlines()}
    assert "health_uri /readyz" in lines
    # Caddy flushes what has no length anyway, and with this it keeps a client's leaving to itself.
    assert "flush_interval -1" not in lines


def test_what_waits_for_another_waits_for_one_that_there_is() -> None:
    every = services()
    pairs = [
        (needed, how["condition"])
        for each in every.values()
        for needed, how in each.get("depends_on", {}).items()
    ]

    assert pairs
    for needed, condition in pairs:
        if condition == "service_healthy" and needed not in our_services():
            assert "test" in every[needed]["healthcheck"]
        if condition == "service_completed_successfully":
            assert every[needed]["restart"] == "no"


@pytest.mark.parametrize("name", sorted(our_services()))
def test_nothing_of_ours_may_write_or_become_more_than_it_needs(name: str) -> None:
    service = our_services()[name]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["volumes"] == ["artifacts:/data"]


def test_a_container_is_given_the_drain_and_ten_seconds_more() -> None:
    for service in our_services().values():
        seconds = int(service["stop_grace_period"].removesuffix("s"))
        assert seconds == settings_of(service).drain_s + 10
