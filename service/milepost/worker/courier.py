"""The courier: sends what is in the outbox to webhooks, in every process, without a leader.

It claims before it sends and writes down what came of it afterwards. Whoever dies in between leaves
a claim that lapses: then another sends the same under the same id, so that nothing is lost, and a
receiver that looks at ids takes nothing twice. Who lives waits for a database that is away.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from yarl import URL

from milepost.core.errors import ConfigurationError, MilepostError, NotFoundError
from milepost.core.webhooks import wait_ms
from milepost.live.hub import OUTBOX_BELL
from milepost.runtime.journal import Ports
from milepost.runtime.secrets import Vault
from milepost.runtime.webhook_messages import ErasedError, Messages
from milepost.runtime.webhook_secrets import signatures
from milepost.store import outbox, webhook_deliveries, webhooks
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.webhook_deliveries import Attempt, DeliveryRow
from milepost.store.webhooks import WebhookRow
from milepost.store.work import Work
from milepost.telemetry.logs import logger
from milepost.telemetry.metrics import DeliveryStatus
from milepost.tools.egress import Egress, EgressError, Incoming, Outgoing
from milepost.worker.turns import rest, take_turn

LEASE_MS = 60_000
TIMEOUT_S = 10.0
EXCERPT_BYTES = 1_024
IN_FLIGHT_MAX = 64
IN_FLIGHT_TENANT_MAX = 16
IN_FLIGHT_WEBHOOK_MAX = 4
PAGES_MAX = 10
PACE_S = 0.02
IDLE_PACE_S = 0.25
POLL_S = 1.0

GONE = 410
BROKEN = "the message could not be made; the log of the service says why"
USER_AGENT = "Milepost-Webhooks/1"


@dataclass(frozen=True, slots=True)
class Post:
    """What sending needs: who writes the bodies, the secrets' vault, and the way out."""

    messages: Messages
    vault: Vault
    egress: Egress


@dataclass(frozen=True, slots=True)
class _Claim:
    """What was to be claimed for these webhooks, and until when."""

    webhook_ids: tuple[str, ...]
    until_ms: int


