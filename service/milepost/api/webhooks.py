"""`/v1/webhooks`: where a tenant wants to be told of what happens, and what became of that."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from yarl import URL

from milepost.api.access import Principal
from milepost.api.acts import act_of
from milepost.api.bodies import Body, read_body, read_optional
from milepost.api.conditions import amend, compares_versions, etag, require_tag, version_meant
from milepost.api.paging import (
    allow,
    choice,
    flag,
    json_response,
    listed,
    metadata,
    page,
    words,
)
from milepost.api.replays import Made, asked, earlier_of, once
from milepost.api.requests import caller
from milepost.api.webhooks_shown import show_delivery, show_webhook
from milepost.core.errors import ConflictError, InvalidError
from milepost.core.webhooks import TEST_TYPE, TYPES, wants
from milepost.live.hub import OUTBOX_BELL
from milepost.runtime.agent_spec import Metadata
from milepost.runtime.credentials import Label
from milepost.runtime.journal import Ports
from milepost.runtime.secrets import Vault
from milepost.runtime.webhook_secrets import kept, new_secret
from milepost.store import alone, audit, webhook_deliveries, webhooks
from milepost.store.audit import AuditRow
from milepost.store.webhook_deliveries import STATUSES, DeliveryRow
from milepost.store.webhooks import WebhookEdit, WebhookFilter, WebhookRow
from milepost.store.work import Work
from milepost.tools.egress import EgressError, Guard

WEBHOOKS_MAX = 50
OVERLAP_S = 24 * 3_600
OVERLAP_S_MAX = 7 * 24 * 3_600

Url = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"^[^\x00-\x20\x7f]+$")]
EventGlob = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z_.*]+$")]
Description = Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")]


class WebhookCreate(Body):
    """What `POST /v1/webhooks` takes."""

    url: Url
    events: Annotated[list[EventGlob], Field(min_length=1, max_length=50)]
    description: Description | None = None
    enabled: bool = True
    approval_links: bool = True
    approver: Label | None = None
    metadata: Metadata = Field(default_factory=dict)


class WebhookChange(Body):
    """What `PATCH /v1/webhooks/{id}` takes: what is not named stays; lists are set as a whole."""

    url: Url = ""
    events: Annotated[list[EventGlob], Field(min_length=1, max_length=50)] = Field(
        default_factory=list
    )
    description: Description | None = None
    enabled: bool = True
    approval_links: bool = True
    approver: Label | None = None
    metadata: Metadata = Field(default_factory=dict)


class WebhookSecretRotate(Body):
    """What `POST /v1/webhooks/{id}/secret` takes, if anything."""

    overlap_s: Annotated[int, Field(ge=0, le=OVERLAP_S_MAX)] = OVERLAP_S


class WebhookSend(Body):
    """What has something sent: an empty object, or no body at all."""


class Webhooks:
    """Webhooks, over a store; `guard` says which URLs may be sent to."""

    def __init__(self, ports: Ports, vault: Vault, guard: Guard) -> None:
        self._ports = ports
        self._vault = vault
        self._guard = guard

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        one, delivery = "/v1/webhooks/{webhook_id}", "/deliveries/{delivery_id}"
        return [
            Route("/v1/webhooks", self.create, methods=["POST"]),
            Route("/v1/webhooks", self.search, methods=["GET"]),
            Route(one, self.get, methods=["GET"]),
            Route(one, self.change, methods=["PATCH"]),
            Route(one, self.delete, methods=["DELETE"]),
            Route(f"{one}/secret", self.rotate, methods=["POST"]),
            Route(f"{one}/test", self.test, methods=["POST"]),
            Route(f"{one}/deliveries", self.deliveries, methods=["GET"]),
            Route(f"{one}{delivery}", self.delivery, methods=["GET"]),
            Route(f"{one}{delivery}/redeliver", self.redeliver, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """Make a webhook, and show its secret this one time.

        A repeated request is answered with `"secret": null`: who lost the first answer rotates it.
        """
        allow(request)
        principal = caller(request, "admin")
        body, raw = await read_body(request, WebhookCreate)
        secret, store = new_secret(), self._ports.store
        row = self._row(principal, body, secret)
        wish = asked(request, raw, row.id, row.created_ms)
        find = partial(webhooks.find, principal.tenant)
        if (made := await earlier_of(store, wish, find)) is None:
            _require_known(body.events)
            await self._require_reachable(body.url)
            act = self._act("webhook.created", principal, row)
            made = await store.write(once(wish, added(row, act), find))
        return self._secretly(made, secret, 201)

    async def search(self, request: Request) -> Response:
        """List webhooks, the newest first."""
        allow(request, "limit", "after", "order", "enabled", "metadata")
        principal = caller(request, "admin")
        wanted = WebhookFilter(flag(request, "enabled", default=None), metadata(request))
        stretch = page(request, of="whk")
        found = await self._ports.store.read(webhooks.search(principal.tenant, wanted, stretch))
        now = self._ports.clock()
        return listed(found, stretch, lambda row: show_webhook(row, now), lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show a webhook."""
        allow(request)
        row = await self._find(caller(request, "admin"), request)
        return self._shown(row)

    @compares_versions
    async def change(self, request: Request) -> Response:
        """Change a webhook, for what is sent from now on; to enable it is to try again."""
        allow(request)
        principal = caller(request, "admin")
        body, _ = await read_body(request, WebhookChange)
        _require_known(body.events)
        if "url" in body.model_fields_set:
            await self._require_reachable(body.url)
        row = await amend(
            request,
            lambda: self._find(principal, request),
            lambda row: self._change(principal, row, body),
        )
        self._ports.hub.ring(OUTBOX_BELL)
        return self._shown(row)

    @compares_versions
    async def delete(self, request: Request) -> Response:
        """Forget a webhook with all that was to be sent to it; its links are void."""
        allow(request)
        principal = caller(request, "admin")
        row = await self._find(principal, request)
        expected = version_meant(request, row)
        work = webhooks.delete(row.tenant, row.id, expected_version=expected)
        act = self._act("webhook.deleted", principal, row)
        await self._ports.store.write(audit.written_down(work, act))
        return Response(status_code=204)

    @compares_versions
    async def rotate(self, request: Request) -> Response:
        """Give the webhook another secret; for a while the former one signs, too."""
        allow(request)
        principal = caller(request, "admin")
        body, raw = await read_optional(request, WebhookSecretRotate)
        require_tag(request)
        row = await self._find(principal, request)
        secret, now, store = new_secret(), self._ports.clock(), self._ports.store
        wish = asked(request, raw, row.id, now)
        find = partial(webhooks.find, row.tenant)
        if made := await earlier_of(store, wish, find):
            return self._secretly(made, secret, 200)
        expected = version_meant(request, row)
        work = webhooks.rotate(
            row,
            kept(self._vault, row.tenant, row.id, secret),
            until_ms=now + body.overlap_s * 1000,
            now_ms=now,
            expected_version=expected,
        )
        act = self._act("webhook.secret_rotated", principal, row)
        made = await store.write(once(wish, audit.written_down(work, act), find))
        return self._secretly(made, secret, 200)

    async def test(self, request: Request) -> Response:
        """Send `webhook.test`."""
        allow(request)
        principal = caller(request, "admin")
        _, raw = await read_optional(request, WebhookSend)
        row, now = await self._find(principal, request), self._ports.clock()
        sent, store = self._test_of(row, now), self._ports.store
        wish = asked(request, raw, sent.id, now)
        find = partial(webhook_deliveries.find, row.tenant, row.id)
        if (made := await earlier_of(store, wish, find)) is None:
            _require_enabled(row)
            made = await store.write(once(wish, webhook_deliveries.add(sent), find))
        return self._accepted(made)

    async def deliveries(self, request: Request) -> Response:
        """List what was sent or is to be, the newest first."""
        allow(request, "limit", "after", "order", "status", "type")
        row = await self._find(caller(request, "admin"), request)
        stretch = page(request, of="whd")
        status, kind = choice(request, "status", STATUSES), words(request, "type")
        found = await self._ports.store.read(
            webhook_deliveries.search(row.tenant, row.id, stretch, status=status, kind=kind)
        )
        return listed(found, stretch, show_delivery, lambda each: each.id)

    async def delivery(self, request: Request) -> Response:
        """Show one delivery."""
        allow(request)
        row = await self._find(caller(request, "admin"), request)
        return json_response(show_delivery(await self._delivery(row, request)))

    async def redeliver(self, request: Request) -> Response:
        """Send it again, under the same id: who has taken it already can tell."""
        allow(request)
        principal = caller(request, "admin")
        _, raw = await read_optional(request, WebhookSend)
        row, now = await self._find(principal, request), self._ports.clock()
        sent, store = await self._delivery(row, request), self._ports.store
        wish = asked(request, raw, sent.id, now)
        find = partial(webhook_deliveries.find, row.tenant, row.id)
        if (made := await earlier_of(store, wish, find)) is None:
            _require_enabled(row)
            made = await store.write(once(wish, webhook_deliveries.redeliver(sent, now), find))
        return self._accepted(made)

    async def _find(self, principal: Principal, request: Request) -> WebhookRow:
        webhook_id = request.path_params["webhook_id"]
        return await self._ports.store.read(webhooks.find(principal.tenant, webhook_id))

    async def _delivery(self, row: WebhookRow, request: Request) -> DeliveryRow:
        named = request.path_params["delivery_id"]
        return await self._ports.store.read(webhook_deliveries.find(row.tenant, row.id, named))

    async def _require_reachable(self, text: str) -> None:
        """Raise `InvalidError` for a URL to which nothing may be sent, or that is none."""
        try:
            url = URL(text)
            self._guard.check(url)
            await self._guard.addresses(url.host or "", url.port or 0)
        except (EgressError, ValueError) as error:
            raise InvalidError(
                f"{error}; a webhook's URL is http or https, of a host that may be reached",
                code="url_not_allowed",
                pointer="/url",
            ) from error

    async def _change(
        self, principal: Principal, row: WebhookRow, body: WebhookChange
    ) -> WebhookRow:
        present = WebhookEdit(
            row.url,
            row.events,
            row.description,
            row.enabled,
            row.approval_links,
            row.approver,
            row.metadata,
        )
        edit = _edited(present, body)
        if edit == present:
            return row
        work = webhooks.change(row, edit, now_ms=self._ports.clock(), expected_version=row.version)
        act = self._act("webhook.changed", principal, replace(row, **asdict(edit)))
        return await self._ports.store.write(audit.written_down(work, act))

    def _row(self, principal: Principal, body: WebhookCreate, secret: str) -> WebhookRow:
        now, webhook_id = self._ports.clock(), self._ports.new_id("whk")
        return WebhookRow(
            id=webhook_id,
            tenant=principal.tenant,
            url=body.url,
            events=orjson.dumps(body.events).decode(),
            description=body.description,
            enabled=int(body.enabled),
            disabled_reason=None,
            approval_links=int(body.approval_links),
            approver=body.approver,
            metadata=orjson.dumps(body.metadata).decode(),
            secret=kept(self._vault, principal.tenant, webhook_id, secret),
            secret_before=None,
            secret_before_until_ms=None,
            version=1,
            created_ms=now,
            updated_ms=now,
        )

    def _test_of(self, row: WebhookRow, now_ms: int) -> DeliveryRow:
        said = {"webhook_id": row.id, "message": "This is a test."}
        return DeliveryRow(
            id=self._ports.new_id("whd"),
            tenant=row.tenant,
            webhook_id=row.id,
            type=TEST_TYPE,
            run_id=None,
            seq=None,
            data=orjson.dumps(said).decode(),
            status="pending",
            claims=0,
            settled=0,
            failures=0,
            attempts="[]",
            due_ms=now_ms,
            event_ms=now_ms,
            created_ms=now_ms,
            ended_ms=None,
        )

    def _shown(self, row: WebhookRow) -> Response:
        shown = show_webhook(row, self._ports.clock())
        return json_response(shown, headers={"ETag": etag(row)})

    def _secretly(self, made: Made[WebhookRow], secret: str, status: int) -> Response:
        """Return the webhook with its secret, but for one that was made by an earlier request."""
        row = made.resource
        shown = {
            **show_webhook(row, self._ports.clock()),
            "secret": None if made.replayed else secret,
        }
        headers = made.headers(
            **{
                "Location": f"/v1/webhooks/{row.id}",
                "ETag": etag(row),
                "Cache-Control": "no-store",
            }
        )
        return json_response(shown, status, headers)

    def _accepted(self, made: Made[DeliveryRow]) -> Response:
        row = made.resource
        self._ports.hub.ring(OUTBOX_BELL)
        where = f"/v1/webhooks/{row.webhook_id}/deliveries/{row.id}"
        return json_response(show_delivery(row), 202, made.headers(Location=where))

    def _act(self, action: str, principal: Principal, row: WebhookRow) -> AuditRow:
        details = {
            "url": row.url,
            "events": row.patterns,
            "enabled": bool(row.enabled),
            "approval_links": bool(row.approval_links),
            "approver": row.approver,
        }
        return act_of(self._ports, principal, action, row.id, details)


