"""Requests to vendors over HTTP: a client with the one verb that their wires need.

Our own, because a call of a model is most of what a run does: next to a client that serves every
purpose it takes a third of the CPU (docs/decisions/0043). It follows no redirection, knows no
cookies, and goes through no proxy.
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from milepost.core.errors import ConfigurationError
from milepost.providers.http_connection import Answer, Connection
from milepost.providers.http_connections import Connections, Origin, Resolve

# What may stand in a path and a query as it is: RFC 3986, section 3.3, and escapes made already.
_SENDABLE = "/?:@!$&'()*+,;=%-._~[]"
_PORTS = {"http": 80, "https": 443}
# A connection that was gone says so after a way to the server and back, and a busy loop hears it.
GONE_S_MAX = 2.0


class HungUpError(ConnectionError):
    """A server went away that had the request, and may have worked on it and charge for that."""


class Http:
    """Sends requests with `headers` of its own, over connections that others may share."""

    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        connections: Connections | None = None,
        *,
        resolve: Resolve | None = None,
    ) -> None:
        self.headers: Mapping[str, str] = headers or {}
        self._connections = connections or Connections(resolve)

    async def __aenter__(self) -> Self:
        """Begin."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        self._connections.close()

    def to(self, base_url: str, headers: Mapping[str, str]) -> "Destination":
        """Return where requests below `base_url` go, with these headers beside its own.

        Raises `ConfigurationError` for a header that cannot be sent.
        """
        return Destination(base_url, _merged(self.headers, headers), self._connections)


class Destination:
    """A vendor's address, and what goes into the head of every request to it."""

    def __init__(self, base_url: str, headers: Mapping[str, str], connections: Connections) -> None:
        parts = urlsplit(base_url)
        host = (parts.hostname or "").encode("idna").decode()
        port = parts.port or _PORTS[parts.scheme]
        self._connections = connections
        self._origin = Origin(host, port, tls=parts.scheme == "https")
        path = base_url.partition("://")[2].removeprefix(parts.netloc)
        self._begin = f"POST {quote(path, _SENDABLE)}".encode()
        named = f"[{host}]" if ":" in host else host
        said = {"Host": named if port == _PORTS[parts.scheme] else f"{named}:{port}", **headers}
        if parts.username is not None and "Authorization" not in said:
            said["Authorization"] = _basic(parts.username, parts.password or "")
        lines = "".join(f"{name}: {text}\r\n" for name, text in said.items())
        self._head = f" HTTP/1.1\r\n{lines}Content-Length: ".encode()

    async def post(self, target: str, body: bytes) -> Answer:
        """Send `body` to `target`, a path and perhaps a query; return the answer, once it begins.

        A server may close a kept connection without announcing it (llama.cpp's does so after every
        stream), and the next request then finds out at once: it is sent again. Where that took
        longer, or on a fresh connection, the server may have worked, and charged for it, before it
        went away: whether to try that again is for others to say.

        Raises `OSError`, a `HungUpError` where the server had the request for some time, and
        `HttpParserError` for an answer that is no HTTP.
        """
        request = b"".join(
            (
                self._begin,
                quote(target, _SENDABLE).encode(),
                self._head,
                b"%d\r\n\r\n" % len(body),
                body,
            )
        )
        if kept := self._connections.kept(self._origin):
            try:
                return await _begun(kept, request)
            except HungUpError:
                raise
            except ConnectionError:
                pass  # It was gone already.
        return await _begun(await self._connections.fresh(self._origin), request)


async def _begun(connection: Connection, request: bytes) -> Answer:
    asked_s = connection.loop.time()
    answer = connection.ask(request)
    try:
        await answer.head()
    except ConnectionError as error:
        answer.close()
        if answer.heard or connection.loop.time() - asked_s > GONE_S_MAX:
            raise HungUpError(str(error)) from error
        raise
    except BaseException:
        answer.close()
        raise
    return answer


def _merged(own: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return both, by names in which capitals make no difference; the latter goes before."""
    by_name: dict[str, tuple[str, str]] = {}
    for name, text in (*own.items(), *more.items()):
        if not name or any(letter in f"{name}{text}" for letter in "\r\n\0"):
            raise ConfigurationError(f"the header {name!r} cannot be sent: it holds a line end")
        by_name[name.lower()] = (name, text)
    return dict(by_name.values())


def _basic(user: str, password: str) -> str:
    credentials = f"{unquote(user)}:{unquote(password)}".encode()
    return f"Basic {b64encode(credentials).decode()}"
