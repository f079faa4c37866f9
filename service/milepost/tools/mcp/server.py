"""A connection to an MCP server: made when it is needed, made again when the server died."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import mcp_types
from mcp import Client, MCPError
from pydantic import ValidationError

from milepost.core.errors import MilepostError, ToolError
from milepost.core.json import Json
from milepost.tools.egress import EgressError
from milepost.tools.mcp.answers import answer_of
from milepost.tools.mcp.listing import ListedTool
from milepost.tools.mcp.transport import Open
from milepost.tools.references import Revealed

CONNECT_S = 20.0
LISTING_S = 30.0
# To end a process the SDK takes some seconds, if it has to; to a server over HTTP it says goodbye,
# and would wait for the answer for as long as for any other.
CLOSE_S = 10.0
BACKOFF_S = 0.5
BACKOFF_S_MAX = 60.0
DOUBLINGS_MAX = 10  # By then it is the longest; many more make a number beyond what a float has.
LISTED_MAX = 10_000
UNREAD = "answered what cannot be read"

T = TypeVar("T")
Given = Callable[[], Awaitable[Revealed]]
"""Returns what a server is connected with: its environment, or its headers."""


class McpServer:
    """One server. Calls share its connection; a connection that cannot be made is backed off.

    What it is connected with is revealed anew for each call, since a secret may be another by now,
    and hidden in what it answers.
    """

    def __init__(
        self, name: str, open_way: Open, given: Given, *, listing_s: float = LISTING_S
    ) -> None:
        self._name = name
        self._open = open_way
        self._given = given
        self._listing_s = listing_s
        self._link: _Link | None = None
        self._links: set[_Link] = set()
        self._retired = False
        self._failures = 0
        self._not_before_s = 0.0

    async def listing(self) -> list[ListedTool]:
        """Return all that the server offers. Raises ToolError if it cannot be asked."""
        try:
            async with asyncio.timeout(self._listing_s):
                return await self._answer(_list_tools)
        except TimeoutError:
            raise ToolError(
                f"MCP server {self._name} did not tell its tools within {self._listing_s:g} s",
                retryable=True,
            ) from None

    async def call(self, tool: str, arguments: Mapping[str, Json]) -> Json:
        """Return what the server's tool answers. Raises ToolError, told to the model."""

        async def calling(client: Client, revealed: Revealed) -> Json:
            answer = await client.call_tool(tool, dict(arguments))
            return revealed.hide_in(answer_of(answer))

        return await self._answer(calling)

    def retire(self) -> None:
        """Have no connection outlast the calls that are under way on it.

        Whoever has one of the tools still can call it: over a connection for that call alone.
        """
        self._retired = True
        for link in self._links:
            link.retire()

    async def close(self) -> None:
        """End the connection, and with it the server's process if it has one."""
        await asyncio.gather(*(link.close() for link in self._links))

    async def _answer(self, ask: Callable[[Client, Revealed], Awaitable[T]]) -> T:
        """Return what is answered. Raises ToolError, in which no secret is repeated."""
        link = self._linked(await self._revealed())
        with link.in_use():
            if self._retired:
                link.retire()
            try:
                return await self._asked(link, ask)
            except ToolError as error:
                if (told := link.revealed.hidden(error)) is error:
                    raise
                raise told from None

    async def _asked(self, link: "_Link", ask: Callable[[Client, Revealed], Awaitable[T]]) -> T:
        client = await self._ready(link)
        try:
            return await link.racing(ask(client, link.revealed))
        except MCPError as error:
            if _is_unread(error):
                raise self._unread() from None
            if error.code == mcp_types.CONNECTION_CLOSED or "Session terminated" in str(error):
                link.retire()  # Over HTTP, other calls have answers of their own to come.
                raise self._lost(link, error) from error
            raise ToolError(f"MCP server {self._name} refused: {error}") from error
        except ValidationError:
            raise self._unread() from None
        except _LinkOverError:
            raise self._lost(link, link.error) from link.error

    async def _revealed(self) -> Revealed:
        try:
            return await self._given()
        except ToolError as error:
            raise self._unreachable(error) from error

    def _linked(self, revealed: Revealed) -> "_Link":
        if self._link is not None and self._link.is_open:
            if self._link.revealed == revealed:
                return self._link
            self._link.retire()
        wait_s = self._not_before_s - asyncio.get_running_loop().time()
        if wait_s > 0:
            raise ToolError(
                f"MCP server {self._name} is down; it is tried again in {wait_s:.0f} s",
                retryable=True,
            )
        self._link = link = _Link(self._open, revealed)
        self._links.add(link)
        link.task.add_done_callback(lambda _: self._links.discard(link))
        return link

    async def _ready(self, link: "_Link") -> Client:
        """Return the connection's client; whoever waits first counts a failure, and backs off."""
        try:
            client = await asyncio.shield(link.ready)
        except ToolError as error:
            self._back_off(link)
            raise self._unreachable(error) from error
        except MilepostError:
            self._back_off(link)
            raise
        except Exception as error:
            self._back_off(link)
            words = str(error) or type(error).__name__
            raise ToolError(
                f"MCP server {self._name} cannot be reached: {words}", retryable=True
            ) from error
        self._failures = 0
        return client

    def _unreachable(self, error: ToolError) -> ToolError:
        told = f"MCP server {self._name} cannot be reached: {error}"
        return type(error)(told, code=error.code, retryable=error.retryable)

    def _back_off(self, link: "_Link") -> None:
        if self._link is not link:
            return
        self._link = None
        wait_s = min(BACKOFF_S * 2 ** min(self._failures, DOUBLINGS_MAX), BACKOFF_S_MAX)
        self._failures += 1
        self._not_before_s = asyncio.get_running_loop().time() + wait_s

    def _unread(self) -> ToolError:
        return ToolError(f"MCP server {self._name} {UNREAD}")

    def _lost(self, link: "_Link", error: BaseException | None) -> ToolError:
        if isinstance(link.error, EgressError):
            return link.error
        error = link.error or error
        why = f": {error}" if error and str(error) else ""
        return ToolError(
            f"the connection to MCP server {self._name} was lost{why}; the call may have acted"
        )


