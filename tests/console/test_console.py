"""The pages as they are served: to whom, under which policy, and which files there are."""

import re
from pathlib import Path

import httpx2
import pytest

import milepost.console
from milepost.console.files import POLICY
from tests.api.making import refusal
from tests.api.serving import KeyedService, serving, settings_for

STATIC = Path(milepost.console.__file__).parent / "static"
NAMES = sorted(path.name for path in STATIC.iterdir())
PAGES = ["/", "/docs", *(f"/console/{name}" for name in NAMES)]


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_is_served_under_a_policy_that_lets_nothing_else_in(
    client: httpx2.AsyncClient, path: str
) -> None:
    answer = await client.get(path)

    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"


async def test_each_file_is_served_as_what_it_is(client: httpx2.AsyncClient) -> None:
    kinds = {
        ".html": "text/html",
        ".css": "text/css",
        ".js": "text/javascript",
        ".svg": "image/svg",
    }
    for name in NAMES:
        answer = await client.get(f"/console/{name}")

        assert answer.status_code == 200
        assert answer.content == (STATIC / name).read_bytes()
        assert answer.headers["content-type"].startswith(kinds[Path(name).suffix])
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/docs", "/console/console.css"])
async def test_who_has_a_page_already_is_not_sent_it_again(
    client: httpx2.AsyncClient, path: str
) -> None:
    tag = (await client.get(path)).headers["etag"]
    assert tag.startswith('"')

    for held in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        answer = await client.get(path, headers={"if-none-match": held})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        assert answer.headers["content-security-policy"] == POLICY
    for other in ('"other"', "", tag.strip('"')):
        assert (await client.get(path, headers={"if-none-match": other})).status_code == 200


async def test_who_asks_for_headers_alone_is_told_those_of_the_page(
    client: httpx2.AsyncClient,
) -> None:
    for path in PAGES:
        whole, head = await client.get(path), await client.head(path)

        assert (head.status_code, head.content) == (200, b"")
        for name in ("etag", "content-type", "content-length", "content-security-policy"):
            assert head.headers[name] == whole.headers[name]


async def test_no_name_leads_to_another_file(client: httpx2.AsyncClient) -> None:
    for path in (
        "/console",
        "/console/",
        "/console//app.js",
        "/console/nothing.js",
        "/console/static/app.js",
        "/console/app.js%00",
        "/console/..%2fconsole.py",
        "/console/%2e%2e/console.py",
        "/console/%2fetc%2fpasswd",
        "/console/..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/docs/",
    ):
        assert refusal(await client.get(path)) == (404, "not_found"), path


async def test_a_page_takes_no_other_method(client: httpx2.AsyncClient) -> None:
    for path in ("/", "/docs", "/console/app.js"):
        answer = await client.post(path, json={})
        assert refusal(answer) == (405, "method_not_allowed")
        assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_without_keys_pages_are_shown_under_this_machines_names_and_to_its_own_pages_alone(
    client: httpx2.AsyncClient,
) -> None:
    for path in ("/", "/docs", "/console/app.js"):
        rebound = await client.get(path, headers={"host": "evil.example"})
        foreign = await client.get(path, headers={"origin": "https://evil.example"})
        embedded = await client.get(path, headers={"sec-fetch-site": "cross-site"})

        assert refusal(rebound) == (421, "misdirected_host")
        assert refusal(foreign) == (403, "foreign_origin")
        assert refusal(embedded) == (403, "foreign_origin")


async def test_where_keys_are_needed_pages_are_shown_without_one_and_nothing_else_is(
    keyed: KeyedService,
) -> None:
    stranger = await keyed.with_key(None)

    for path in PAGES:
        answer = await stranger.get(path, headers={"host": "agents.example.com"})
        assert answer.status_code == 200
    assert refusal(await stranger.get("/v1/runs")) == (401, "missing_key")


async def test_a_service_may_be_without_pages(sqlite_database_url: str) -> None:
    async with (
        serving(settings_for(sqlite_database_url, console=False)) as service,
        service.client() as client,
    ):
        for path in PAGES:
            assert refusal(await client.get(path)) == (404, "not_found")
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.get("/openapi.yaml")).status_code == 200


async def test_a_page_names_only_what_is_there(client: httpx2.AsyncClient) -> None:
    for path in ("/", "/docs"):
        page = (await client.get(path)).text
        for named in re.findall(r'(?:src|href)="([^"#]+)"', page):
            assert (await client.get(f"/{named}")).status_code == 200, named


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js")])
def test_a_module_imports_what_is_there_and_makes_no_markup_of_anything(name: str) -> None:
    text = (STATIC / name).read_text()

    imported = re.findall(r'from "\./([^"]+)"', text)
    forbidden = re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|DOMParser|srcdoc"
        r"|document\.write|\beval\b|new Function|localStorage|document\.cookie|https?://",
        text,
    )

    assert set(imported) <= set(NAMES)
    assert forbidden == []


@pytest.mark.parametrize("name", NAMES)
def test_what_the_pages_are_made_of_is_as_easy_to_read_as_the_rest(name: str) -> None:
    lines = (STATIC / name).read_text().splitlines()

    assert len(lines) <= 400
    assert [line for line in lines if len(line) > 100 and not line.startswith("<svg")] == []
