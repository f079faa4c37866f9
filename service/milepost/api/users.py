"""`/v1/users` and `/v1/erasures`: all that there is of a user, to be taken along or erased."""

from collections.abc import AsyncIterator

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.accepting import LINES, headers_of_a_stream
from milepost.api.access import Access
from milepost.api.acts import act_of
from milepost.api.bodies import USER_CHARS_MAX
from milepost.api.erasures_shown import show_erasure
from milepost.api.export import Export
from milepost.api.free_names import taken_whole
from milepost.api.gradual import GradualResponse
from milepost.api.paging import allow, json_response, listed, page
from milepost.api.requests import caller
from milepost.core.errors import InvalidError
from milepost.providers.cache_key import owner_key
from milepost.runtime.journal import Ports
from milepost.store import erasures
from milepost.store.erasures import NewErasure


class Users:
    """Users, over a store. All of it needs the scope admin."""

    def __init__(self, ports: Ports, access: Access) -> None:
        self._ports = ports
        self._access = access

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            # Whoever runs a chat chooses its users' names, which may well have a slash.
            taken_whole(Route("/v1/users/{user:path}/export", self.export, methods=["GET"])),
            taken_whole(Route("/v1/users/{user:path}", self.erase, methods=["DELETE"])),
            Route("/v1/erasures", self.search, methods=["GET"]),
            Route("/v1/erasures/{erasure_id}", self.get, methods=["GET"]),
        ]

    async def export(self, request: Request) -> Response:
        """Stream all that there is of a user, a thing a line."""
        allow(request)
        principal = caller(request, "admin")
        user = _user(request)
        if request.method == "HEAD":
            return headers_of_a_stream(LINES)
        export = Export(self._ports.store, principal.tenant, user)
        return GradualResponse(_lines(export), media_type=LINES)

    async def erase(self, request: Request) -> Response:
        """Begin to erase all that there is of a user; nothing new of theirs is taken meanwhile."""
        allow(request)
        user = _user(request)
        # As it was sent: a user's own slash comes as %2F.
        if request.scope["raw_path"].endswith(b"/export") and user != "export":
            raise HTTPException(405)  # It is another resource, which cannot be erased.
        principal = caller(request, "admin")
        wanted = NewErasure(
            id=self._ports.new_id("era"),
            tenant=principal.tenant,
            owner=owner_key(principal.tenant, user),
            asked_by=principal.id,
            user=user,
            created_ms=self._ports.clock(),
        )
        act = act_of(self._ports, principal, "user.erasing", wanted.id, {})
        row = await self._ports.store.write(erasures.begin(wanted, act))
        self._access.forget()
        headers = {"Location": f"/v1/erasures/{row.id}"}
        return json_response(show_erasure(row), 202, headers)

    async def search(self, request: Request) -> Response:
        """List erasures, the newest first."""
        allow(request, "limit", "after", "order")
        principal = caller(request, "admin")
        stretch = page(request, of="era")
        found = await self._ports.store.read(erasures.search(principal.tenant, stretch))
        return listed(found, stretch, show_erasure, lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show how far an erasure has come."""
        allow(request)
        principal = caller(request, "admin")
        erasure_id = request.path_params["erasure_id"]
        row = await self._ports.store.read(erasures.find(principal.tenant, erasure_id))
        return json_response(show_erasure(row))


def _user(request: Request) -> str:
    user: str = request.path_params["user"]
    if not 0 < len(user) <= USER_CHARS_MAX:
        raise InvalidError(
            f"a user has a name of 1 to {USER_CHARS_MAX} characters", code="bad_user"
        )
    return user


async def _lines(export: Export) -> AsyncIterator[bytes]:
    async for kind, shown in export.things():
        yield orjson.dumps({"kind": kind, "data": shown}) + b"\n"
