"""Addresses that a request can be sent to, and others."""

import pytest

from milepost.providers.address import host_of, is_address


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com/v1",
        "HTTP://127.0.0.1:8080",
        "http://[::1]:8080/v1",
        "http://my_model:8000",
        "https://b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example.",
    ],
)
def test_a_host_behind_http_is_an_address(url: str) -> None:
    assert is_address(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "localhost:8080",
        "ftp://host",
        "http://[::1",
        "http://host:0",
        "http://host:99999",
        "http://my host",
        "http://a..b",
        "http://" + "a" * 64,
        "http://a\0b",
    ],
)
def test_what_cannot_be_asked_is_none(url: str) -> None:
    assert not is_address(url)


def test_an_address_names_its_host_in_small_letters() -> None:
    assert host_of("https://API.OpenAI.com:443/v1") == "api.openai.com"
    assert host_of("http://[::1") == ""
