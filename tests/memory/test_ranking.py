"""Ranking: what stands high in several orders comes first."""

from milepost.memory.ranking import fused


def test_what_stands_high_in_both_comes_first() -> None:
    assert fused(["a", "b", "c"], ["c", "b", "d"]) == ["c", "b", "a", "d"]


def test_one_ranking_stays_as_it_is() -> None:
    assert fused(["a", "b", "c"]) == ["a", "b", "c"]
    assert fused([]) == []


def test_the_heavier_ranking_goes_before() -> None:
    assert fused(["a"], ["b"], weights=(1.0, 2.0)) == ["b", "a"]
