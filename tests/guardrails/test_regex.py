"""Text that fits a pattern, and text that lacks it, also while it comes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.guardrails.finds import Passing
from milepost.guardrails.patterns import REACH_MAX
from milepost.guardrails.regex import Denied, Regex, Required
from tests.guardrails.passing import in_pieces, passed

PATTERNS = (
    r"\bsk-\d{2,4}\b", r"(?<=the )a", r"a(?!é)", r"(?m)^a.*$", r"the.*a", r"7+", r"[^ ]+-",
    r"a\s*$", r"(?:7|a7)+é",
)  # fmt: skip


def denied(pattern: str, *, ignore_case: bool = False) -> Denied:
    return Denied(Regex(pattern, ignore_case=ignore_case), "[x]")


def test_what_fits_is_replaced() -> None:
    assert passed(denied(r"sk-\d+"), "sk-1, sk-22 and SK-3") == "[x], [x] and SK-3"
    assert passed(denied(r"sk-\d+", ignore_case=True), "SK-3") == "[x]"


def test_a_match_reaches_no_further_than_is_said() -> None:
    text = "a" + "b" * 2 * REACH_MAX + "c"

    assert passed(denied("ab*c"), text) == text
    assert passed(denied("b+"), text) == "a[x][x]c"


def test_what_is_required_holds_a_text_back_until_it_is_there() -> None:
    passing = Passing(Required(Regex(r"\[\d\]")), "block")

    assert passing.feed("As the source says ") == ""
    assert passing.feed("[1], it rains. ") == "As the source says [1], it rains. "
    assert passing.feed("Yes.") == "Yes."
    assert passing.finish() == ""
    assert not passing.blocked


def test_a_text_that_lacks_what_is_required_is_blocked_whole() -> None:
    passing = Passing(Required(Regex(r"\[\d\]")), "block")

    assert passing.feed("It rains.") + passing.finish() == ""
    assert passing.found == {"nothing that fits the pattern": 1}


@given(st.sampled_from(PATTERNS), in_pieces("sk-", "12", "77", "the a", "aé"))
def test_however_a_text_is_cut_the_same_comes_out(
    pattern: str, drawn: tuple[str, list[str]]
) -> None:
    text, pieces = drawn
    passing = Passing(denied(pattern), "rewrite")

    assert "".join(map(passing.feed, pieces)) + passing.finish() == passed(denied(pattern), text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("pattern", "part"),
    [("a{1,30}a{1,30}b", "a"), ("secret.*end", "secret"), (r"\s+$", " "), (r"\w+@\w+", "a")],
)
def test_a_long_text_that_is_made_for_it_is_read_in_bounded_time(pattern: str, part: str) -> None:
    text = part * (100_000 // len(part))

    passed(denied(pattern), text, "warn")
