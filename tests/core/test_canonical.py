"""The canonical form: the vectors of RFC 8785, and what digests need beyond them."""

import json
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.canonical import call_digest, canonical, digest
from milepost.core.json import Json

VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip

# RFC 8785, appendix B: the bits of a double, and how it is written.
DOUBLES = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


@pytest.mark.parametrize(("bits", "written"), DOUBLES)
def test_a_double_is_written_as_ecmascript_writes_it(bits: str, written: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))

    assert canonical(value) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [("1e21", "1e+21"), ("1e-7", "1e-7"), ("333333333.33333329", "333333333.3333333"),
     ("-0.0", "0"), ("1E30", "1e+30"), ("4.50", "4.5"), ("2e-3", "0.002"),
     ("0.000000000000000000000000001", "1e-27"), ("100.0", "100"), ("-12.5e3", "-12500")],
)  # fmt: skip
def test_spellings_of_one_number_are_one(text: str, written: str) -> None:
    assert canonical(float(text)) == written


def test_the_example_of_the_rfc() -> None:
    value = json.loads(
        r"""{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]}"""
    )

    assert canonical(value) == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_members_are_sorted_by_their_utf_16_units() -> None:
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]

    ordered = list(json.loads(canonical(dict.fromkeys(names, 1))))

    assert ordered == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, -(2**63), 10**30])
def test_an_integer_is_exact_however_large(number: int) -> None:
    assert canonical(number) == str(number)


@given(VALUES)
def test_reading_the_canonical_form_gives_the_canonical_form_again(value: Json) -> None:
    assert canonical(json.loads(canonical(value))) == canonical(value)


@given(st.dictionaries(st.text(), st.integers(), min_size=2), st.randoms(use_true_random=False))
def test_the_order_of_members_makes_no_difference(
    value: dict[str, int], chance: random.Random
) -> None:
    members = list(value.items())
    chance.shuffle(members)

    assert digest(dict(members)) == digest(dict(value))


def test_a_digest_names_its_hash() -> None:
    assert digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_a_calls_digest_binds_the_tool_and_every_argument() -> None:
    bound = call_digest("refund", {"order": 7, "amount": 2**53})

    assert bound == call_digest("refund", {"amount": 2**53, "order": 7})
    assert bound != call_digest("refund", {"order": 7, "amount": 2**53 + 1})
    assert bound != call_digest("refund_all", {"order": 7, "amount": 2**53})
    assert bound != call_digest("refund", {"order": "7", "amount": 2**53})
