"""Making runs: what `POST /v1/runs` takes, and the run that it becomes with its agent as it is."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import orjson
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from milepost.api.access import Principal
from milepost.api.bodies import Body, UserName
from milepost.api.known_agents import AgentVersion, KnownAgents
from milepost.api.problems import status_of
from milepost.api.replays import asked
from milepost.api.requests import idempotent, principal_of, trace_of
from milepost.core.codec import encode
from milepost.core.errors import MilepostError, NotFoundError
from milepost.core.events import Channel, InputMessage, RunQueued
from milepost.core.frozen import dataclass
from milepost.core.messages import Image
from milepost.live.hub import ring_for, session_bell
from milepost.runtime import direct
from milepost.runtime.agent_spec import Metadata, ResponseFormatSpec, structured_of
from milepost.runtime.cancelling import clear_way
from milepost.runtime.images import ImageUrl
from milepost.runtime.journal import Ports
from milepost.runtime.steering import letter_of
from milepost.store import idempotency
from milepost.store.new_runs import AgentMovedError, Answer
from milepost.store.records import Entry, IfActive, NewRun
from milepost.telemetry.context import request_context
from milepost.telemetry.export import Exporter

DELAY_S_MAX = 366 * 86_400
INPUT_MESSAGES_MAX = 1_000
PARTS_MAX = 100


class TextPart(Body):
    """Text in a message."""

    type: Literal["text"]
    text: str


class ImagePart(Body):
    """A picture in a user's message: an https address, or its bytes as a `data:` URL."""

    type: Literal["image"]
    url: ImageUrl


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]
Parts = Annotated[list[Part], Field(min_length=1, max_length=PARTS_MAX)]


class UserMessageBody(Body):
    """What a user says, in pictures too."""

    role: Literal["user"]
    content: str | Parts

    def said(self) -> InputMessage:
        """Return the message as runs keep it; texts that pictures part are parted by a line."""
        if isinstance(self.content, str):
            return InputMessage(self.role, self.content)
        images = [Image(part.url) for part in self.content if isinstance(part, ImagePart)]
        return InputMessage(self.role, _joined(self.content), tuple(images))


class OtherMessageBody(Body):
    """What was said to a user, or is told to the model; in words alone."""

    role: Literal["assistant", "system"]
    content: str | Annotated[list[TextPart], Field(min_length=1, max_length=PARTS_MAX)]

    def said(self) -> InputMessage:
        """Return the message as runs keep it."""
        if isinstance(self.content, str):
            return InputMessage(self.role, self.content)
        return InputMessage(self.role, _joined(self.content))


