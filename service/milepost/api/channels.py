"""`/v1/channels`: one message of a chat, which answers what waits there or starts a run."""

import hashlib
import re
import time
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.bodies import Body, read_body
from milepost.api.channels_shown import came_of, show_pending
from milepost.api.free_names import taken_whole
from milepost.api.known_agents import AgentVersion, KnownAgents
from milepost.api.new_runs import AgentName, NewRuns, RunCreate
from milepost.api.paging import allow, json_response, words
from milepost.api.replays import asked
from milepost.api.requests import caller, principal_of
from milepost.api.waiting import await_run, wait_s
from milepost.core.confirmations import ConfirmationParser
from milepost.core.errors import InvalidError, MilepostError
from milepost.core.events import Channel
from milepost.core.pending import KIND_CHARS_MAX, Said
from milepost.live.hub import QUEUE_BELL, inbox_bell, session_bell
from milepost.providers.direct import written_call
from milepost.runtime.agent_spec import Metadata
from milepost.runtime.chat import Message, Place, Standing, Surroundings, Turn, standing, take_in
from milepost.runtime.direct import confirmed_id, direct_name
from milepost.runtime.journal import Ports
from milepost.runtime.toolsets import Toolsets
from milepost.store import conversations, idempotency, log, runs
from milepost.store.conversations import Delivery, ScopeKey
from milepost.store.engine import CollisionError
from milepost.store.idempotency import Asked
from milepost.store.pending import PendingRow
from milepost.store.runs import RunRow, StaleError
from milepost.store.work import Work
from milepost.telemetry.export import Exporter
from milepost.telemetry.logs import logger
from milepost.tools import Registry

WAIT_S = 30
TRIES = 5
LOOK_S = 0.25

_CHANNEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_INTENTS = frozenset({"confirm", "cancel", "ignore"})

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


class ChannelMessage(Body):
    """What `POST /v1/channels/{channel}/messages` takes: a text, or the intent of a button."""

    conversation: Name
    message_id: Name
    user: Name | None = None
    text: Annotated[str, Field(min_length=1)] | None = None
    intent: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    agent: AgentName | None = None
    expected_kind: Annotated[str, Field(min_length=1, max_length=KIND_CHARS_MAX)] | None = None
    expected_id: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    expected_digest: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    metadata: Metadata = Field(default_factory=dict)

    @model_validator(mode="after")
    def _says_one_thing(self) -> "ChannelMessage":
        if (self.text is None) == (self.intent is None):
            raise ValueError("a message has either a text or an intent; send one of them")
        return self

    @property
    def said(self) -> Said:
        """What its user says by it."""
        return Said(
            self.text, self.intent, self.expected_kind, self.expected_id, self.expected_digest
        )

    @property
    def hash(self) -> str:
        """What tells a second delivery from another message."""
        said = [self.text, self.intent, self.expected_kind, self.expected_id]
        if self.expected_digest is not None:  # Without one it is told as it always was.
            said.append(self.expected_digest)
        return hashlib.sha256(orjson.dumps(said)).hexdigest()


@dataclass(frozen=True, slots=True)
class _Drafts:
    """The runs that one message may lead to."""

    request: Request
    body: ChannelMessage
    user: str
    channel: Channel
    new_runs: NewRuns
    tools: Registry
    named: AgentVersion | MilepostError | None

    def answer(self) -> Place:
        """Return the run that answers the message."""
        if isinstance(self.named, MilepostError):
            raise self.named
        if self.named is None:
            raise InvalidError(
                "nobody has answered in this conversation yet; name the agent that is to",
                code="agent_required",
                pointer="/agent",
            )
        assert self.body.text is not None, "an intent starts nothing"
        return self._drafted(self.named, self.body.text)

    def execution(self, row: PendingRow, asker: RunRow) -> Place | None:
        """Return the run that executes what was confirmed, with exactly its arguments."""
        tool = self.tools.executor(row.kind)
        if tool is None:
            return None
        agent = AgentVersion(
            confirmed_id(tool.name, asker.agent_id), direct_name(tool.name), asker.agent_version
        )
        return self._drafted(agent, written_call(tool.name, orjson.loads(row.args)))

    def _drafted(self, agent: AgentVersion, said: str) -> Place:
        body = self.body
        wanted = RunCreate(agent=agent.name, input=said, user=self.user, metadata=body.metadata)
        return self.new_runs.drafted(self.request, wanted, agent, self.channel)


