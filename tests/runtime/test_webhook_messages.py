"""What a webhook is told, and what is left out of it."""

from typing import Any

import orjson
import pytest

from milepost.runtime.links import Links
from milepost.runtime.secrets import Vault
from milepost.runtime.webhook_messages import BODY_BYTES_MAX, ErasedError, Messages
from milepost.store.approvals import ApprovalRow
from milepost.store.webhook_deliveries import DeliveryRow
from tests.runtime.workshop import TENANT, Workshop
from tests.store.making_webhooks import a_webhook

SECRET_KEY = "a secret key of the tests' own"


async def show(row: ApprovalRow) -> dict[str, Any]:
    return {"id": row.id, "arguments": orjson.loads(row.arguments), "status": row.status}


def messages(shop: Workshop, public_url: str | None = None) -> Messages:
    links = Links(Vault(SECRET_KEY), public_url)
    return Messages(shop.store, links, show, public_url)


def a_delivery(shop: Workshop, kind: str, **changes: Any) -> DeliveryRow:
    now = shop.clock()
    given: dict[str, Any] = {
        "id": "whd_1", "tenant": TENANT, "webhook_id": "whk_1", "type": kind, "run_id": None,
        "seq": None, "data": None, "status": "pending", "claims": 1, "settled": 0, "failures": 0,
        "attempts": "[]", "due_ms": now, "event_ms": now, "created_ms": now, "ended_ms": None,
    }  # fmt: skip
    return DeliveryRow(**{**given, **changes})


async def body(shop: Workshop, row: DeliveryRow) -> dict[str, Any]:
    raw = await messages(shop).body(row, a_webhook())
    assert len(raw) <= BODY_BYTES_MAX
    said: dict[str, Any] = orjson.loads(raw)
    return said


async def test_an_event_is_told_as_the_log_has_it_with_its_run(shop: Workshop) -> None:
    run = await shop.queue("Go.", metadata='{"order":"7"}')

    said = await body(shop, a_delivery(shop, "run.queued", run_id=run.id, seq=1))

    assert said["data"]["input"][0]["content"] == "Go."
    assert (said["data"]["run_id"], said["data"]["seq"]) == (run.id, 1)
    assert said["data"]["run"]["metadata"] == {"order": "7"}
    assert "approval" not in said["data"]


async def test_only_what_is_large_is_left_out(shop: Workshop) -> None:
    data = {"small": "kept", "large": "x" * BODY_BYTES_MAX, "also": "y" * 10_000}
    row = a_delivery(shop, "custom", data=orjson.dumps(data).decode())

    said = await body(shop, row)

    assert said["data"]["small"] == "kept"
    assert said["data"]["also"] == "y" * 10_000
    assert said["data"]["large"]["left_out_bytes"] == BODY_BYTES_MAX + 2


async def test_as_much_is_left_out_as_it_takes(shop: Workshop) -> None:
    data = {f"part_{n}": "x" * 30_000 for n in range(5)}
    row = a_delivery(shop, "custom", data=orjson.dumps(data).decode())

    said = await body(shop, row)

    left_out = [name for name, part in said["data"].items() if isinstance(part, dict)]
    assert len(left_out) == 3


async def test_what_was_erased_is_not_told(shop: Workshop) -> None:
    run = await shop.queue()
    rows = (
        a_delivery(shop, "run.queued", run_id="run_gone", seq=1),
        a_delivery(shop, "run.completed", run_id=run.id, seq=9),
        a_delivery(shop, "approval.reminder", run_id=run.id, data='{"approval_id":"apr_gone"}'),
    )

    for row in rows:
        with pytest.raises(ErasedError, match="was erased"):
            await messages(shop).body(row, a_webhook())
