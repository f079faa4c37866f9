"""Letters that a text in JSON writes as escapes, read as the letters that they are."""

import re

_ESCAPE = re.compile(
    r"\\(?:u(?:([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|([0-9a-fA-F]{4}))"
    r"|(/))"
)
# What may yet become one, or the first half of one, at the end of a text that goes on.
_OPEN = re.compile(
    r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?\Z"
)
_SPACE = 0x20


class Unescaping:
    """One text in JSON, in pieces: `\\u0040` becomes the `@` that every reader takes it for.

    What JSON has no other way to write stays as it is, so that the text means what it meant.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take in a piece; return all that is settled."""
        return self._read(self._held + piece, whole=False)

    def finish(self) -> str:
        """Return the rest: nothing follows."""
        return self._read(self._held, whole=True)

    def _read(self, text: str, *, whole: bool) -> str:
        out: list[str] = []
        at = 0
        while (slash := text.find("\\", at)) >= 0:
            out.append(text[at:slash])
            if not whole and _OPEN.match(text, slash):
                self._held = text[slash:]
                return "".join(out)
            escape = _ESCAPE.match(text, slash)
            # Of another one, the letter behind belongs to it: it may be a backslash as well.
            at = escape.end() if escape else slash + 2
            out.append(_plain(escape) if escape else text[slash:at])
        self._held = ""
        return "".join((*out, text[at:]))


def _plain(escape: re.Match[str]) -> str:
    high, low, single, slash = escape.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    char = slash or chr(int(single, 16))
    must_be_escaped = char in '"\\' or ord(char) < _SPACE or "\ud800" <= char <= "\udfff"
    return escape[0] if must_be_escaped else char
