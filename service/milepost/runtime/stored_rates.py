"""Counts of calls that all processes share."""

from collections.abc import Iterable, Mapping

from milepost.core.effects import CountCall
from milepost.core.policy import Counted
from milepost.runtime.rates import Whose, tally_of
from milepost.store import rates
from milepost.store.rates import Counting, Tally
from milepost.store.records import Claim
from milepost.store.store import Store


class StoredRates:
    """Counts in the database, exactly: two calls at once are never the same one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def count(self, claim: Claim, effect: CountCall) -> Mapping[str, int]:
        """Count the call, and return by key how many there were within the time, it included."""
        tallies = _tallies(claim, effect.wanted)
        return await self._store.count(
            Counting(claim.tenant, claim.run_id, effect.call.id, tallies)
        )

    async def foretell(
        self, tenant: str, whose: Whose, wanted: Iterable[Counted]
    ) -> Mapping[str, int]:
        """Return what would be counted if a call were made now; it is not."""
        return await self._store.read(rates.foretell(tenant, _tallies(whose, wanted)))


def _tallies(whose: Whose, wanted: Iterable[Counted]) -> list[Tally]:
    return [
        Tally(each.key, tally_of(whose, each), max(1, round(each.within_s * 1000)), each.most)
        for each in wanted
    ]
