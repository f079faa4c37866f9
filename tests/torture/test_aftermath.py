"""What is asked after a storm finds what it looks for: each process that is not well is named."""

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.torture.aftermath import (
    FILES_MORE_MAX,
    OTHER_CONNECTIONS,
    THREADS_MORE_MAX,
    Condition,
    Held,
    crowded,
    held_by,
    left,
    unheard,
    unwell,
)
from tests.torture.ground import POOL_MAX

BORN = Held(20, 3)
WELL = Condition(
    "worker-1",
    200,
    {
        "milepost_slots": 100.0,
        "milepost_slots_busy": 0.0,
        "milepost_lease": 1.0,
        "milepost_redis_up": 1.0,
    },
    Held(30, 8),
)
URLS = ["http://api-1", "http://api-2"]
ALL_HEARD = {(1, ""), (1, URLS[0]), (1, URLS[1])}


def complaints(condition: Condition, *, redis: bool = True) -> list[str]:
    """Return what is said of a process of a hundred slots."""
    return list(unwell(condition, BORN, slots=100, redis=redis))


def test_a_process_that_is_well_passes() -> None:
    assert complaints(WELL) == []


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        (replace(WELL, ready=503), "worker-1 is not ready: 503"),
        (replace(WELL, ready=0, metrics={}), "worker-1 is not ready: 0"),
        (replace(WELL, held=Held(21 + FILES_MORE_MAX, 8)), "files, 20 at its birth"),
        (replace(WELL, held=Held(30, 4 + THREADS_MORE_MAX)), "threads, 3 at birth"),
    ],
)
def test_a_process_that_is_not_well_is_named(condition: Condition, named: str) -> None:
    [said] = complaints(condition)

    assert named in said


@pytest.mark.parametrize(
    "metrics",
    [
        {"milepost_slots": 99.0},
        {"milepost_slots_busy": 1.0},
        {"milepost_lease": 0.0},
        {"milepost_redis_up": 0.0},
    ],
)
def test_a_figure_that_tells_of_trouble_is_named(metrics: Mapping[str, float]) -> None:
    [said] = complaints(replace(WELL, metrics={**WELL.metrics, **metrics}))

    assert next(iter(metrics)) in said


def test_a_figure_that_is_missing_is_named() -> None:
    assert len(complaints(replace(WELL, metrics={}))) == 4


def test_without_redis_nobody_asks_whether_it_answers() -> None:
    without = {name: value for name, value in WELL.metrics.items() if "redis" not in name}

    assert complaints(replace(WELL, metrics=without), redis=False) == []


def test_a_driver_whose_text_came_everywhere_passes() -> None:
    assert list(unheard(ALL_HEARD, {1: "worker-1"}, URLS)) == []


def test_a_process_that_drives_no_run_is_named() -> None:
    assert list(unheard(ALL_HEARD, {1: "worker-1", 2: "worker-2"}, URLS)) == [
        "worker-2 drives no run"
    ]


def test_an_address_where_no_text_comes_is_named() -> None:
    assert list(unheard(ALL_HEARD - {(1, URLS[1])}, {1: "worker-1"}, URLS)) == [
        "no text of worker-1 comes to http://api-2"
    ]


def test_connections_beyond_those_of_the_pools_are_named() -> None:
    most = 3 * (POOL_MAX + OTHER_CONNECTIONS)

    assert list(crowded(most, 3)) == []
    assert len(list(crowded(most + 1, 3))) == 1


def test_what_is_left_is_named() -> None:
    assert left({"reservations of budgets": 2, "letters": 0}) == [
        "when all was over there were 2 reservations of budgets"
    ]


def test_a_thread_and_a_file_more_are_seen() -> None:
    before, over = held_by(os.getpid()), threading.Event()
    waiting = threading.Thread(target=over.wait)
    waiting.start()
    with Path(os.devnull).open():
        held = held_by(os.getpid())
    over.set()
    waiting.join()

    assert held == Held(before.files + 1, before.threads + 1)


def test_a_process_that_is_gone_holds_nothing() -> None:
    assert held_by(2**22 + 1) == Held(0, 0)
