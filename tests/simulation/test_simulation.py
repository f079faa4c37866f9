"""The real protocol, played by seeds: nothing that must not happen does, and mutants are seen."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.simulate import simulate

ROOT = Path(__file__).parents[2]
RANGES = 8
SEEDS_MIN = 250
SEEDS_MAX = 10_000
RANGE_S = 7.5
MUTANT_SEEDS_MAX = 5_000
HASHED = 20


@pytest.mark.timeout(900)
@pytest.mark.parametrize("place", range(RANGES))
def test_no_seed_breaks_the_protocol(
    place: int, record_property: Callable[[str, object], None]
) -> None:
    first, until_s = place * SEEDS_MAX, time.monotonic() + RANGE_S
    played = 0

    while played < SEEDS_MIN or (played < SEEDS_MAX and time.monotonic() < until_s):
        outcome = simulate(first + played)
        played += 1
        assert outcome.violation is None, outcome.told()

    record_property("simulations", played)
    sys.stdout.write(f"{played} simulations, from seed {first} on\n")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_guard_is_seen(
    mutant: Mutant, record_property: Callable[[str, object], None]
) -> None:
    with mutant.broken():
        seen_at = next(
            (seed for seed in _likely(mutant) if simulate(seed).violation is not None), None
        )

    record_property("first_seed", seen_at)
    assert seen_at is not None, f"no seed below {MUTANT_SEEDS_MAX} sees {mutant.name}"
    assert simulate(seen_at).violation is None, "it is the mutant that is seen"


def _likely(mutant: Mutant) -> "list[int]":
    """Return the seed that saw it when it was last looked for, and then all."""
    return [mutant.seen_at, *range(MUTANT_SEEDS_MAX)]


@pytest.mark.timeout(600)
def test_a_seed_is_the_same_in_every_process() -> None:
    hashes = {_hashes(salt) for salt in ("0", "1", "random")}

    assert len(hashes) == 1
    assert len(hashes.pop().splitlines()) == HASHED


def _hashes(salt: str) -> str:
    """Return the hashes of a few seeds, from a process of its own that orders its sets anew."""
    asked = [sys.executable, "-m", "tests.simulation", "--hashes", "--seeds", str(HASHED)]
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    played = subprocess.run(
        asked,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return played.stdout


def test_a_violation_is_told_with_its_seed_and_what_led_to_it() -> None:
    mutant = next(each for each in MUTANTS if each.name == "sweep_of_the_living")

    with mutant.broken():
        outcome = next(outcome for seed in _likely(mutant) if (outcome := simulate(seed)).violation)

    first, *lines = outcome.told().splitlines()
    assert first == f"seed {outcome.seed}: {outcome.violation}"
    assert "a host starts" in lines[0]
    assert any("VIOLATION" in line for line in lines)
