"""`/v1/runs/{id}/messages`: say something to a run that is under way."""

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.bodies import Body, read_body
from milepost.api.new_runs import Parts, UserMessageBody
from milepost.api.paging import allow, json_response
from milepost.api.replays import asked, once
from milepost.api.requests import caller
from milepost.live.hub import ring_for
from milepost.runtime.journal import Ports
from milepost.runtime.steering import letter_of
from milepost.store import runs, steers
from milepost.store.work import Work


class SteerBody(Body):
    """What `POST /v1/runs/{id}/messages` takes."""

    content: Annotated[str, Field(min_length=1)] | Parts


class Steers:
    """What people say to runs, over a store and a hub."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [Route("/v1/runs/{run_id}/messages", self.say, methods=["POST"])]

    async def say(self, request: Request) -> Response:
        """Put the message into the run's inbox: its model reads it at its next step."""
        allow(request)
        principal = caller(request, "runs:write")
        body, raw = await read_body(request, SteerBody)
        run_id, now = request.path_params["run_id"], self._ports.clock()
        message_id = self._ports.new_id("ste")
        said = UserMessageBody(role="user", content=body.content).said()
        letter = letter_of(said, message_id, principal.name, principal.id)
        effect = _brought(principal.tenant, run_id, message_id, letter, now)
        wish = asked(request, raw, message_id, now)
        made = await self._ports.store.write(once(wish, effect, _the_same))
        if not made.replayed:
            ring_for(self._ports.hub, run_id)
        shown = {"message_id": made.resource, "run_id": run_id}
        return json_response(shown, 202, made.headers())


def _brought(tenant: str, run_id: str, message_id: str, letter: str, now_ms: int) -> Work[str]:
    yield from runs.find(tenant, run_id)
    yield from steers.steer(tenant, run_id, [letter], now_ms)
    return message_id


def _the_same(message_id: str) -> Work[str]:
    yield from ()
    return message_id
