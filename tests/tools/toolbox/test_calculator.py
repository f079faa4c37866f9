"""The calculator: arithmetic, and nothing else that Python can do."""

import pytest

from milepost.core.errors import ToolError
from milepost.tools.toolbox.calculator import calculator


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        (" (1 + 2) * 3 ", 9),
        ("7 / 2", 3.5),
        ("7 // 2 - 7 % 4", 0),
        ("-2 ** 2", -4),
        ("2 ** -1", 0.5),
        ("sqrt(16) + max(1, 2, 3)", 7.0),
        ("round(pi, 2)", 3.14),
        ("round(2.5)", 2),
        ("round(1234, -2)", 1200),
        ("2 ** 62", 2**62),
        ("2 ** 64", str(2**64)),
        ("0.1 + 0.2", 0.1 + 0.2),
    ],
)
def test_arithmetic_is_worked_out(expression: str, value: object) -> None:
    assert calculator(expression) == value


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("__import__('os').system('true')", "is not known here"),
        ("(1).__class__", "is not known here"),
        ("[x for x in (1,)]", "is not known here"),
        ("lambda: 1", "is not known here"),
        ("sqrt(x=1)", "is not known here"),
        ("open", "is not known here"),
        ("'a' * 3", "is not known here"),
        ("True + 1", "is not known here"),
        ("2j", "is not known here"),
        ("round(5, -1000000000)", "at most 400 digits"),
        ("round(5, 0.5)", "cannot be worked out"),
        ("1 if 1 else 2", "is not known here"),
        ("", "cannot be worked out"),
        ("1 +", "cannot be worked out"),
        ("sqrt(-1)", "cannot be worked out"),
        ("(-8) ** 0.5", "no real number"),
        ("min()", "cannot be worked out"),
        ("(" * 400 + "1" + ")" * 400, "cannot be worked out"),
        ("1 / 0", "divides by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("10 ** 1000000", "too large"),
        ("*".join(["9" * 90] * 10) + "**9", "too large"),
        ("2.0 ** 10000", "too large"),
        ("1e308 * 10", "too large"),
        ("1" * 1001, "more than 1000 characters"),
    ],
)
def test_what_is_no_arithmetic_or_too_much_of_it_is_refused_with_words(
    expression: str, words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        calculator(expression)
