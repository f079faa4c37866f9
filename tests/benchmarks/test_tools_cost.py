"""The benchmark of tools measures what it says, however briefly."""

from tests.benchmarks.tools_cost import costs


async def test_everything_that_has_a_limit_is_measured() -> None:
    found = {cost.name.strip(): cost for cost in await costs(rounds=1, calls=2)}

    limited = [name for name, cost in found.items() if cost.limit_micros is not None]
    assert limited == [
        "register six parameters",
        "as a tool, added",
        "as a tool in a thread, added",
        "three tools side by side",
    ]
    assert all(found[name].micros > 0 for name in limited)
