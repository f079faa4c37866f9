"""The way out of this machine for tools: what a model or a tenant names is not reached blindly.

A name is resolved once, every address is judged, and the connection goes to the judged addresses:
there is no second look-up that a hostile name server could answer differently (DNS rebinding).
"""

import asyncio
import ipaddress
import re
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from milepost.core.errors import ConfigurationError, ToolError

REDIRECTS_MAX = 5
RESPONSE_BYTES_MAX = 4 * 1024 * 1024
URL_CHARS_MAX = 8_000
CONNECTIONS_MAX = 200
TIMEOUT_S = 30.0
CUT_S = 2.0

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host name."""

# IANA's special-purpose registries, written out: what `is_global` means differs between versions.
_SPECIAL: tuple[Network, ...] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24",
        "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24",
        "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
        "168.63.129.16/32",  # Where Azure tells machines their credentials.
    )
)  # fmt: skip
_UNICAST = ipaddress.IPv6Network("2000::/3")  # All that is public of IPv6 is in here.
# Its addresses carry an IPv4 address, which is the one that is reached.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK_BYTES = 65_536
_HOST = re.compile(r"[\w-]+(\.[\w-]+)*\.?")
# Not all that Python decodes: some of that is slow, raises, or is no encoding of text.
_CHARSETS = frozenset(
    {
        "utf-8", "utf-16", "us-ascii", "iso-8859-1", "iso-8859-15", "shift_jis", "euc-jp",
        "euc-kr", "gb18030", "big5", *(f"windows-125{digit}" for digit in range(9)),
    }
)  # fmt: skip
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_INFLATED = {"gzip": 31, "x-gzip": 31, "deflate": 47}


class EgressError(ToolError):
    """What was asked for may not be reached, or did not answer as it must."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request. `bytes_max` bounds the answer's body, also after it was decompressed.

    With `cut` no more of the body is read than that, as it comes, nor for longer than `CUT_S`, and
    whatever becomes of it, the answer stands; else a longer or broken one is refused.
    With `once` it is not sent again where a connection breaks before there is an answer.
    """

    method: str
    url: URL
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    timeout_s: float = TIMEOUT_S
    bytes_max: int = RESPONSE_BYTES_MAX
    cut: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Incoming:
    """An answer, whole."""

    status: int
    reason: str
    media_type: str
    charset: str | None
    body: bytes
    url: URL

    @property
    def text(self) -> str:
        """The body as text; what is none of its encoding becomes U+FFFD."""
        named = (self.charset or "").strip().lower()
        return self.body.decode(named if named in _CHARSETS else "utf-8", errors="replace")


class Guard:
    """Judges URLs and addresses. `allowed` are hosts, addresses and networks that are fine."""

    def __init__(self, allowed: Iterable[str] = (), resolve: Resolve | None = None) -> None:
        """Raises `ConfigurationError` for what is neither a host, an address nor a network."""
        self._resolve = resolve or _system_resolve
        self._hosts: set[str] = set()
        self._networks: list[Network] = []
        for each in allowed:
            self._allow(each.strip().lower())

    def check(self, url: URL) -> None:
        """Raise `EgressError` for a URL that may not be asked for, whatever it resolves to."""
        if url.scheme not in {"http", "https"}:
            raise EgressError(f"{_shown(url)} is no http or https URL")
        if url.user is not None or url.password is not None:
            raise EgressError(f"a URL may not carry credentials: {_shown(url)}")
        if not url.host:
            raise EgressError(f"{_shown(url)} names no host")
        if len(str(url)) > URL_CHARS_MAX:
            raise EgressError(f"a URL has at most {URL_CHARS_MAX} characters")
        if (address := _address(url.host)) is not None:
            self._judge(url.host, address)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of `host`. Raises `EgressError` if one may not be reached."""
        literal = _address(host)
        try:
            found = [host] if literal else await self._resolve(host, port)
        except OSError as error:
            raise EgressError(f"{host} cannot be found: {error}", retryable=True) from error
        addresses = [address for each in found if (address := _address(each)) is not None]
        if not addresses:
            raise EgressError(f"{host} has no address", retryable=True)
        for address in addresses:
            self._judge(host, address)
        return [str(address) for address in addresses]

    def _allow(self, named: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(named, strict=False))
        except ValueError:
            if not _HOST.fullmatch(named):
                raise ConfigurationError(
                    f"{named!r} is neither a host nor a network that tools could be allowed to"
                    " reach; write it as in internal.example or 10.1.0.0/16, each host by itself"
                ) from None
            self._hosts.add(named.rstrip("."))

    def _judge(self, host: str, address: Address) -> None:
        if host.lower().rstrip(".") in self._hosts:
            return
        if any(address in network for network in self._networks) or _is_public(address):
            return
        # Not where it is: that would map the inside of a network for whoever asks.
        raise EgressError(
            f"{host} is at no public address; an operator may allow it with --egress-allow"
        )


