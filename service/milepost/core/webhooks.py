"""What webhooks may ask for, how their messages are signed, and when one is sent again."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from fnmatch import fnmatchcase

from milepost.core.ids import format_id

TEST_TYPE = "webhook.test"
REMINDER_TYPE = "approval.reminder"
VOTED_TYPE = "approval.voted"

LOGGED_TYPES = frozenset(
    {
        "approval.decided",
        "approval.escalated",
        "approval.expired",
        "approval.requested",
        "approval.withdrawn",
        "artifact.created",
        "budget.exceeded",
        "budget.warning",
        "custom",
        "guardrail.triggered",
        "run.cancelled",
        "run.cancelling",
        "run.completed",
        "run.expired",
        "run.failed",
        "run.failing",
        "run.incomplete",
        "run.queued",
        "run.resumed",
        "run.retried",
        "run.retrying",
        "run.started",
        "run.waiting",
        "tool_call.interrupted",
    }
)
"""The events of logs that are worth a message to another service: not every step and word."""

TYPES = LOGGED_TYPES | {TEST_TYPE, REMINDER_TYPE, VOTED_TYPE}

RETRY_WAITS_MS = (5_000, 30_000, 120_000, 600_000, 3_600_000, 21_600_000, 86_400_000)
JITTER = 0.1

PREFIX = "whsec_"
SECRET_BYTES = 32


def wants(patterns: Sequence[str], kind: str) -> bool:
    """Say whether one of the globs, such as `approval.*`, fits this type of event."""
    return any(fnmatchcase(kind, pattern) for pattern in patterns)


def wait_ms(attempt: int, chance: float) -> int | None:
    """Return how long to wait after so many attempts that failed; None: that was the last.

    `chance`, from 0 to 1, spreads what failed together over a tenth of the wait.
    """
    if attempt > len(RETRY_WAITS_MS):
        return None
    wait = RETRY_WAITS_MS[attempt - 1]
    return wait + round(wait * JITTER * chance)


def delivery_id(outbox_id: str, webhook_id: str, time_ms: int) -> str:
    """Return the id under which a webhook is told of something: always the same one."""
    said = hashlib.sha256(f"{outbox_id}\n{webhook_id}\ndelivery".encode()).digest()
    return format_id("whd", time_ms, int.from_bytes(said[:10]))


def secret_of(key: bytes) -> str:
    """Return a secret as people copy it: https://www.standardwebhooks.com writes it like this."""
    return PREFIX + base64.b64encode(key).decode()


def key_of(secret: str) -> bytes | None:
    """Return the key that a secret stands for, or None if it is none."""
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        return None


def signature(key: bytes, message_id: str, time_s: int, body: bytes) -> str:
    """Return the signature of one key, as the header `webhook-signature` lists it."""
    signed = f"{message_id}.{time_s}.".encode() + body
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
