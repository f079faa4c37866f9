"""One effect for each idempotency key: whoever repeats a request is shown what it made before."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.requests import Request

from milepost.api.requests import idempotent, principal_of
from milepost.store import idempotency
from milepost.store.idempotency import Asked
from milepost.store.store import Store
from milepost.store.work import Work

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Made(Generic[R]):
    """A resource, and whether it was there before this request."""

    resource: R
    replayed: bool = False

    def headers(self, **others: str) -> dict[str, str]:
        """Return `others`, and the word that this is a replay if it is one."""
        return {**others, "Idempotency-Replayed": "true"} if self.replayed else others


def asked(
    request: Request, raw: bytes, resource_id: str, now_ms: int, *, personal: bool = False
) -> Asked | None:
    """Return what `resource_id` is to answer, if the request has an idempotency key.

    What is `personal` counts for each person by itself, whatever key they sent along.
    """
    if (key := idempotent(request, raw, personal=personal)) is None:
        return None
    return Asked(principal_of(request).tenant, key, resource_id, now_ms)


def keeping(asked: Asked | None) -> Work[Made[None]]:
    """Keep the request's key, where an answer is all that comes of the request."""
    return once(asked, _nothing(), lambda _: _nothing())


async def earlier_of(
    store: Store, asked: Asked | None, find: Callable[[str], Work[R]]
) -> Made[R] | None:
    """Return what the same request made before: what it needed then may have changed since."""
    if asked is None or (earlier := await store.write(idempotency.recall(asked))) is None:
        return None
    return Made(await store.read(find(earlier)), replayed=True)


def _nothing() -> Work[None]:
    yield from ()


def once(asked: Asked | None, effect: Work[R], find: Callable[[str], Work[R]]) -> Work[Made[R]]:
    """Do `effect` with the request's key in the same transaction, or find what it made before."""
    if asked is not None and (earlier := (yield from idempotency.remember(asked))):
        return Made((yield from find(earlier)), replayed=True)
    return Made((yield from effect))
