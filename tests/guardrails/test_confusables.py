# ruff: noqa: RUF001 - letters that pass for others are what this is about
"""What letters read like."""

import pytest

from milepost.guardrails.confusables import skeleton


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("plain text", "plain text"),
        ("рауpal", "paypal"),
        ("ΡΑΥ", "PAY"),
        ("𝓹𝓪𝔂", "pay"),
        ("ｐａｙ", "pay"),
        ("ⓟⓐⓨ 🅿🅰🆈 🇵🇦🇾", "pay pay pay"),
        ("pa\u200by\u0301", "pay"),
        ("p\u3164a\u2800y", "pay"),
        ("ﬁne ½ №", "fine 1⁄2 No"),
        ("“it’s” — so", '"it\'s" - so'),
        ("中文", "中文"),
    ],
)
def test_a_text_reads_like_its_plain_letters(text: str, plain: str) -> None:
    assert skeleton(text) == plain
