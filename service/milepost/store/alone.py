"""Counting what a tenant has while nobody else adds to it: of two, one takes the last place."""

from hashlib import blake2b
from typing import Literal

from milepost.store.dialect import advisory_lock, number
from milepost.store.hurry import hurrying
from milepost.store.work import Statement, Work

Kind = Literal["batches", "budgets", "schedules", "secrets", "tool_sources", "webhooks"]

_ALONE = Statement(advisory_lock(number("key"), shared=False))


def counting(tenant: str, kind: Kind) -> Work[None]:
    """Let nobody else count these of the tenant's until one's own is there to be counted.

    A transaction counts one kind, behind its idempotency key and before whatever else it locks:
    so nobody who has this lock is waited for by anybody whom he waits for. Who is frozen with it
    loses it after a second.
    """
    yield hurrying(), _ALONE(key=_key(tenant, kind))


def _key(tenant: str, kind: Kind) -> int:
    """Return a lock's number: if two ever have the same, they wait for each other, and no more."""
    digest = blake2b(f"{kind} {tenant}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