def _require_known(events: Sequence[str]) -> None:
    """Raise `InvalidError` for a glob that fits nothing: it would never be heard of."""
    for place, pattern in enumerate(events):
        if not any(wants([pattern], kind) for kind in TYPES):
            raise InvalidError(
                f"{pattern!r} fits no type of event; there are: {', '.join(sorted(TYPES))}",
                code="unknown_event",
                pointer=f"/events/{place}",
            )


def _edited(present: WebhookEdit, body: WebhookChange) -> WebhookEdit:
    named = body.model_fields_set
    return WebhookEdit(
        url=body.url if "url" in named else present.url,
        events=orjson.dumps(body.events).decode() if "events" in named else present.events,
        description=body.description if "description" in named else present.description,
        enabled=int(body.enabled) if "enabled" in named else present.enabled,
        approval_links=(
            int(body.approval_links) if "approval_links" in named else present.approval_links
        ),
        approver=body.approver if "approver" in named else present.approver,
        metadata=orjson.dumps(body.metadata).decode() if "metadata" in named else present.metadata,
    )


def _require_enabled(row: WebhookRow) -> None:
    if not row.enabled:
        raise ConflictError(
            f"webhook {row.id} is disabled, so nothing is sent to it; enable it first",
            code="webhook_disabled",
        )


def added(row: WebhookRow, act: AuditRow) -> Work[WebhookRow]:
    """Keep the webhook if there is room for one more: each event is matched with all of them."""
    yield from alone.counting(row.tenant, "webhooks")
    present = yield from webhooks.all_of(row.tenant)
    if len(present) >= WEBHOOKS_MAX:
        raise ConflictError(
            f"there are {len(present)} webhooks, and {WEBHOOKS_MAX} may be; delete one first",
            code="too_many_webhooks",
        )
    return (yield from audit.written_down(webhooks.create(row), act))
