"""A pooler for Postgres that lends a session for one transaction, and then takes another one.

It stands for PgBouncer at its strictest: it tracks no prepared statement, passes on no setting, and
lends the session that has rested longest, so that nothing left in one is found by who left it.
"""

import asyncio
import itertools
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from psycopg.conninfo import conninfo_to_dict

SESSIONS_MAX = 8
WAITING_MAX = 1_000

_PROTOCOL = 196_608
_CANCEL, _SSL, _GSS = 80_877_102, 80_877_103, 80_877_104
_KEPT = (b"user", b"database")
_TRUSTED = b"\0\0\0\0"
_IDLE = b"I"

Names = dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the protocol; that which opens a connection has no type."""

    type: bytes
    body: bytes

    @property
    def encoded(self) -> bytes:
        """As it goes over the wire."""
        return self.type + struct.pack("!i", len(self.body) + 4) + self.body

    @property
    def wants_a_verdict(self) -> bool:
        """Say whether the server says behind it how the transaction stands: query, sync, call."""
        return self.type in {b"Q", b"S", b"F"}


Inbox = asyncio.Queue[Message | None]
"""What a client sent, in order; None when it is gone."""


@dataclass(slots=True)
class Session:
    """A session of the server, idle or lent; `told` are the settings that it began with."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    told: list[Message]

    @classmethod
    async def open(cls, host: str, port: int, names: Names) -> "Session":
        """Log in; only servers that trust this machine are meant."""
        reader, writer = await asyncio.open_connection(host, port)
        said = b"".join(name + b"\0" + value + b"\0" for name, value in names.items()) + b"\0"
        writer.write(Message(b"", struct.pack("!i", _PROTOCOL) + said).encoded)
        told = []
        while (message := await _read(reader)).type != b"Z":
            assert message.type in {b"R", b"S", b"K", b"N"}, message
            assert message.type != b"R" or message.body == _TRUSTED, "the server wants a password"
            if message.type == b"S":
                told.append(message)
        return cls(reader, writer, told)


class Pooler:
    """Takes connections on `port`. At most `SESSIONS_MAX` are open to a database.

    `transactions` counts what was lent so far, `opened` the sessions; `lent` are lent just now.
    """

    def __init__(self, host: str, server_port: int) -> None:
        self.port = 0
        self.transactions = self.opened = self.lent = 0
        self._server = (host, server_port)
        self._idle: dict[bytes, deque[Session]] = {}
        self._free: dict[bytes, asyncio.Semaphore] = {}
        self._keys = itertools.count(2**30)  # No process of the server has such an id.
        self._clients: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client until it leaves."""
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            # Cancelled is who is served while the test ends.
            with suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
                if names := await _greeted(reader, writer):
                    await self._serve(names, reader, writer)
        finally:
            self._clients.discard(task)
            writer.close()

    async def close(self) -> None:
        """Let go of clients and sessions."""
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients)
        for sessions in self._idle.values():
            for session in sessions:
                session.writer.close()

    async def _serve(
        self, names: Names, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        session = await self._take(names)
        told = session.told
        self._give_back(names, session)
        key = Message(b"K", struct.pack("!ii", next(self._keys), 0))
        welcome = [Message(b"R", _TRUSTED), *told, key, Message(b"Z", _IDLE)]
        writer.write(b"".join(message.encoded for message in welcome))
        inbox: Inbox = asyncio.Queue(WAITING_MAX)
        listening = asyncio.create_task(_listen(reader, inbox))
        try:
            while first := await inbox.get():
                await self._transaction(names, first, inbox, writer)
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def _transaction(
        self, names: Names, first: Message, inbox: Inbox, writer: asyncio.StreamWriter
    ) -> None:
        """Lend a session from a client's first message until the server says that it is idle."""
        session = await self._take(names)
        self.transactions += 1
        self.lent += 1
        idle = False
        try:
            idle = await _lend(session, first, inbox, writer)
        finally:
            self.lent -= 1
            if idle:
                self._give_back(names, session)
            else:  # Its client left in the middle: the server rolls back.
                session.writer.close()
                self._free[names[b"database"]].release()

    async def _take(self, names: Names) -> Session:
        """Return the session that has rested longest; of one alone a client would see no change."""
        database = names[b"database"]
        idle = self._idle.setdefault(database, deque())
        await self._free.setdefault(database, asyncio.Semaphore(SESSIONS_MAX)).acquire()
        if len(idle) > 1:
            return idle.popleft()
        try:
            session = await Session.open(*self._server, names)
        except BaseException:
            self._free[database].release()
            raise
        self.opened += 1
        return session

    def _give_back(self, names: Names, session: Session) -> None:
        self._idle[names[b"database"]].append(session)
        self._free[names[b"database"]].release()


async def _read(reader: asyncio.StreamReader) -> Message:
    head = await reader.readexactly(5)
    return Message(head[:1], await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4))


async def _greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Names:
    """Return what a client says of itself; nothing where it only wants a statement cancelled."""
    while True:
        (size,) = struct.unpack("!i", await reader.readexactly(4))
        body = await reader.readexactly(size - 4)
        match struct.unpack("!i", body[:4]):
            case (code,) if code in {_SSL, _GSS}:
                writer.write(b"N")
            case (code,) if code == _CANCEL:
                return {}
            case _:
                words = body[4:].split(b"\0")
                names = dict(zip(words[::2], words[1::2], strict=False))
                assert b"options" not in names, f"no pooler passes this on: {names[b'options']!r}"
                return {name: names[name] for name in _KEPT}


async def _listen(reader: asyncio.StreamReader, inbox: Inbox) -> None:
    """Take in what a client says, until it says goodbye or hangs up."""
    with suppress(asyncio.IncompleteReadError, OSError):
        while (message := await _read(reader)).type != b"X":
            await inbox.put(message)
    await inbox.put(None)


async def _lend(
    session: Session, first: Message, inbox: Inbox, writer: asyncio.StreamWriter
) -> bool:
    """Pass messages both ways; return True once the server is idle, False if the client is gone."""
    expected = 0

    async def forward() -> None:
        nonlocal expected
        message: Message | None = first
        while message:
            expected += message.wants_a_verdict
            session.writer.write(message.encoded)
            message = await inbox.get()

    async def answer() -> None:
        nonlocal expected
        while True:
            message = await _read(session.reader)
            writer.write(message.encoded)
            if message.type == b"Z":
                expected -= 1
                if not expected and message.body == _IDLE:
                    return

    both = {asyncio.create_task(forward()), answering := asyncio.create_task(answer())}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            answering.result()
            return True
        return False
    finally:
        for task in both:
            task.cancel()
        await asyncio.wait(both)


@asynccontextmanager
async def pooled(url: str) -> AsyncIterator[tuple[str, Pooler]]:
    """Give the URL of a pooler before the server that `url` names."""
    parts = conninfo_to_dict(url)
    pooler = Pooler(str(parts["host"]), int(str(parts["port"])))
    server = await asyncio.start_server(pooler.accept, "127.0.0.1", 0)
    pooler.port = server.sockets[0].getsockname()[1]
    try:
        yield f"postgresql://{parts['user']}@127.0.0.1:{pooler.port}/{parts['dbname']}", pooler
    finally:
        server.close()
        await pooler.close()
