"""Which patterns are bounded, and how far they reach."""

import pytest

from milepost.guardrails.patterns import PATTERN_CHARS_MAX, PatternError, reach_of


@pytest.mark.parametrize(
    ("pattern", "reach"),
    [
        (r"foo|barbaz", 6),
        (r"(?i)\bsk-[a-z0-9]{20,40}\b", 43),
        (r"(?:\d{1,3}\.){3}\d{1,3}", 15),
        (r"(?<=ab)c(?!def)", 6),
        (r"(?:(?=\d)x){1,2}", None),
        (r"secret.*end", None),
        (r"\w+@\w+\.\w+", None),
        (r"[^\"]*\"", None),
        (r"\s+$", None),
        (r"(?:ab?)*c", None),
        (r"x++y|(?>a+)b", None),
        (r"[^a-z\d]{2,5}\D\S\W", 8),
        (r"a{1,30}a{1,30}b", 61),
        (r"(?P<year>\d{4})-\d\d", 7),
        (r"(?:[一-丂]+[七-丏])+!", None),
        (r"[д-ю]+\s+[д-ю]+\s+[д-ю]+\d+", None),
    ],
)
def test_a_bounded_pattern_reaches_so_far(pattern: str, reach: int | None) -> None:
    assert reach_of(pattern) == reach


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a+)+$", "in too many ways"),
        (r"(a|aa)+$", "in too many ways"),
        (r"(\w+\s?)*!", "in too many ways"),
        (r"(.*?,){11}P", "in too many ways"),
        (r"^(([a-z])+.)+[A-Z]([a-z])+$", "in too many ways"),
        (r"a.*b.*c", "in too many ways"),
        (r"(?:x?){1,50}y", "in too many ways"),
        (r"(?=(a+)+b)a", "in too many ways"),
        (r"(?:[一-丂]+)+!", "in too many ways"),
        (r"(?:[一-丂]+丁?)+!", "in too many ways"),
        (r"(?:[\u2000-\u2002]\s?)+!", "in too many ways"),
        (r"(?:[\u1f80-\u20a0]+\s?)+!", "in too many ways"),
        (r"(?:[^丁]+[一-丂]?)+!", "in too many ways"),
        (r"a*", "where there is nothing"),
        (r"\b", "where there is nothing"),
        (r"(x)\1", "refers back"),
        (r"(x)?(?(1)a|b)", "refers back"),
        (r"[", "cannot be read"),
        (r"[[a]", "cannot be read"),
        (r"(?<=a+)b", "cannot be read"),
        (r"a" * (PATTERN_CHARS_MAX + 1), "more than 500 characters"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(PatternError, match=why):
        reach_of(pattern)
