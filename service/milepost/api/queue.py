"""`/v1/queue`: how much waits and runs, and how many slots this process has for it."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.paging import allow, json_response
from milepost.api.requests import caller
from milepost.runtime.journal import Ports
from milepost.store import queue


class Queue:
    """The queue, over a store and this process' slots."""

    def __init__(self, ports: Ports, slots: int, busy: Callable[[], int]) -> None:
        self._ports = ports
        self._slots = slots
        self._busy = busy

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [Route("/v1/queue", self.get, methods=["GET"])]

    async def get(self, request: Request) -> Response:
        """Show the caller's runs that are not over, by where they stand."""
        allow(request)
        principal = caller(request, "runs:read")
        load = await self._ports.store.read(queue.load_of(principal.tenant))
        return json_response(
            {
                "queued": {
                    "ready": load.get("queued", 0),
                    "scheduled": load.get("scheduled", 0),
                    "blocked": load.get("blocked", 0),
                },
                "running": load.get("running", 0),
                "waiting": load.get("waiting", 0),
                "slots": {"total": self._slots, "busy": self._busy()},
            }
        )
