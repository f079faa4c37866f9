"""The graph of knowledge: triples, looked up by words."""

from milepost.core.memories import Finding
from milepost.memory import graph


def triple(subject: str, predicate: str, other: str) -> Finding:
    return Finding("relation", "", subject, predicate, other)


def test_relations_are_found_by_the_words_in_them_the_best_first() -> None:
    lives, knows, owns = (
        triple("Ann", "lives in", "Oslo"),
        triple("Ben", "knows", "Ann"),
        triple("Carl", "owns", "a car"),
    )

    assert graph.about([owns, knows, lives], {"ann", "oslo"}) == [lives, knows]
    assert graph.about([owns], {"ann"}) == []
    assert graph.about([lives], {"live"}) == [lives]


def test_a_relation_needs_all_of_its_parts() -> None:
    assert graph.relation({"subject": "Ann", "predicate": "knows", "object": ""}) is None
    assert graph.relation({"subject": "A", "predicate": "b", "object": "C"}) == triple(
        "A", "b", "C"
    )


def test_a_relation_reads_as_a_line() -> None:
    assert graph.shown(triple("Ann", "knows", "Ben")) == "Ann — knows — Ben"
    assert graph.shown(Finding("relation", "x", "A", "b", "C")) == "A — b — C (x)"