class Channels:
    """Chats, over a store, a hub, the tools that execute, and who reads a yes."""

    def __init__(
        self,
        ports: Ports,
        toolsets: Toolsets,
        parser: ConfirmationParser,
        exporter: Exporter | None = None,
    ) -> None:
        self._ports = ports
        self._toolsets = toolsets
        self._agents = KnownAgents(ports.store)
        self._new_runs = NewRuns(ports, exporter)
        self._around = Surroundings(parser, ports.clock, ports.new_id, ports.store.queue_max)
        self._log = logger("channels")

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/channels/{channel}/messages", self.say, methods=["POST"]),
            taken_whole(
                Route(
                    "/v1/channels/{channel}/conversations/{conversation:path}/pending",
                    self.pending,
                    methods=["GET"],
                )
            ),
        ]

    async def say(self, request: Request) -> Response:
        """Take a message in, and show what it did once that has come to an end, or to a question.

        A message that comes again is answered as it was before, and does nothing.
        """
        allow(request, "wait")
        principal = caller(request, "runs:write")
        waits_s = wait_s(request, WAIT_S)
        body, raw = await read_body(request, ChannelMessage)
        scope = _scope(request, body.user, body.conversation)
        self._warn_of(body)
        message = Message(body.message_id, scope, body.said, body.hash, principal.id)
        drafts = await self._drafts(request, body, scope)
        wish = asked(request, raw, body.message_id, self._ports.clock())
        turn = await self._taken(message, drafts, wish)
        headers = {"Idempotency-Replayed": "true"} if turn.replayed else {}
        shown = await self._answer(scope, turn.delivery, waits_s)
        return json_response(shown, headers=headers)

    async def pending(self, request: Request) -> Response:
        """Show what waits for the user in a conversation."""
        allow(request, "user")
        caller(request, "runs:read")
        scope = _scope(request, words(request, "user"), request.path_params["conversation"])
        row = await self._ports.store.read(conversations.find(scope))
        waits = await self._standing(scope, row.session_id) if row else Standing()
        now = self._ports.clock()
        return json_response({"pending": show_pending(waits.first, now)})

    def _warn_of(self, body: ChannelMessage) -> None:
        if body.intent is not None and body.intent.strip().lower() not in _INTENTS:
            self._log.warning("an intent is not known, and counts as ignore", intent=body.intent)

    async def _drafts(self, request: Request, body: ChannelMessage, scope: ScopeKey) -> _Drafts:
        tools = await self._toolsets.of(scope.tenant)
        channel = Channel(scope.channel, scope.conversation)
        named = await self._agent(scope, body.agent) if body.text is not None else None
        return _Drafts(request, body, scope.user, channel, self._new_runs, tools, named)

    async def _agent(
        self, scope: ScopeKey, named: str | None
    ) -> AgentVersion | MilepostError | None:
        """Return who answers; an error only counts if somebody has to."""
        if named is None:
            row = await self._ports.store.read(conversations.find(scope))
            named = row.agent if row else None
        if named is None:
            return None
        try:
            return await self._agents.look_up(scope.tenant, named)
        except MilepostError as error:
            return error

    async def _taken(self, message: Message, drafts: _Drafts, wish: Asked | None) -> Turn:
        """Take the message in, anew where something changed meanwhile; wake whom it concerns."""
        for last in (*[False] * (TRIES - 1), True):
            try:
                turn = await self._ports.store.write(
                    _keyed(wish, take_in(message, drafts, self._around))
                )
            except (StaleError, CollisionError):
                if last:
                    raise
                continue
            if turn.made:
                route = "POST /v1/channels/{channel}/messages"
                self._new_runs.export(drafts.request, turn.made, route, 200)
            for run_id in turn.told:
                self._ports.hub.ring(inbox_bell(run_id))
            if turn.queued:
                self._ports.hub.ring(QUEUE_BELL)
                self._ports.hub.ring(session_bell(turn.delivery.session_id or ""))
            return turn
        raise AssertionError("the last try either returns or raises")

    async def _answer(self, scope: ScopeKey, done: Delivery, waits_s: int) -> dict[str, Any]:
        """Return what the message did, built from that alone, and what waits now."""
        ports = self._ports
        if done.run_id and waits_s:
            await self._await(scope, done.run_id, done, waits_s)
        outcome, reply = await ports.store.read(came_of(scope.tenant, done))
        waits = await self._standing(scope, done.session_id) if done.session_id else Standing()
        if waits.first:
            await ports.store.write(conversations.show(scope, waits.first.id, waits.first.digest))
        return {
            "outcome": outcome,
            "run_id": done.run_id,
            "session_id": done.session_id,
            "pending": show_pending(waits.first, ports.clock()),
            "reply": reply,
        }

    async def _await(self, scope: ScopeKey, run_id: str, done: Delivery, waits_s: int) -> None:
        """Wait for the run's end, or until somebody is asked, be it by a run that it has started.

        Of those its own log says no more than that it waits for them, so they are looked at.
        """
        ports, after, within_s = self._ports, done.after_seq, float(waits_s)
        until = time.monotonic() + waits_s
        row = await ports.store.read(runs.find(scope.tenant, run_id))
        if row.status == "waiting" and await self._waits_for_others(scope, row, done):
            return
        while (left_s := until - time.monotonic()) > 0:
            await await_run(
                ports,
                scope.tenant,
                run_id,
                min(left_s, within_s),
                until_waiting=True,
                after=after,
            )
            row = await ports.store.read(runs.find(scope.tenant, run_id))
            if row.ended_ms is not None or not _is_under_way(row):
                return
            if (await self._standing(scope, row.session_id)).first:
                return
            after, within_s = await ports.store.read(log.head(scope.tenant, run_id)), LOOK_S

    async def _waits_for_others(self, scope: ScopeKey, row: RunRow, done: Delivery) -> bool:
        """Say whether a waiting run waits on: this one's yes has moved neither it nor its child."""
        if not _is_under_way(row):
            return True
        waits = await self._standing(scope, row.session_id)
        return done.pending_id in {each.id for each in waits.actions}

    async def _standing(self, scope: ScopeKey, session_id: str) -> Standing:
        return await self._ports.store.read(standing(scope, session_id))


