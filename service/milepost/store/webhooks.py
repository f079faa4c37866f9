"""Webhooks: where a tenant wants to be told of what happens."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import orjson
from sqlalchemy import case, insert, null, select, update
from sqlalchemy import delete as delete_from

from milepost.core.errors import NotFoundError
from milepost.store import schema
from milepost.store.dialect import number, rows, rows_of, text
from milepost.store.listing import Query, paged, where_equal, where_labelled
from milepost.store.records import Page
from milepost.store.versions import moved
from milepost.store.work import Statement, Work

_W = schema.webhooks.c
_D = schema.webhook_deliveries.c


@dataclass(frozen=True, slots=True)
class WebhookRow:
    """A webhook; `events` is a JSON list of globs, and `metadata` encoded JSON too.

    `secret` may be sealed; the one before it signs too, until `secret_before_until_ms`.
    """

    id: str
    tenant: str
    url: str
    events: str
    description: str | None
    enabled: int
    disabled_reason: str | None
    approval_links: int
    approver: str | None
    metadata: str
    secret: str
    secret_before: str | None
    secret_before_until_ms: int | None
    version: int
    created_ms: int
    updated_ms: int

    @property
    def patterns(self) -> list[str]:
        """The globs of the events that it wants."""
        found: list[str] = orjson.loads(self.events)
        return found


@dataclass(frozen=True, slots=True)
class WebhookEdit:
    """What a webhook is to be from now on; JSON columns come encoded."""

    url: str
    events: str
    description: str | None
    enabled: int
    approval_links: int
    approver: str | None
    metadata: str


@dataclass(frozen=True, slots=True)
class WebhookFilter:
    """Which webhooks a search is after; None means any."""

    enabled: bool | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


_COLUMNS = tuple(_W)
_own = _W.tenant == text("tenant")
_one = (_W.id == text("webhook_id")) & _own
_edit = {
    "url": text("url"),
    "events": text("events"),
    "description": text("description"),
    "enabled": number("enabled"),
    "approval_links": number("approval_links"),
    "approver": text("approver"),
    "metadata": text("metadata"),
}
_CREATE = Statement(
    insert(schema.webhooks).values(
        id=text("webhook_id"),
        tenant=text("tenant"),
        secret=text("secret"),
        created_ms=number("now_ms"),
        updated_ms=number("now_ms"),
        **_edit,
    )
)
_FIND = Statement(select(*_COLUMNS).where(_one))
_ALL = Statement(select(*_COLUMNS).where(_own).order_by(_W.id))
_tenants = rows("tenants", "tenant")
_ENABLED = Statement(
    select(*_COLUMNS).where(_W.tenant.in_(select(_tenants.c.tenant)), _W.enabled == 1)
)
_expected = number("expected").is_(None) | (_W.version == number("expected"))
_CHANGE = Statement(
    update(schema.webhooks)
    .where(_one, _expected)
    .values(
        version=_W.version + 1,
        updated_ms=number("now_ms"),
        # Whoever changes something else has not looked into it.
        disabled_reason=case((number("enabled") == 0, _W.disabled_reason), else_=null()),
        **_edit,
    )
    .returning(*_COLUMNS)
)
_ROTATE = Statement(
    update(schema.webhooks)
    .where(_one, _expected)
    .values(
        secret=text("secret"),
        secret_before=_W.secret,
        secret_before_until_ms=number("until_ms"),
        version=_W.version + 1,
        updated_ms=number("now_ms"),
    )
    .returning(*_COLUMNS)
)
_DISABLE = Statement(
    update(schema.webhooks)
    .where(_one, _W.enabled == 1)
    .values(
        enabled=0,
        disabled_reason=text("reason"),
        version=_W.version + 1,
        updated_ms=number("now_ms"),
    )
)
_DELETE = Statement(delete_from(schema.webhooks).where(_one, _expected).returning(_W.id))
_DELETE_DELIVERIES = Statement(
    delete_from(schema.webhook_deliveries).where(
        _D.webhook_id == text("webhook_id"), _D.tenant == text("tenant")
    )
)


def create(row: WebhookRow) -> Work[WebhookRow]:
    """Keep a webhook."""
    yield _CREATE(
        webhook_id=row.id,
        tenant=row.tenant,
        url=row.url,
        events=row.events,
        description=row.description,
        enabled=row.enabled,
        approval_links=row.approval_links,
        approver=row.approver,
        metadata=row.metadata,
        secret=row.secret,
        now_ms=row.created_ms,
    )
    return row


def find(tenant: str, webhook_id: str) -> Work[WebhookRow]:
    """Return the webhook; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, webhook_id=webhook_id)
    if not found:
        raise NotFoundError(f"there is no webhook {webhook_id}", code="webhook_not_found")
    return WebhookRow(*found[0])