class Courier:
    """Sends deliveries that are due. An endpoint that is slow holds up nobody but itself."""

    def __init__(
        self,
        ports: Ports,
        post: Post,
        *,
        poll_s: float = POLL_S,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._ports = ports
        self._post = post
        self._poll_s = poll_s
        self._chance = chance
        self._to_webhook: Counter[str] = Counter()
        self._of_tenant: Counter[str] = Counter()
        self._behind = ""
        self._unanswered: _Claim | None = None
        self._log = logger("webhooks")

    async def run(self) -> None:
        """Send until cancelled, at a pace at which what happens together is seen together."""
        with self._ports.hub.bell(OUTBOX_BELL) as rung:
            async with asyncio.TaskGroup() as sending:
                while True:
                    rung.clear()
                    taken = await take_turn(self.take(), [], self._log)
                    for row in taken:
                        task = sending.create_task(take_turn(self.send(row), None, self._log))
                        task.add_done_callback(lambda _: rung.set())
                    await asyncio.sleep(PACE_S if taken else IDLE_PACE_S)
                    await rest(rung, self._poll_s)

    async def take(self) -> list[DeliveryRow]:
        """Claim what is due, as much as there is room for. Each is to be handed to `send`."""
        taken = await self._find_unanswered() or await self._take()
        self._to_webhook.update(row.webhook_id for row in taken)
        self._of_tenant.update(row.tenant for row in taken)
        return taken

    async def _take(self) -> list[DeliveryRow]:
        store = self._ports.store
        for _ in range(PAGES_MAX):
            if not await store.read(outbox.waits()):
                break
            fanned = await store.write(webhook_deliveries.fan_out(self._ports.clock()))
            self._ports.metrics.count_deliveries("dead", fanned.dead)
            if fanned.taken < outbox.TAKE_MAX:
                break
        wanted = await self._wanted()
        if not wanted:
            return []
        now_ms = self._ports.clock()
        claim = webhook_deliveries.claim(wanted, lease_ms=LEASE_MS, now_ms=now_ms)
        try:
            return await store.write(claim)
        except DatabaseUnavailableError:
            self._unanswered = _Claim(tuple(wanted), now_ms + LEASE_MS)
            raise

    async def _find_unanswered(self) -> list[DeliveryRow]:
        """Return what the last claim took, if its answer was lost: nobody else sends it soon."""
        if (lost := self._unanswered) is None:
            return []
        claimed = webhook_deliveries.claimed(lost.webhook_ids, lost.until_ms)
        found = await self._ports.store.read(claimed)
        self._unanswered = None
        return found

    async def send(self, row: DeliveryRow) -> None:
        """Send what was claimed, and write down what came of it."""
        try:
            await self._send(row)
        except MilepostError:
            raise  # The store has refused it: the claim lapses, and then it is sent.
        except Exception:
            self._log.exception("a message could not be made", delivery=row.id)
            await self._again(row, Attempt(self._ports.clock(), 0, error=BROKEN))
        finally:
            self._to_webhook -= Counter({row.webhook_id: 1})
            self._of_tenant -= Counter({row.tenant: 1})

    async def _wanted(self) -> dict[str, int]:
        """Return how many deliveries of each webhook there is room for.

        Where something is due for more than are looked at together, the next look goes on there:
        many that take long would else hide those behind them.
        """
        busy = [each for each, count in self._to_webhook.items() if count >= IN_FLIGHT_WEBHOOK_MAX]
        look = webhook_deliveries.ready(busy, self._ports.clock(), self._behind)
        found = await self._ports.store.read(look)
        there_may_be_more = len(found) == webhook_deliveries.READY_MAX
        self._behind = found[-1].webhook_id if there_may_be_more else ""
        random.shuffle(found)  # Where room is scarce, none is always the first.
        room, of_tenant = IN_FLIGHT_MAX - self._of_tenant.total(), Counter(self._of_tenant)
        wanted: dict[str, int] = {}
        for each in found:
            most = min(
                room,
                IN_FLIGHT_WEBHOOK_MAX - self._to_webhook[each.webhook_id],
                IN_FLIGHT_TENANT_MAX - of_tenant[each.tenant],
            )
            if most > 0:
                wanted[each.webhook_id] = most
                of_tenant[each.tenant] += most
                room -= most
        return wanted

    async def _send(self, row: DeliveryRow) -> None:
        started_ms, began_s = self._ports.clock(), time.monotonic()

        def attempt(**came: str | int | None) -> Attempt:
            took_ms = round((time.monotonic() - began_s) * 1000)
            return Attempt(started_ms, took_ms, **came)  # type: ignore[arg-type]  # by its names

        try:
            hook, body = await self._ports.store.outlasting(self._written)(row)
            if self._ports.clock() >= row.due_ms:
                return  # The claim has lapsed, and somebody else may be sending it.
            answer = await self._post.egress.fetch(self._outgoing(row, hook, body, started_ms))
        except NotFoundError:
            return  # The webhook was deleted, and the delivery with it.
        except ErasedError as error:
            lost = attempt(error=str(error))
            await self._settle(partial(webhook_deliveries.failed, row, lost, None), "dead")
        except (EgressError, ConfigurationError) as error:
            await self._again(row, attempt(error=str(error)))
        else:
            await self._answered(row, answer, attempt)

    async def _written(self, row: DeliveryRow) -> tuple[WebhookRow, bytes]:
        """Return the webhook as it is now, and the message for it."""
        hook = await self._ports.store.read(webhooks.find(row.tenant, row.webhook_id))
        return hook, await self._post.messages.body(row, hook)

    def _outgoing(self, row: DeliveryRow, hook: WebhookRow, body: bytes, now_ms: int) -> Outgoing:
        headers = {
            "content-type": "application/json",
            "user-agent": USER_AGENT,
            "webhook-id": row.id,
            "webhook-timestamp": str(now_ms // 1000),
            "webhook-signature": signatures(self._post.vault, hook, row.id, now_ms, body),
        }
        return Outgoing(
            "POST",
            URL(hook.url),
            headers,
            body,
            timeout_s=TIMEOUT_S,
            bytes_max=EXCERPT_BYTES,
            cut=True,
        )

    async def _answered(
        self, row: DeliveryRow, answer: Incoming, attempt: Callable[..., Attempt]
    ) -> None:
        told = attempt(status=answer.status, excerpt=answer.text.replace("\x00", "\ufffd"))
        if answer.status // 100 == 2:
            await self._settle(partial(webhook_deliveries.delivered, row, told), "delivered")
        elif answer.status == GONE:
            await self._settle(partial(_gone, row, told), "dead")
            self._log.warning("a webhook is gone, and disabled", webhook=row.webhook_id)
        else:
            await self._again(row, told)

    async def _again(self, row: DeliveryRow, attempt: Attempt) -> None:
        wait = wait_ms(row.failures + 1, self._chance())
        if wait is None:
            self._log.warning("a delivery is dead", webhook=row.webhook_id, delivery=row.id)
        status: DeliveryStatus = "dead" if wait is None else "failed"
        await self._settle(partial(webhook_deliveries.failed, row, attempt, wait), status)

    async def _settle(self, work: Callable[[], Work[bool]], status: DeliveryStatus) -> None:
        """Write down what came of an attempt, and count it, unless another one has followed."""
        store = self._ports.store
        if await store.outlasting(lambda: store.write(work()))():
            self._ports.metrics.count_deliveries(status)


def _gone(row: DeliveryRow, attempt: Attempt) -> Work[bool]:
    """Let the delivery be dead, and disable the webhook that said so."""
    settled = yield from webhook_deliveries.failed(row, attempt, None)
    if settled:
        reason = "it answered 410 Gone"
        yield from webhooks.disable(row.tenant, row.webhook_id, reason, attempt.time_ms)
    return settled
