"""The short form: some kills, pauses and outages on each database, and not one broken promise."""

import os
from pathlib import Path

import pytest

from tests.torture.campaign import Result, campaign
from tests.torture.plan import Plan

pytestmark = pytest.mark.timeout(400)


def assert_unbroken(result: Result, folder: Path) -> None:
    """Assert that the campaign took place, and that nothing was violated."""
    if result.untried:
        assert not os.environ.get("REQUIRE_SERVICES"), result.untried
        pytest.skip(result.untried)
    assert not result.violations, f"see {folder}:\n" + "\n".join(result.violations[:20])
    assert result.runs
    assert result.effects


async def test_many_processes_on_postgres_lose_nothing_and_do_nothing_twice(
    tmp_path: Path,
) -> None:
    plan = Plan(
        database="postgres",
        seed=1,
        minutes=3.0,
        runs=60,
        resumes=60,
        faults={
            "kill": 6, "pause": 2, "drain": 1, "database restart": 2,
            "redis kill": 1, "redis flush": 1, "partition": 2,
        },
        at_once=24,
        apis=2,
        workers=3,
        partition_s_max=3.0,
    )  # fmt: skip

    result = await campaign(plan, tmp_path)

    assert_unbroken(result, tmp_path)


async def test_one_process_on_sqlite_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    plan = Plan(
        database="sqlite",
        seed=1,
        minutes=3.0,
        runs=30,
        resumes=30,
        faults={"kill": 4, "pause": 1, "drain": 1},
        at_once=12,
        gap_s=1.5,
    )

    result = await campaign(plan, tmp_path)

    assert_unbroken(result, tmp_path)