def _is_under_way(row: RunRow) -> bool:
    """Say whether the run is under way, be it in a run that it has started."""
    cause = orjson.loads(row.waiting_for or "{}").get("for")
    return row.status != "waiting" or cause == "child_run"


def _scope(request: Request, user: str | None, conversation: str) -> ScopeKey:
    """Return whose conversation it is. Raises where the caller may not speak for the user."""
    channel = request.path_params["channel"]
    if not _CHANNEL.fullmatch(channel):
        raise InvalidError(
            f"{channel[:40]!r} is no name of a channel; write 1 to 32 lower-case letters, digits,"
            " _ or -, such as whatsapp",
            code="bad_channel",
        )
    for part, name in (("conversation", conversation), ("user", user)):
        if name is not None and not _NAME.fullmatch(name):
            raise InvalidError(f"{part} is 1 to 200 printable characters", pointer=f"/{part}")
    principal = principal_of(request)
    acting = principal.acting_as(user)
    if acting is None:
        raise InvalidError(
            "nobody knows whose message this is: the key stands for no user; name one",
            code="user_required",
            pointer="/user",
        )
    return ScopeKey(principal.tenant, channel, conversation, acting)


def _keyed(wish: Asked | None, effect: Work[Turn]) -> Work[Turn]:
    """Do `effect`, which knows repetitions by the message's id; a request's key is kept beside."""
    if wish is not None:
        yield from idempotency.remember(wish)
    return (yield from effect)
