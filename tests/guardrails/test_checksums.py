# ruff: noqa: RUF001 - letters that pass for others are what this is about
"""Which numbers check themselves."""

import pytest

from milepost.guardrails.checksums import is_card, is_iban


@pytest.mark.parametrize(
    "number",
    ["DE89370400440532013000", "GB82WEST12345698765432", "FR1420041010050500013M02606",
     "NO9386011117947", "MT84MALT011000012345MTLCAST001S"],
)  # fmt: skip
def test_an_account_s_number_checks_itself(number: str) -> None:
    assert is_iban(number)
    assert not is_iban(number[:-1] + str((int(number[-1], 36) + 1) % 10))


@pytest.mark.parametrize("number", ["DE8937040044053201300", "XX89370400440532013000", "DE8９", ""])
def test_a_number_of_another_length_or_country_is_no_account_s(number: str) -> None:
    assert not is_iban(number)


@pytest.mark.parametrize(
    "digits",
    ["4111111111111111", "4222222222222", "378282246310005", "5555555555554444",
     "2223003122003222", "6011111111111117", "3530111333300000", "36227206271667",
     "6205500000000000004", "6759649826438453"],
)  # fmt: skip
def test_a_card_s_number_checks_itself(digits: str) -> None:
    assert is_card(digits)
    assert not is_card(digits[:-1] + str((int(digits[-1]) + 1) % 10))


@pytest.mark.parametrize("digits", ["1111111111111117", "41111111111111", "0" * 16, "", "9" * 19])
def test_digits_that_no_card_begins_with_or_is_as_long_as_are_none(digits: str) -> None:
    assert not is_card(digits)
