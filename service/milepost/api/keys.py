"""`/v1/keys`: who may call, for which tenant and with which rights."""

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.access import Access
from milepost.api.bodies import read_body
from milepost.api.paging import allow, json_response, listed, page
from milepost.api.replays import asked, once
from milepost.api.requests import caller
from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.runtime.credentials import KeySpec, issue, key_of, new_secret, revoke
from milepost.runtime.journal import Ports
from milepost.store import keys
from milepost.store.keys import KeyRow


class Keys:
    """API keys, over a store. All of it needs the scope admin.

    A service that was started without keys asks everybody for one soon after the first was made.
    """

    def __init__(self, ports: Ports, access: Access) -> None:
        self._ports = ports
        self._access = access

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/keys", self.create, methods=["POST"]),
            Route("/v1/keys", self.search, methods=["GET"]),
            Route("/v1/keys/{key_id}", self.get, methods=["GET"]),
            Route("/v1/keys/{key_id}", self.revoke, methods=["DELETE"]),
        ]

    async def create(self, request: Request) -> Response:
        """Make a key for the caller's tenant, and show it this one time.

        Only its hash is stored, so a repeated request is answered with `"key": null`: who lost the
        first answer revokes that key and makes another.
        """
        allow(request)
        principal = caller(request, "admin")
        spec, raw = await read_body(request, KeySpec)
        secret, now = new_secret(), self._ports.clock()
        key_id = self._ports.new_id("key")
        key = key_of(spec, secret, tenant=principal.tenant, key_id=key_id, now_ms=now)
        made = await self._ports.store.write(
            once(
                asked(request, raw, key_id, now),
                issue(key, actor=principal.id, act_id=self._ports.new_id("aud")),
                lambda earlier: keys.find(principal.tenant, earlier),
            )
        )
        shown = {**show_key(made.resource), "key": None if made.replayed else secret}
        headers = made.headers(
            **{"Location": f"/v1/keys/{made.resource.id}", "Cache-Control": "no-store"}
        )
        return json_response(shown, 201, headers)

    async def search(self, request: Request) -> Response:
        """List keys, the newest first, those that were revoked among them."""
        allow(request, "limit", "after", "order")
        principal = caller(request, "admin")
        stretch = page(request, of="key")
        found = await self._ports.store.read(keys.search(principal.tenant, stretch))
        return listed(found, stretch, show_key, lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show what is known of one key."""
        allow(request)
        principal = caller(request, "admin")
        row = await self._ports.store.read(
            keys.find(principal.tenant, request.path_params["key_id"])
        )
        return json_response(show_key(row))

    async def revoke(self, request: Request) -> Response:
        """End a key's validity for good: here at once, in other processes within ten seconds."""
        allow(request)
        principal = caller(request, "admin")
        row = await self._ports.store.write(
            revoke(
                principal.tenant,
                request.path_params["key_id"],
                actor=principal.id,
                act_id=self._ports.new_id("aud"),
                now_ms=self._ports.clock(),
            )
        )
        self._access.forget()
        return json_response(show_key(row))


def show_key(row: KeyRow) -> dict[str, Any]:
    """Return the key as clients read it, without the key."""
    return {
        "id": row.id,
        "name": row.name,
        "hint": row.hint,
        "scopes": orjson.loads(row.scopes),
        "subject": row.subject,
        "created_at": rfc3339(row.created_ms),
        "expires_at": rfc3339_or_none(row.expires_ms),
        "revoked_at": rfc3339_or_none(row.revoked_ms),
    }
