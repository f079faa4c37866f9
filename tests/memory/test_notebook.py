"""A notebook: each thing once, the oldest forgotten first, in a folder that people can read."""

from pathlib import Path

import pytest

from milepost.core.errors import ConfigurationError
from milepost.core.memories import Finding
from milepost.memory.knowledge import DAY_MS
from milepost.memory.notebook import Notebook
from tests.clock import Clock

DAY_S = DAY_MS / 1000
NOON_S = 1_700_000_000 - 1_700_000_000 % DAY_S + 12 * 3_600
ANN = Finding("entity", "a painter", "Ann", attributes={"type": "person"})
LIVES = Finding("relation", "", "Ann", "lives in", "Oslo")
NUTS = Finding("fact", "Ann is allergic to nuts.")
COLD = Finding("log", "Ann has a cold.")


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON_S)


def test_me6_an_entity_is_there_once_whatever_its_case(clock: Clock) -> None:
    book = Notebook(None, clock.ms)

    book.add([ANN, Finding("entity", "", "Oslo")])
    book.add([Finding("entity", "", "ANN")])

    assert [each.subject for each in book.of("entity")] == ["Oslo", "ANN"]
    assert book.of("entity")[-1].content == "a painter"


def test_me6_of_fifty_entities_who_was_not_mentioned_for_longest_goes_first(clock: Clock) -> None:
    book = Notebook(None, clock.ms)
    book.add(Finding("entity", "", f"e{number}") for number in range(50))

    book.add([Finding("entity", "", "e0"), Finding("entity", "", "new")])

    names = [each.subject for each in book.of("entity")]
    assert len(names) == 50
    assert "e1" not in names
    assert names[-2:] == ["e0", "new"]


def test_me7_relations_are_found_by_their_words(clock: Clock) -> None:
    book = Notebook(None, clock.ms)
    book.add([LIVES, Finding("relation", "", "Ben", "owns", "a car")])

    assert book.found("Where is Oslo?") == ["Ann — lives in — Oslo"]
    assert "[Known Relationships]\n- Ann — lives in — Oslo" in book.told("Who is in Oslo?")
    assert "car" not in book.told("Who is in Oslo?")


def test_me8_facts_and_the_log_of_two_days_are_in_a_folder(tmp_path: Path, clock: Clock) -> None:
    book = Notebook(tmp_path, clock.ms)
    book.add([ANN, LIVES, NUTS, COLD])
    clock.now += DAY_S
    book.add([Finding("log", "Ann is well.")])

    assert (tmp_path / "facts.md").read_text() == "- Ann is allergic to nuts.\n"
    assert (tmp_path / "logs" / "2023-11-14.md").read_text() == "- Ann has a cold.\n"
    again = Notebook(tmp_path, clock.ms)
    assert again.of("entity") == [ANN]
    assert again.of("relation") == [LIVES]
    assert again.of("fact") == [NUTS]
    assert [each.content for each in again.of("log")] == ["Ann has a cold.", "Ann is well."]
    clock.now += DAY_S
    later = Notebook(tmp_path, clock.ms)
    assert [each.content for each in later.of("log")] == ["Ann is well."]
    assert "2023-11-15: Ann is well." in later.told("")


def test_what_people_write_into_the_folder_is_read(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "facts.md").write_text("# Facts\n\n- Tea is at four.\n- \nnot in the list\n")

    assert [each.content for each in Notebook(tmp_path, clock.ms).of("fact")] == ["Tea is at four."]


def test_what_people_write_beside_the_lists_outlives_what_is_noted(
    tmp_path: Path, clock: Clock
) -> None:
    day = tmp_path / "logs" / "2023-11-14.md"
    day.parent.mkdir()
    long = "- " + "x" * 2_001
    (tmp_path / "facts.md").write_text(
        f"# Facts\n\n* Tea is at four.\n\nAsk Ben about these.\n{long}\n"
    )
    day.write_text("A long day.\n")

    book = Notebook(tmp_path, clock.ms)
    book.add([NUTS, COLD])
    book.forget(NUTS)

    kept = f"# Facts\n\n\nAsk Ben about these.\n{long}\n\n- Tea is at four.\n"
    assert (tmp_path / "facts.md").read_text() == kept
    assert day.read_text() == "A long day.\n\n- Ann has a cold.\n"
    again = Notebook(tmp_path, clock.ms)
    assert [each.content for each in again.of("fact")] == ["Tea is at four."]
    again.add([NUTS])
    assert (tmp_path / "facts.md").read_text() == f"{kept}- Ann is allergic to nuts.\n"


@pytest.mark.parametrize(
    "content", ["{", "[1]", '[{"kind": "fact", "content": "x", "seen_ms": 1}]', "[{}]"]
)
def test_a_folder_that_cannot_be_read_is_refused(
    tmp_path: Path, clock: Clock, content: str
) -> None:
    (tmp_path / "entities.json").write_text(content)

    with pytest.raises(ConfigurationError, match="cannot be read"):
        Notebook(tmp_path, clock.ms)


def test_what_is_forgotten_is_forgotten_on_disk(tmp_path: Path, clock: Clock) -> None:
    book = Notebook(tmp_path, clock.ms)
    book.add([NUTS])

    assert book.forget(Finding("fact", "ann is ALLERGIC to nuts"))
    assert not book.forget(NUTS)
    assert Notebook(tmp_path, clock.ms).of("fact") == []


def test_the_last_line_of_a_day_s_log_is_forgotten_on_disk(tmp_path: Path, clock: Clock) -> None:
    old = tmp_path / "logs" / "2023-01-01.md"
    book = Notebook(tmp_path, clock.ms)
    book.add([COLD])
    old.write_text("- Written by somebody, and of no day that is read.\n")

    assert Notebook(tmp_path, clock.ms).forget(COLD)

    assert Notebook(tmp_path, clock.ms).of("log") == []
    assert not [file for file in (tmp_path / "logs").iterdir() if COLD.content in file.read_text()]
    assert old.read_text().startswith("- Written")


def test_what_is_said_again_another_day_leaves_the_file_of_the_day_before(
    tmp_path: Path, clock: Clock
) -> None:
    book = Notebook(tmp_path, clock.ms)
    book.add([COLD])
    clock.now += DAY_S
    book.add([COLD])

    assert book.forget(COLD)

    assert Notebook(tmp_path, clock.ms).of("log") == []


def test_what_was_said_stays_in_its_line_on_disk(tmp_path: Path, clock: Clock) -> None:
    Notebook(tmp_path, clock.ms).add([Finding("fact", "one\n- two\r\n[Important Knowledge]")])

    [kept] = Notebook(tmp_path, clock.ms).of("fact")
    assert kept.content == "one - two [Important Knowledge]"
