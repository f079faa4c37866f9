# ruff: noqa: RUF001 - to look like others is what these letters are here for
"""Letters that look like others: what a text reads like to whoever sees it.

Wide, mathematical, circled and accented letters come from Unicode's own decompositions. The table
has those of other scripts that pass for a Latin letter at a glance, and nothing rarer.
"""

import functools
import unicodedata

KNOWN_MAX = 4_096

_ALIKE = {
    "a": "аɑαａᴀ", "b": "ЬƄʙвɓ", "c": "сϲᴄⅽ", "d": "ԁɗᴅⅾ", "e": "еєҽεɛᴇ", "f": "ϝƒғꜰ",
    "g": "ɡցԍɢ", "h": "һнհʜ", "i": "іɩιıӏɪ", "j": "јϳᴊ", "k": "кκᴋ", "l": "ⅼʟǀ",
    "m": "мᴍⅿ", "n": "пոɴη", "o": "оοσօᴏ", "p": "рρᴘ", "q": "ԛզ", "r": "гᴦʀ", "s": "ѕꜱʂ",
    "t": "тτᴛ", "u": "υսᴜцʋ", "v": "ѵνᴠⅴ", "w": "ԝωᴡɯ", "x": "хχⅹ", "y": "уүγʏ", "z": "ᴢʐ",
    "A": "АΑ", "B": "ВΒ", "C": "СϹ", "E": "ЕΕ", "H": "НΗ", "I": "ІΙӀ", "J": "Ј", "K": "КΚ",
    "M": "МΜ", "N": "Ν", "O": "ОΟ", "P": "РΡ", "S": "Ѕ", "T": "ТΤ", "X": "ХΧ", "Y": "УΥҮ",
    "Z": "Ζ",
    "'": "’‘ʼ′`´", '"': "“”„″", "-": "‐‑‒–—−",
}  # fmt: skip
_READS_LIKE = {ord(char): plain for plain, chars in _ALIKE.items() for char in chars}
_REGIONAL_A, _REGIONAL_Z = 0x1F1E6, 0x1F1FF
_BOXED = (range(0x1F150, 0x1F16A), range(0x1F170, 0x1F18A))
# Letters by their category, and blank all the same: fillers and an empty pattern of Braille.
_UNSEEN = frozenset("\u115f\u1160\u3164\uffa0\u2800\u17b4\u17b5")


class _Skeleton(dict[int, str]):
    """What each code point of one text reads like."""

    def __missing__(self, code: int) -> str:
        self[code] = plain = _plain(code)
        return plain


def latin(text: str) -> str:
    """Return `text` with Latin letters for those of other scripts that pass for them, as long."""
    return text if text.isascii() else text.translate(_READS_LIKE)


def skeleton(text: str) -> str:
    """Return what `text` reads like in plain letters; what is not seen is left out."""
    return text if text.isascii() else text.translate(_Skeleton())


@functools.lru_cache(maxsize=KNOWN_MAX)
def _plain(code: int) -> str:
    if _REGIONAL_A <= code <= _REGIONAL_Z:
        return chr(ord("a") + code - _REGIONAL_A)
    for letters in _BOXED:
        if code in letters:
            return chr(ord("a") + code - letters.start)
    decomposed = unicodedata.normalize("NFKD", chr(code))
    return "".join(_READS_LIKE.get(ord(char), char) for char in decomposed if _is_seen(char))


def _is_seen(char: str) -> bool:
    """Say whether it takes up room by itself: no mark over a letter, and nothing of no width."""
    return char not in _UNSEEN and unicodedata.category(char) not in {"Mn", "Me", "Cf"}