class Egress:
    """Makes requests that a guard has judged, within bounds of time and size."""

    def __init__(self, http: aiohttp.ClientSession, guard: Guard) -> None:
        self._http = http
        self.guard = guard

    async def fetch(self, asked: Outgoing) -> Incoming:
        """Return the answer, having followed redirects that stay on their host.

        Raises `EgressError` for what may not be reached, does not answer in time, or is too large.
        """
        try:
            async with asyncio.timeout(asked.timeout_s) as limit:
                return await self._fetch(asked, limit)
        except TimeoutError:
            raise EgressError(
                f"{asked.url.host} did not answer within {asked.timeout_s:g} s; it may have acted",
                retryable=True,
            ) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _unreachable(asked.url, error) from error

    async def _fetch(self, asked: Outgoing, limit: asyncio.Timeout) -> Incoming:
        for _ in range(REDIRECTS_MAX + 1):
            self.guard.check(asked.url)
            answer, location = await self._once(asked, limit)
            if location is None:
                return answer
            asked = replace(asked, url=_next(asked, answer.status, location))
        raise EgressError(f"{_shown(asked.url)} redirects more than {REDIRECTS_MAX} times")

    async def _once(self, asked: Outgoing, limit: asyncio.Timeout) -> tuple[Incoming, str | None]:
        headers = {"accept-encoding": "identity", **asked.headers}
        async with self._http.request(
            asked.method,
            asked.url,
            headers=headers,
            data=asked.body,
            allow_redirects=False,
            middlewares=(_sent_once,) if asked.once else (),
        ) as answer:
            if asked.cut:
                limit.reschedule(None)  # It answered in time; its body has a time of its own.
            redirects = answer.status in _REDIRECTS
            location = answer.headers.get("location") if redirects else None
            body = b"" if location else await _read(answer, asked)
            incoming = Incoming(
                answer.status,
                answer.reason or "",
                answer.content_type.lower(),
                answer.charset,
                body,
                asked.url,
            )
            return incoming, location


@asynccontextmanager
async def open_egress(
    allowed: Iterable[str] = (), *, resolve: Resolve | None = None
) -> AsyncIterator[Egress]:
    """Yield a way out of its own connections: it takes no cookies, no proxy, and no short cuts."""
    guard = Guard(allowed, resolve)
    connector = aiohttp.TCPConnector(
        resolver=_GuardedResolver(guard), use_dns_cache=False, limit=CONNECTIONS_MAX
    )
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        timeout=aiohttp.ClientTimeout(total=None),  # Each request has its own.
    ) as http:
        yield Egress(http, guard)


class _GuardedResolver(AbstractResolver):
    """Hands the connector judged addresses and nothing else."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._guard.addresses(host, port)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in found
            if family == socket.AF_UNSPEC or (":" in address) == (family == socket.AF_INET6)
        ]

    async def close(self) -> None:
        """Hold nothing."""


async def _sent_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Pass a broken connection on as what aiohttp does not send a PUT or a DELETE again for."""
    try:
        return await handler(request)
    except _UNSENT:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error)) from error


async def _system_resolve(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [*dict.fromkeys(str(place[0]) for *_, place in found)]


def _address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address in _NAT64:
        address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    return not any(address in network for network in _SPECIAL)


def _next(asked: Outgoing, status: int, location: str) -> URL:
    """Return where a redirect leads, if it may be followed."""
    target = asked.url.join(URL(location))
    if asked.method not in _SAFE_METHODS:
        raise EgressError(f"{_shown(asked.url)} answered {status}: a redirect, not followed")
    moves = target.host != asked.url.host or target.port != asked.url.port
    is_upgrade = (asked.url.scheme, target.scheme) == ("http", "https") and (
        asked.url.is_default_port() and target.is_default_port() and target.host == asked.url.host
    )
    if (moves or target.scheme != asked.url.scheme) and not is_upgrade:
        raise EgressError(
            f"{_shown(asked.url)} redirects to {_shown(target)}, another host: not followed"
        )
    return target


async def _read(answer: aiohttp.ClientResponse, asked: Outgoing) -> bytes:
    """Return the body, decompressed; stop as soon as it is too large."""
    if asked.cut:
        return await _beginning(answer, asked.bytes_max)
    coding = answer.headers.get("content-encoding", "identity").strip().lower()
    inflater = zlib.decompressobj(_INFLATED[coding]) if coding in _INFLATED else None
    if inflater is None and coding not in {"identity", ""}:
        raise EgressError(f"{asked.url.host} answered in {coding!r}, which is not read here")
    parts, room = [], asked.bytes_max + 1
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        try:
            part = inflater.decompress(chunk, room) if inflater else chunk
        except zlib.error as error:
            raise EgressError(f"{asked.url.host} answered in broken {coding}: {error}") from error
        parts.append(part)
        room -= len(part)
        if room <= 0:
            raise EgressError(f"{asked.url.host} answered more than {asked.bytes_max} bytes")
    if inflater and parts and not inflater.eof:
        raise EgressError(f"{asked.url.host} answered in broken {coding}: it breaks off")
    return b"".join(parts)


async def _beginning(answer: aiohttp.ClientResponse, size: int) -> bytes:
    """Return the first bytes of the body, or as many as come before it stalls or breaks off."""
    body = b""
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(CUT_S):
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) >= size:
                    break
    return body[:size]


def _unreachable(url: URL, error: Exception) -> EgressError:
    """Return the error for the model: it names the host, not the whole URL with its query."""
    if isinstance(error, EgressError):
        return error
    cause = error.__cause__ or error.__context__
    if isinstance(cause, EgressError):
        return cause
    if isinstance(error, aiohttp.InvalidURL | ValueError) and not isinstance(error, OSError):
        return EgressError(f"{url.host} cannot be asked: {error}")
    words = str(error) or type(error).__name__
    if isinstance(error, _UNSENT):
        return EgressError(f"{url.host} cannot be reached: {words}", retryable=True)
    return EgressError(
        f"{url.host} gave no whole answer: {words}; it may have acted", retryable=True
    )


def _shown(url: URL) -> str:
    """Return a URL as an error may show it: without credentials, query or fragment."""
    return str(url.with_query(None).with_fragment(None).with_user(None))[:500] if url.host else "it"