class _LinkOverError(Exception):
    """The connection ended under a call."""


class _Link:
    """One connection, held by a task of its own: who enters the SDK's client must leave it."""

    def __init__(self, open_way: Open, revealed: Revealed) -> None:
        self.ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.revealed = revealed
        self.error: BaseException | None = None
        self._uses = 0
        self._retired = False
        self._over = asyncio.Event()
        self.task = asyncio.create_task(self._hold(open_way), name="an MCP server")

    @property
    def is_open(self) -> bool:
        """Say whether it is there for further calls."""
        return not (self._retired or self._over.is_set())

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Have it last until this call is over, even if it is retired meanwhile."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            self._end_if_left()

    def retire(self) -> None:
        """Have it take no further calls, and end with the last of those under way."""
        self._retired = True
        self._end_if_left()

    def end(self, why: ToolError | None = None) -> None:
        """Have the connection ended."""
        self.error = self.error or why
        self._over.set()

    async def close(self) -> None:
        """End the connection, and wait for that, but for no server that will not hear of it."""
        self.end()
        if not self.ready.done():
            self.task.cancel()
        await asyncio.wait({self.task}, timeout=CLOSE_S)
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=CLOSE_S)

    def _end_if_left(self) -> None:
        if self._retired and not self._uses:
            self.end()

    async def racing(self, use: Awaitable[T]) -> T:
        """Return what `use` returns. Raises `_LinkOverError` if the connection ends before."""
        using = asyncio.ensure_future(use)
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({using, over}, return_when=asyncio.FIRST_COMPLETED)
            if using.done() and not using.cancelled():
                return using.result()
            raise _LinkOverError
        finally:
            for task in (using, over):
                task.cancel()
            await asyncio.gather(using, over, return_exceptions=True)

    async def _hold(self, open_way: Open) -> None:
        try:
            async with asyncio.timeout(CONNECT_S) as limit:
                way = open_way(self.revealed.texts, self.end)
                async with Client(way, cache=None) as client:
                    limit.reschedule(None)
                    client.session.validate_tool_result = _take  # type: ignore[method-assign]
                    self.ready.set_result(client)
                    await self._over.wait()
        except TimeoutError:
            self.error = ToolError(f"it did not answer within {CONNECT_S:g} s", retryable=True)
        except Exception as error:
            first = _first(error)
            self.error = ToolError(f"it {UNREAD}", retryable=True) if _is_unread(first) else first
        finally:
            self.end()
            if not self.ready.done():
                self.ready.set_exception(self.error or ConnectionError("it was closed"))
                self.ready.exception()  # It may be that nobody waits any more.


async def _take(name: str, result: mcp_types.CallToolResult) -> None:
    """Take what came of a call as it is, where the SDK would judge it by its server's own schema.

    That has patterns which may take for ever to match, on the loop that everybody shares. The call
    has acted, too, and what is said of a misfit would repeat the answer with its secrets.
    """


def _is_unread(error: BaseException) -> bool:
    """Say whether an answer could not be read, in words that quote it.

    They are cut anywhere, and so is a secret that the answer repeats: nobody would find it there.
    """
    is_parsing = isinstance(error, MCPError) and error.code == mcp_types.PARSE_ERROR
    return is_parsing or isinstance(error, ValidationError)


def _first(error: BaseException) -> BaseException:
    """Return the one error that a group of groups is about."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _list_tools(client: Client, revealed: Revealed) -> list[ListedTool]:
    """Read the list to its end: of a part, nobody would know what the wanted tools are not in."""
    found: list[ListedTool] = []
    cursor: str | None = None
    while len(found) <= LISTED_MAX:
        page = await client.list_tools(cursor=cursor)
        found += [_listed(each, revealed) for each in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise ToolError(f"it lists more than {LISTED_MAX:,} tools, so none is offered")


def _listed(tool: mcp_types.Tool, revealed: Revealed) -> ListedTool:
    hints = tool.annotations or mcp_types.ToolAnnotations()
    if revealed.hide(tool.name) != tool.name:
        raise ToolError("the name of one of its tools repeats a secret, so none is offered")
    parameters = revealed.hide_in(tool.input_schema)
    assert isinstance(parameters, dict)
    return ListedTool(
        name=tool.name,
        description=revealed.hide(tool.description or tool.title or ""),
        parameters=parameters,
        read_only=hints.read_only_hint,
        idempotent=hints.idempotent_hint,
        destructive=hints.destructive_hint,
    )
