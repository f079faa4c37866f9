"""The way out: what may be reached, by which address, and within which bounds."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest
from aiohttp import web
from yarl import URL

from milepost.core.errors import ConfigurationError
from milepost.tools.egress import Egress, EgressError, Guard, Outgoing, Resolve, open_egress
from tests.stubs.web_server import saying, web_server

LOOPBACK = ("127.0.0.1",)


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    """A way out that may reach this machine by its address, but not by any name."""
    async with open_egress(LOOPBACK) as egress:
        yield egress


def answering(*addresses: str) -> Resolve:
    """Return a name server that says each address once, and the last one from then on."""
    left = [*addresses]

    async def resolve(_: str, __: int) -> Sequence[str]:
        return [left.pop(0) if len(left) > 1 else left[0]]

    return resolve


async def test_what_an_allowed_server_answers_comes_back_whole(egress: Egress) -> None:
    async with web_server(saying({"a": 1})) as server:
        answer = await egress.fetch(Outgoing("GET", URL(f"{server.url}/x?y=1")))

    assert (answer.status, answer.media_type, answer.text) == (200, "application/json", '{"a": 1}')
    assert server.asked[0].target == "/x?y=1"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "0.0.0.0", "224.0.0.1",
        "240.0.0.1", "255.255.255.255", "[::1]", "[::]", "[::ffff:127.0.0.1]",
        "[::ffff:169.254.169.254]", "[fe80::1]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]",
        "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "0x7f.1", "localhost",
    ],
)  # fmt: skip
async def test_addresses_that_are_not_public_are_refused(host: str) -> None:
    async with open_egress() as egress:
        with pytest.raises(EgressError, match="no public address"):
            await egress.fetch(Outgoing("GET", URL(f"http://{host}:1/")))


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::5db8:d70e"]
)
async def test_public_addresses_are_fine(address: str) -> None:
    guard = Guard((), answering(address))

    assert await guard.addresses("example.com", 443) == [address]


@pytest.mark.parametrize(
    "url", ["ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "//example.com"]
)
async def test_only_http_is_spoken(egress: Egress, url: str) -> None:
    with pytest.raises(EgressError, match="no http or https URL"):
        await egress.fetch(Outgoing("GET", URL(url)))


async def test_a_url_with_credentials_is_refused_without_repeating_them(egress: Egress) -> None:
    with pytest.raises(EgressError, match="may not carry credentials") as refused:
        await egress.fetch(Outgoing("GET", URL("http://ann:hunter2@127.0.0.1/")))

    assert "hunter2" not in str(refused.value)


async def test_a_name_that_leads_inside_is_refused_without_saying_where_it_is() -> None:
    async with open_egress(resolve=answering("10.1.2.3")) as egress:
        with pytest.raises(EgressError, match="no public address") as refused:
            await egress.fetch(Outgoing("GET", URL("http://intranet.example/")))

    assert "10.1.2.3" not in str(refused.value)


async def test_one_bad_address_among_good_ones_is_enough_to_refuse() -> None:
    async def resolve(_: str, __: int) -> Sequence[str]:
        return ["93.184.215.14", "127.0.0.1"]

    with pytest.raises(EgressError, match="no public address"):
        await Guard((), resolve).addresses("example.com", 80)


async def test_a_name_is_connected_to_where_it_was_judged_and_is_asked_for_by_its_name() -> None:
    async with (
        web_server(saying({})) as server,
        open_egress(["shop.example"], resolve=answering("127.0.0.1")) as egress,
    ):
        await egress.fetch(Outgoing("GET", URL(f"http://shop.example:{server.port}/")))

    assert server.asked[0].headers["host"] == f"shop.example:{server.port}"


async def test_a_name_that_moves_inside_between_two_looks_is_never_reached() -> None:
    """The first look is judged and connected to; each later connection is judged anew."""
    looks = answering("93.184.215.14", "127.0.0.1")
    guard = Guard((), looks)

    assert await guard.addresses("rebind.example", 80) == ["93.184.215.14"]

    async with web_server(saying({})) as server, open_egress(resolve=looks) as egress:
        with pytest.raises(EgressError, match="no public address"):
            await egress.fetch(Outgoing("GET", URL(f"http://rebind.example:{server.port}/")))
    assert server.asked == []


@pytest.mark.parametrize("allowed", ["127.0.0.0/8", "127.0.0.1", "::ffff:0:0/96"])
async def test_networks_and_addresses_can_be_allowed(allowed: str) -> None:
    guard = Guard([allowed])
    expected = allowed.startswith("127")

    found = await _judged(guard)

    assert found is expected


@pytest.mark.parametrize("allowed", ["inside.example", "Inside.Example.", "inside", "bücher_1"])
async def test_a_host_can_be_allowed_by_its_name(allowed: str) -> None:
    async def inside(_host: str, _port: int) -> list[str]:
        return ["10.0.0.1"]

    guard = Guard([allowed], inside)

    assert await guard.addresses(allowed, 80) == ["10.0.0.1"]
    with pytest.raises(EgressError, match="no public address"):
        await guard.addresses("other.example", 80)


async def _judged(guard: Guard) -> bool:
    try:
        await guard.addresses("127.0.0.1", 80)
    except EgressError:
        return False
    return True


@pytest.mark.parametrize(
    "allowed",
    ["http://x", "a b", "", "10.0.0.0/99", "ann@host", "*.internal.example", "***", "a..b"],
)
def test_what_is_neither_a_host_nor_a_network_cannot_be_allowed(allowed: str) -> None:
    with pytest.raises(ConfigurationError, match="neither a host nor a network"):
        Guard([allowed])


async def test_a_redirect_on_the_same_host_is_followed(egress: Egress) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/old":
            return web.Response(status=302, headers={"location": "/new?x=1"})
        return web.Response(text="here")

    async with web_server(answer) as server:
        found = await egress.fetch(Outgoing("GET", URL(f"{server.url}/old")))

    assert (found.text, found.url.path) == ("here", "/new")


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/", "http://localhost/", "//10.0.0.1/",
        "http://127.0.0.1:1/", "file:///etc/passwd", "https://127.0.0.1/",
    ],
)  # fmt: skip
async def test_a_redirect_elsewhere_is_not_followed(egress: Egress, location: str) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"location": location})

    async with web_server(answer) as server:
        with pytest.raises(EgressError, match="not followed"):
            await egress.fetch(Outgoing("GET", URL(f"{server.url}/")))

    assert len(server.asked) == 1


async def test_a_request_that_changes_something_is_not_sent_on(egress: Egress) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"location": "/elsewhere"})

    async with web_server(answer) as server:
        with pytest.raises(EgressError, match="a redirect, not followed"):
            await egress.fetch(Outgoing("POST", URL(f"{server.url}/"), body=b"{}"))

    assert [asked.method for asked in server.asked] == ["POST"]


async def test_redirects_without_end_are_given_up(egress: Egress) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=301, headers={"location": f"{request.path}x"})

    async with web_server(answer) as server:
        with pytest.raises(EgressError, match="redirects more than 5 times"):
            await egress.fetch(Outgoing("GET", URL(f"{server.url}/")))

    assert len(server.asked) == 6


async def test_a_huge_body_is_given_up_at_the_bound(egress: Egress) -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1_000):
            await response.write(b"x" * 65_536)
            sent += 65_536
        return response

    async with web_server(answer) as server:
        with pytest.raises(EgressError, match="more than 100000 bytes"):
            await egress.fetch(Outgoing("GET", URL(f"{server.url}/"), bytes_max=100_000))

    assert sent < 65_536_000


async def test_who_wants_the_beginning_gets_no_more_and_no_error(egress: Egress) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=500, body=b"x" * 10_000_000)

    async with web_server(answer) as server:
        asked = Outgoing("POST", URL(f"{server.url}/"), bytes_max=1_000, cut=True)
        answered = await egress.fetch(asked)

    assert (answered.status, answered.body) == (500, b"x" * 1_000)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_bomb_is_given_up_at_the_bound(egress: Egress, coding: str) -> None:
    zeros = bytes(50_000_000)
    bomb = gzip.compress(zeros) if coding == "gzip" else zlib.compress(zeros)

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"content-encoding": coding})

    async with web_server(answer) as server:
        with pytest.raises(EgressError, match="more than 1000000 bytes"):
            await egress.fetch(Outgoing("GET", URL(f"{server.url}/"), bytes_max=1_000_000))

    assert server.asked[0].headers["accept-encoding"] == "identity"
    assert len(bomb) < 100_000


async def test_a_server_that_compresses_unasked_is_read_all_the_same(egress: Egress) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=gzip.compress(b"hello"), headers={"content-encoding": "gzip"})

    async with web_server(answer) as server:
        found = await egress.fetch(Outgoing("GET", URL(f"{server.url}/")))

    assert found.text == "hello"


async def test_a_slow_drip_ends_with_the_time(egress: Egress) -> None:
    gone = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x")
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(web_server(answer))
        with pytest.raises(EgressError, match=r"within 0\.2 s") as late:
            await egress.fetch(Outgoing("GET", URL(f"{server.url}/"), timeout_s=0.2))
        await asyncio.wait_for(gone.wait(), 5)

    assert late.value.retryable


async def test_nobody_there_may_be_tried_again(egress: Egress) -> None:
    with pytest.raises(EgressError, match="cannot be reached") as refused:
        await egress.fetch(Outgoing("GET", URL("http://127.0.0.1:1/?token=hush")))

    assert refused.value.retryable
    assert "hush" not in str(refused.value)


async def test_no_proxy_of_the_surroundings_is_used(
    egress: Egress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    async with web_server(saying({})) as server:
        answer = await egress.fetch(Outgoing("GET", URL(f"{server.url}/")))

    assert answer.status == 200


@pytest.mark.parametrize(
    ("charset", "sent", "text"),
    [
        ("ISO-8859-15", "5 \u20ac".encode("iso-8859-15"), "5 \u20ac"),
        ("windows-1252", "5 \u20ac".encode("cp1252"), "5 \u20ac"),
        ("utf-16", "\u00fc".encode("utf-16"), "\u00fc"),
        ("Shift_JIS", "\u3042".encode("shift_jis"), "\u3042"),
        ("gb18030", "\u4e2d".encode("gb18030"), "\u4e2d"),
        ("utf-7", b"+AGE-", "+AGE-"),
        ("unicode_escape", rb"\x41", rb"\x41".decode()),
        ("punycode", b"a-\xff", "a-\ufffd"),
        ("idna", b"xn--tda", "xn--tda"),
        ("nonsense", b"a", "a"),
    ],
)
async def test_only_known_charsets_are_honoured(
    egress: Egress, charset: str, sent: bytes, text: str
) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=sent, headers={"content-type": f"text/plain; charset={charset}"})

    async with web_server(answer) as server:
        found = await egress.fetch(Outgoing("GET", URL(f"{server.url}/")))

    assert found.text == text


@pytest.mark.parametrize("kept", [4, 20, -1])
async def test_a_compressed_answer_that_breaks_off_is_an_error(egress: Egress, kept: int) -> None:
    whole = gzip.compress(b"hello" * 100)

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=whole[:kept], headers={"content-encoding": "gzip"})

    async with web_server(answer) as server:
        with pytest.raises(EgressError, match="broken gzip: it breaks off"):
            await egress.fetch(Outgoing("GET", URL(f"{server.url}/")))


async def test_no_body_at_all_is_no_broken_one(egress: Egress) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=204, headers={"content-encoding": "gzip"})

    async with web_server(answer) as server:
        found = await egress.fetch(Outgoing("GET", URL(f"{server.url}/")))

    assert found.body == b""
