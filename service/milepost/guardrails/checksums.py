"""Numbers that check themselves: bank accounts and cards."""

# How long an account's number is, by country, as the registry of IBANs has it.
_COUNTRIES = {
    15: "NO", 16: "BE", 18: "DK FI FK FO GL NL SD", 19: "MK SI", 20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV", 22: "BG BH CR DE GB GE IE ME RS VA", 23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG", 25: "LY PT ST", 26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM", 28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA", 30: "JO KW MU YE", 31: "MT SC", 32: "LC", 33: "RU",
}  # fmt: skip
_IBAN_LENGTHS = {
    country: length for length, named in _COUNTRIES.items() for country in named.split()
}

# First digits of cards, and how long those are.
_CARDS = (
    (("4",), (13, 16, 19)),
    (("34", "37"), (15,)),
    (tuple(str(n) for n in range(51, 56)), (16,)),
    (tuple(str(n) for n in range(2221, 2721)), (16,)),
    (("6011", "65", *(str(n) for n in range(644, 650))), (16, 17, 18, 19)),
    (tuple(str(n) for n in range(3528, 3590)), (16, 17, 18, 19)),
    (("36", "38", "39", *(str(n) for n in range(300, 306))), (14, 16)),
    (("62",), (16, 17, 18, 19)),
    (("50", "56", "57", "58", "63", "67"), (13, 14, 15, 16, 17, 18, 19)),
)
CARD_DIGITS_MIN, CARD_DIGITS_MAX = 13, 19


def iban_length(country: str) -> int | None:
    """Return how many characters the country's account numbers have; None: it has none."""
    return _IBAN_LENGTHS.get(country)


def is_iban(number: str) -> bool:
    """Say whether `number`, without blanks and in capitals, is an IBAN by length and checksum."""
    if not number.isascii() or not number.isalnum() or len(number) != iban_length(number[:2]):
        return False
    return int("".join(str(int(char, 36)) for char in number[4:] + number[:4])) % 97 == 1


def is_card(digits: str) -> bool:
    """Say whether ASCII `digits` are a card's number: by its first ones, its length and Luhn."""
    known = any(len(digits) in lengths and digits.startswith(starts) for starts, lengths in _CARDS)
    return known and _luhn(digits) % 10 == 0


def _luhn(digits: str) -> int:
    total = 0
    for place, char in enumerate(reversed(digits)):
        value = int(char) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total
