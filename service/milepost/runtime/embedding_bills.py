"""What embeddings took, written down for whoever had them made, and counted in budgets."""

import secrets
from collections.abc import Sequence
from typing import Protocol

from milepost.core.usage import Usage
from milepost.providers.pricing import Pricing
from milepost.runtime.clock import Clock
from milepost.store import usage, vectors
from milepost.store.store import Store
from milepost.store.usage import Account, Taken
from milepost.store.vectors import Bare
from milepost.store.work import Work

_NUMBER_BITS = 62


class Charging(Protocol):
    """Budgets, as far as something is counted in them that nobody has reserved."""

    async def charge(self, account: Account, usage: Usage) -> None:
        """Count it in all that bound it."""


class EmbeddingBills:
    """Writes down what embeddings took, over a store."""

    def __init__(self, store: Store, clock: Clock, pricing: Pricing, budgets: Charging) -> None:
        self._store = store
        self._clock = clock
        self._pricing = pricing
        self._budgets = budgets

    async def bill(self, model: str, account: Account, tokens: int) -> None:
        """Write down how many tokens a call took; `model` is `provider/model`."""
        taken = self._taken(model, [(account, tokens)])
        await self._store.write(usage.add(taken))
        await self._charge(taken)

    async def bill_kept(
        self, model: str, tokens: int, looked_at: Sequence[Bare], keeping: Work[None]
    ) -> None:
        """Keep the vectors of memories, and write down what they took: each user's part is theirs.

        Both or neither: a vector that is kept is made by nobody again, who could be billed. Each
        shows a call: that others had a part in it is nobody's concern. Of a memory that is gone by
        now the part is nobody's, since its user may have been erased with it.
        """
        await self._charge(await self._store.write(self._kept(model, tokens, looked_at, keeping)))

    def _kept(
        self, model: str, tokens: int, looked_at: Sequence[Bare], keeping: Work[None]
    ) -> Work[list[Taken]]:
        yield from keeping
        there = yield from vectors.hold(looked_at)
        parts = [
            (Account(of.tenant, of.user if of.number in there else None), len(of.told))
            for of in looked_at
        ]
        taken = self._taken(model, shared(tokens, parts))
        yield from usage.add(taken)
        return taken

    def _taken(self, model: str, shares: Sequence[tuple[Account, int]]) -> list[Taken]:
        return [
            Taken(account, model, self._usage(model, tokens), _number(), self._clock())
            for account, tokens in shares
        ]

    async def _charge(self, taken: Sequence[Taken]) -> None:
        for each in taken:
            await self._budgets.charge(each.account, each.usage)

    def _usage(self, model: str, tokens: int) -> Usage:
        provider, _, name = model.partition("/")
        used = Usage(input_tokens=tokens)
        return used.of_one_call(self._pricing.cost_nanos(provider, name, used))


def shared(tokens: int, parts: Sequence[tuple[Account, int]]) -> list[tuple[Account, int]]:
    """Return each account with its share of the tokens, by how much text each part has."""
    lengths: dict[Account, int] = {}
    for account, length in parts:
        lengths[account] = lengths.get(account, 0) + max(length, 1)
    whole, told, given = sum(lengths.values()), 0, 0
    shares = []
    for account, length in lengths.items():
        told += length
        upto = tokens * told // whole
        shares.append((account, upto - given))
        given = upto
    return shares


def _number() -> int:
    return 1 + secrets.randbits(_NUMBER_BITS)
