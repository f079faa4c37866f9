"""A run that nobody may take before an operator has looked."""

from milepost.store.records import Change, Entry
from tests.api.asking import started
from tests.api.serving import serving, settings_for
from tests.store.conftest import store_at
from tests.store.making import NOW_MS, a_park, a_worker, claims

OPERATOR = '{"for": "operator", "pending": []}'
WAITING = Change("waiting", waiting_for=OPERATOR)


async def a_stuck_run(database_url: str) -> str:
    """Leave a run there as it is once it has crashed its workers; return its id."""
    async with (
        serving(settings_for(database_url, slots=0)) as idle,
        idle.client() as client,
        store_at(database_url) as store,
    ):
        run_id = await started(client, "What is 17 + 25?")
        (claim,) = await claims(store, await a_worker(store))
        waits = Entry("run.waiting", NOW_MS, OPERATOR)
        await store.append(a_park(claim, change=WAITING, entries=(waits,)))
    return run_id
