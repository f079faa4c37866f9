"""A text on its way past rails: at once, or in whatever pieces it may come."""

from collections.abc import Sequence

from hypothesis import strategies as st

from milepost.core.guardrails import Action
from milepost.guardrails.finds import Finder, Passing


def passed(finder: Finder, text: str, action: Action = "rewrite") -> str:
    """Return what comes out of a text that comes in at once."""
    passing = Passing(finder, action)
    return passing.finish(text)


def found(finder: Finder, text: str) -> list[str]:
    """Return the parts of the text that are found, each of which has an end."""
    finds, _ = finder.find(text, 0, whole=True)
    return [text[find.begin : find.end] for find in finds]


def in_pieces(*parts: str) -> st.SearchStrategy[tuple[str, list[str]]]:
    """Draw texts made of these parts, of letters and of blanks, each also in pieces."""
    part = st.sampled_from([*parts, " ", "\n", ".", "-", "a", "é", "中", "7", "the "])
    whole = st.lists(part, max_size=14).map("".join)
    cut = st.tuples(whole, st.lists(st.floats(0, 1), max_size=12))
    return cut.map(lambda drawn: (drawn[0], pieces(drawn[0], drawn[1])))


def pieces(text: str, places: Sequence[float]) -> list[str]:
    """Return the text cut at these places, each a share of its length."""
    ends = [*sorted(round(place * len(text)) for place in places), len(text)]
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
