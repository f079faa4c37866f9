"""Hiding in a text what must not be told: of values that overlap there, nothing is left."""

from collections.abc import Iterable
from typing import AnyStr


def sifted(
    values: Iterable[AnyStr], text: AnyStr, redacted: AnyStr, end: int, hidden: int = 0
) -> tuple[AnyStr, int]:
    """Return `text` up to `end`, with what lies in any of `values` hidden, and how much behind is.

    Each stretch of it is told as `redacted`; the first `hidden` characters are of one that was.
    Values are looked for as they are: to compile a pattern of long ones takes seconds.
    """
    ahead = {value: at for value in values if (at := text.find(value)) >= 0}
    after = _covered(text, ahead, hidden)
    told: list[AnyStr] = []
    while ahead and (start := min(ahead.values())) < end:
        told += (text[after:start], redacted)
        after = _covered(text, ahead, start + 1)
    told.append(text[after:end])
    return text[:0].join(told), max(0, after - end)


def _covered(text: AnyStr, ahead: dict[AnyStr, int], end: int) -> int:
    """Return up to where what is hidden to `end` has to be, as each value hides what it overlaps.

    `ahead` says where each is found next. It is left with what lies behind.
    """
    while overlapping := [value for value, at in ahead.items() if at < end]:
        for value in overlapping:
            last = _last(value, text, ahead[value], end)
            end = max(end, last + len(value))
            if (at := text.find(value, last + 1)) >= 0:
                ahead[value] = at
            else:
                del ahead[value]
    return end


def _last(value: AnyStr, text: AnyStr, at: int, end: int) -> int:
    """Return where `value`, which is found `at`, is found for the last time before `end`."""
    window = text[at : end + len(value) - 1]
    # Backwards, since `rfind` takes long for one that repeats itself.
    return at + len(window) - len(value) - window[::-1].find(value[::-1])
