"""Some of the outages, once each: clients go on, nothing is lost, and the page tells it."""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.benchmarks.outages import rows
from tests.benchmarks.outages.campaign import Outcome, on_postgres, on_sqlite
from tests.benchmarks.outages.outage import Measured, Often, Outage
from tests.benchmarks.outages.page import page

pytestmark = pytest.mark.timeout(400)

ONCE = Often(times=1, row_s=60.0)
BROKEN_ON_POSTGRES = ("an API is killed", "Redis is emptied")


def named(outages: tuple[Outage, ...], *names: str) -> list[Outage]:
    return [outage for outage in outages if outage.name in names]


def page_of(*outcomes: Outcome) -> str:
    return page(outcomes, "the command", "a machine", 1.0)


async def test_clients_go_on_after_outages_around_postgres_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    wanted = named(rows.ON_POSTGRES, *BROKEN_ON_POSTGRES)

    outcome = await on_postgres(wanted, ONCE, tmp_path)

    if outcome.untried:
        assert not os.environ.get("REQUIRE_SERVICES"), outcome.untried
        pytest.skip(outcome.untried)
    assert outcome.violations == []
    assert [measured.name for measured in outcome.rows] == list(BROKEN_ON_POSTGRES)
    assert all(pause > 0 for measured in outcome.rows for pause in measured.pauses)
    assert outcome.runs >= 8


async def test_clients_go_on_once_the_only_process_is_back_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    outcome = await on_sqlite(rows.ON_SQLITE[-1:], ONCE, tmp_path)

    [measured] = outcome.rows
    assert outcome.violations == []
    assert len(measured.pauses) == ONCE.times
    assert min(measured.pauses) > 0
    assert "nothing lost" in page_of(outcome)


def test_a_row_tells_the_median_the_worst_and_what_clients_met() -> None:
    measured = Measured(
        "a cable is cut",
        pauses=[1.0, 3.0, 2.0],
        besides={"until it was mended": [0.5]},
        told=Counter({"503 database_unavailable": 4, "nothing of it": 0}),
    )

    said = page_of(Outcome("One site", rows=[measured]))

    assert (
        "| a cable is cut | 3 | 2.00 s | 3.00 s | until it was mended: 0.50 s, worst 0.50 s |"
        " 503 database_unavailable 4 |" in said
    )


def test_broken_promises_are_told_first_and_what_was_not_tried_with_its_reason() -> None:
    said = page_of(
        Outcome("One site", violations=["run_1: stuck"]), Outcome("Another", untried="no server")
    )

    assert "**1 broken promises**" in said
    assert "- run_1: stuck" in said
    assert "Not measured: no server." in said
