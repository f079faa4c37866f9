"""Entities: each once whatever its case, and those that were not mentioned for longest go first."""

from milepost.core.memories import Finding
from milepost.memory import entities


def an_entity(name: str, said: str = "", **attributes: str) -> Finding:
    return Finding("entity", said, name, attributes=attributes)


def test_an_entity_is_one_whatever_its_case() -> None:
    merged = entities.merged(
        [
            an_entity("Ann", "a painter", type="person"),
            an_entity("Oslo"),
            an_entity("ANN", age="30"),
        ]
    )

    assert merged == [an_entity("Oslo"), an_entity("ANN", "a painter", type="person", age="30")]


def test_those_mentioned_last_are_kept() -> None:
    known = [an_entity(f"e{number}") for number in range(60)]

    assert entities.kept(known) == known[10:]
    assert entities.kept(known, 0) == []


def test_an_entity_reads_as_a_line() -> None:
    assert entities.shown(an_entity("Ann", "a painter", type="person")) == "Ann (person): a painter"
    assert entities.shown(an_entity("Ann")) == "Ann"


def test_an_entity_without_a_name_is_none() -> None:
    assert entities.entity({"name": " \n", "type": "person"}) is None
