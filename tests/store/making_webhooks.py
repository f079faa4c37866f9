"""What the tests of webhooks put into a store."""

from dataclasses import replace
from typing import Any

from sqlalchemy import null, select, update

from milepost.store import outbox, schema, webhook_deliveries, webhooks
from milepost.store.outbox import Outgoing
from milepost.store.records import Page
from milepost.store.store import Store
from milepost.store.webhook_deliveries import DeliveryRow
from milepost.store.webhooks import WebhookRow
from milepost.store.work import Statement, Work
from tests.store.making import NOW_MS, TENANT, an_id

WHOLE = Page(1_000, ascending=True)
_ALL = Statement(select(*schema.outbox.c).order_by(schema.outbox.c.id))

_FORGET = Statement(update(schema.outbox).values(webhooks=null()))


def a_webhook(**changes: Any) -> WebhookRow:
    """Return a webhook that wants everything."""
    row = WebhookRow(
        id=an_id("whk"),
        tenant=TENANT,
        url="http://127.0.0.2:9/hook",
        events='["*"]',
        description=None,
        enabled=1,
        disabled_reason=None,
        approval_links=1,
        approver=None,
        metadata="{}",
        secret="whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0",
        secret_before=None,
        secret_before_until_ms=None,
        version=1,
        created_ms=NOW_MS,
        updated_ms=NOW_MS,
    )
    return replace(row, **changes)


async def hooked(store: Store, **changes: Any) -> WebhookRow:
    """Keep a webhook."""
    return await store.write(webhooks.create(a_webhook(**changes)))


async def waiting(store: Store) -> list[Outgoing]:
    """Return what is in the outbox."""

    def all_of() -> Any:
        return [Outgoing(*row) for row in (yield _ALL())]

    found: list[Outgoing] = await store.read(all_of())
    return found


async def put(store: Store, kind: str = "approval.reminder", **changes: Any) -> None:
    """Have webhooks told of something that is in no log."""
    given = {"tenant": TENANT, "run_id": "run_1", "seq": None, "data": "{}", "now_ms": NOW_MS}
    named = {**given, **changes}
    await store.write(outbox.add(kind=kind, **named))


def as_the_version_before() -> Work[None]:
    """Let what is in the outbox not say which webhooks were there."""
    yield _FORGET()


async def deliveries(store: Store, row: WebhookRow) -> list[DeliveryRow]:
    """Return the webhook's deliveries, the oldest first."""
    return await store.read(webhook_deliveries.search(row.tenant, row.id, WHOLE))


async def one_due(store: Store, row: WebhookRow, now_ms: int = NOW_MS) -> DeliveryRow:
    """Have the webhook told of something, and return the delivery."""
    await put(store, now_ms=now_ms, data=f'{{"about":"{an_id("it")}"}}')
    await store.write(webhook_deliveries.fan_out(now_ms))
    return (await deliveries(store, row))[-1]