def _joined(parts: Sequence[TextPart | ImagePart]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


InputMessageBody = Annotated[UserMessageBody | OtherMessageBody, Field(discriminator="role")]
AgentName = Annotated[str, Field(min_length=1, max_length=128)]
RunInput = (
    Annotated[str, Field(min_length=1)]
    | Annotated[list[InputMessageBody], Field(min_length=1, max_length=INPUT_MESSAGES_MAX)]
)


class RunOptions(Body):
    """What a run may be given besides its input, be it made alone or as one of many."""

    metadata: Metadata = Field(default_factory=dict)
    user: UserName | None = None
    deadline_s: Annotated[float, Field(gt=0, le=DELAY_S_MAX)] | None = None
    response_format: ResponseFormatSpec | None = None
    cache: bool = True
    priority: Annotated[int, Field(ge=-100, le=100)] = 0


class RunCreate(RunOptions):
    """What `POST /v1/runs` takes."""

    agent: AgentName
    input: RunInput
    session_id: Annotated[str, Field(max_length=64)] | None = None
    stream: bool = False
    on_disconnect: Literal["continue", "cancel"] = "continue"
    delay_s: Annotated[float, Field(gt=0, le=DELAY_S_MAX)] | None = None
    if_active: Literal["enqueue", "reject", "interrupt", "rollback", "steer"] = "enqueue"

    @model_validator(mode="after")
    def _fits_together(self) -> "RunCreate":
        if self.if_active != "enqueue" and self.delay_s is not None:
            raise ValueError("if_active is about now, and delay_s about later; choose one of them")
        given = () if isinstance(self.input, str) else self.input
        if self.if_active == "steer" and any(each.role != "user" for each in given):
            raise ValueError("only users' messages can be said to a run; choose another if_active")
        return self


@dataclass(frozen=True, slots=True)
class MadeRun:
    """What became of a request: `wanted` is None if it made no run, as it was `replayed`.

    It is also None where the input was said to a run that was there, by messages of the ids in
    `steered`: that run is not the request's own.
    """

    run_id: str
    status: str
    wanted: NewRun | None
    replayed: bool = False
    steered: tuple[str, ...] = ()


class NewRuns:
    """Makes runs. The common one is made without a look at its agent."""

    def __init__(self, ports: Ports, exporter: Exporter | None) -> None:
        self._ports = ports
        self._agents = KnownAgents(ports.store)
        self._exporter = exporter

    async def create(self, request: Request, body: RunCreate, raw: bytes, run_id: str) -> MadeRun:
        """Queue the run, with its agent's version as of now; or find what made it before.

        An agent that is remembered is confirmed by whoever writes the run: if it has moved, nothing
        was written, and the run is made anew with what is looked up then.
        """
        tenant = principal_of(request).tenant
        if known := self._agents.remembered(tenant, body.agent):
            try:
                return await self.queue(request, body, raw, run_id, known)
            except AgentMovedError:
                self._agents.forget(tenant, body.agent)
        try:
            found = await self._agents.look_up(tenant, body.agent)
        except NotFoundError:
            if earlier := await self.earlier(request, raw, run_id):
                return MadeRun(earlier.run_id, "", None, replayed=True, steered=earlier.steered)
            raise
        return await self.queue(request, body, raw, run_id, found)

    async def queue(
        self,
        request: Request,
        body: RunCreate,
        raw: bytes,
        run_id: str,
        agent: AgentVersion,
    ) -> MadeRun:
        """Queue the run of exactly this agent, or find what made it before."""
        run = self._new_run(request, body, raw, run_id, agent)
        if agent.id.startswith(direct.ID_PREFIX):
            run = replace(run, is_trial=True)
        return await self.put(run)

    def drafted(
        self, request: Request, body: RunCreate, agent: AgentVersion, channel: Channel
    ) -> Callable[[str, bool], NewRun]:
        """Return what makes a run of a chat, once it is known in which session, and if it is new.

        It is for whoever queues the run in a transaction of their own, whose key is another.
        """
        run = self._new_run(request, body, b"", self._ports.new_id("run"), agent)

        def placed(session_id: str, is_new: bool) -> NewRun:
            queued = replace(
                queued_event(body, agent, run.user),
                session_id=session_id,
                input=messages_of(body.input),
                channel=channel,
            )
            entry = Entry(queued.type, run.created_ms, encode(queued).decode())
            return replace(
                run, session_id=session_id, session_is_new=is_new, queued=entry, request=None
            )

        return placed

    async def earlier(self, request: Request, raw: bytes, run_id: str) -> Answer | None:
        """Return what the same request was answered with when what it needs was still there."""
        wish = asked(request, raw, run_id, self._ports.clock())
        kept = await self._ports.store.write(idempotency.recall(wish)) if wish else None
        return None if kept is None else Answer.of(kept)

    async def put(self, wanted: NewRun) -> MadeRun:
        """Queue this very run, or find what the same request made before."""
        created = await self._ports.store.create(wanted)
        if created.replayed:
            return MadeRun(
                created.run_id, created.status, None, replayed=True, steered=created.steered
            )
        if created.steered:
            ring_for(self._ports.hub, created.run_id)
            return MadeRun(created.run_id, created.status, None, steered=created.steered)
        if created.queued not in (None, wanted.queued):  # The store has found more to say of it.
            wanted = replace(wanted, queued=created.queued, user=created.user)
        if created.replaces:
            await clear_way(self._ports, wanted, created.replaces)
        if not wanted.session_is_new:
            self._ports.hub.ring(session_bell(wanted.session_id))
        return MadeRun(created.run_id, created.status, wanted)

    def _new_run(
        self, request: Request, body: RunCreate, raw: bytes, run_id: str, agent: AgentVersion
    ) -> NewRun:
        principal = principal_of(request)
        user = principal.acting_as(body.user)
        now = self._ports.clock()
        scheduled_ms = None if body.delay_s is None else now + round(body.delay_s * 1000)
        deadline_ms = None if body.deadline_s is None else now + round(body.deadline_s * 1000)
        session_id = body.session_id or self._ports.new_id("ses")
        queued = replace(
            queued_event(body, agent, user),
            session_id=session_id,
            input=messages_of(body.input),
            reason="ready" if scheduled_ms is None else "scheduled",
            deadline_ms=deadline_ms,
            if_active=None if body.if_active == "enqueue" else body.if_active,
        )
        return NewRun(
            id=run_id,
            tenant=principal.tenant,
            session_id=session_id,
            session_is_new=body.session_id is None,
            agent_id=agent.id,
            agent=agent.name,
            agent_version=agent.version,
            agent_is_remembered=agent.is_remembered,
            user=user,
            metadata=orjson.dumps(body.metadata).decode(),
            lane=body.priority,
            if_active=self._if_active(body, principal),
            created_ms=now,
            scheduled_ms=scheduled_ms,
            deadline_ms=deadline_ms,
            trace_parent=self.trace_parent(request, run_id),
            queued=Entry(queued.type, now, encode(queued).decode()),
            request=idempotent(request, raw),
            scopes=orjson.dumps(sorted(principal.scopes)).decode(),
            made_by=principal.id,
            follows_session=user is None and principal.may_act_for_others,
        )

    def _if_active(self, body: RunCreate, principal: Principal) -> IfActive | None:
        by, key = principal.name, principal.id
        if body.if_active == "enqueue":
            return None
        if body.if_active != "steer":
            return IfActive(body.if_active, by)
        messages = [(self._ports.new_id("ste"), each) for each in messages_of(body.input)]
        return IfActive(
            "steer",
            by,
            said=tuple(letter_of(each, message_id, by, key) for message_id, each in messages),
            message_ids=tuple(message_id for message_id, _ in messages),
        )

    def trace_parent(self, request: Request, run_id: str) -> str | None:
        """Return what the run's spans hang on: this request's own span, where one is exported."""
        caller = trace_of(request)
        if self._exporter is not None:
            return request_context(run_id, caller).header()
        return caller.header() if caller else None

    async def answered(
        self, request: Request, made: MadeRun, route: str, answering: Awaitable[Response]
    ) -> Response:
        """Return the answer to a request, with whose status the span of who made a run is exported.

        It is exported whatever happens: the run's own spans hang on it.
        """
        status_code = 500
        try:
            answer = await answering
            status_code = answer.status_code
        except MilepostError as error:
            status_code = status_of(error)
            raise
        finally:
            if made.wanted is not None:
                self.export(request, made.wanted, route, status_code)
        return answer

    def export(self, request: Request, wanted: NewRun, route: str, status_code: int) -> None:
        """Export this request's span: it ends with its answer, or where a stream begins."""
        if self._exporter is None:
            return
        caller = trace_of(request)
        place = request_context(wanted.id, caller)
        now = self._ports.clock()
        self._exporter.export_server(route, place, wanted.created_ms, now, status_code)


def queued_event(options: RunOptions, agent: AgentVersion, user: str | None) -> RunQueued:
    """Return a run's first event, but for what is its own: its session, its input and its time."""
    return RunQueued(
        agent=agent.name,
        agent_id=agent.id,
        agent_version=agent.version,
        session_id="",
        input=(),
        user=user,
        response_format=structured_of(options.response_format),
        cache=options.cache,
    )


def messages_of(given: RunInput) -> tuple[InputMessage, ...]:
    """Return a run's input as the log has it."""
    if isinstance(given, str):
        return (InputMessage("user", given),)
    return tuple(turn.said() for turn in given)