def all_of(tenant: str) -> Work[list[WebhookRow]]:
    """Return the tenant's webhooks, the oldest first."""
    return [WebhookRow(*row) for row in (yield _ALL(tenant=tenant))]


def enabled_of(tenants: Iterable[str]) -> Work[list[WebhookRow]]:
    """Return the enabled webhooks of several tenants."""
    found = yield _ENABLED(tenants=rows_of({"tenant": tenant} for tenant in tenants))
    return [WebhookRow(*row) for row in found]


def search(tenant: str, wanted: WebhookFilter, page: Page) -> Work[list[WebhookRow]]:
    """Return the tenant's webhooks that match, one more than the page holds if there are more."""
    query: Query = select(*_COLUMNS).where(_W.tenant == tenant)
    enabled = None if wanted.enabled is None else int(wanted.enabled)
    query = where_equal(query, {_W.enabled: enabled})
    query = where_labelled(query, _W.metadata, wanted.metadata)
    found = yield Statement(paged(query, _W.id, page))()
    return [WebhookRow(*row) for row in found]


def change(
    row: WebhookRow, edit: WebhookEdit, *, now_ms: int, expected_version: int
) -> Work[WebhookRow]:
    """Change the webhook.

    Raises `ConflictError` with the code precondition_failed if it has another version by now.
    """
    changed = yield _CHANGE(
        tenant=row.tenant,
        webhook_id=row.id,
        url=edit.url,
        events=edit.events,
        description=edit.description,
        enabled=edit.enabled,
        approval_links=edit.approval_links,
        approver=edit.approver,
        metadata=edit.metadata,
        now_ms=now_ms,
        expected=expected_version,
    )
    if not changed:
        raise moved("webhook", (yield from find(row.tenant, row.id)), expected_version)
    return WebhookRow(*changed[0])


def rotate(
    row: WebhookRow, secret: str, *, until_ms: int, now_ms: int, expected_version: int | None
) -> Work[WebhookRow]:
    """Sign with another secret from now on, and with the present one until `until_ms`.

    Raises `ConflictError` with the code precondition_failed if it has another version by now.
    """
    changed = yield _ROTATE(
        tenant=row.tenant,
        webhook_id=row.id,
        secret=secret,
        until_ms=until_ms,
        now_ms=now_ms,
        expected=expected_version,
    )
    if not changed:
        raise moved("webhook", (yield from find(row.tenant, row.id)), expected_version)
    return WebhookRow(*changed[0])


def disable(tenant: str, webhook_id: str, reason: str, now_ms: int) -> Work[None]:
    """Send nothing more to the webhook until somebody enables it again."""
    yield _DISABLE(tenant=tenant, webhook_id=webhook_id, reason=reason, now_ms=now_ms)


def delete(tenant: str, webhook_id: str, *, expected_version: int | None = None) -> Work[None]:
    """Forget the webhook with all that was to be sent to it."""
    named = {"tenant": tenant, "webhook_id": webhook_id}
    if not (yield _DELETE(**named, expected=expected_version)):
        raise moved("webhook", (yield from find(tenant, webhook_id)), expected_version)
    yield _DELETE_DELIVERIES(**named)
