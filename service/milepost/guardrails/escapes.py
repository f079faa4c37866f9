"""Letters that a text in JSON writes as escapes, read as the letters that they are."""

import re

_ESCAPE = re.compile(
    r"\\(?:u(?:([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|([0-9a-fA-F]{4}))"
    r"|([/bfnrt]))"
)
# What may yet become one, or the first half of one, at the end of a text that goes on.
_OPEN = re.compile(
    r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?\Z"
)
_SPACE = 0x20
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# What lays a text out between its values: no text in JSON has these three in any other way.
_LAYOUT = {"\n": "\x1c", "\r": "\x1d", "\t": "\x1e"}
_LAID_OUT = str.maketrans(_LAYOUT)
_WRITTEN = str.maketrans(
    {chr(code): f"\\u{code:04x}" for code in range(_SPACE)}
    | {char: f"\\{letter}" for letter, char in _CONTROLS.items()}
    | {instead: char for char, instead in _LAYOUT.items()}
)


class Unescaping:
    """One text in JSON, in pieces: `\\u0040` becomes the `@` that every reader takes it for.

    What JSON has no other way to write stays as it is, so that the text means what it meant. With
    `controls` a line that ends within a string ends there: `written` puts that back.
    """

    def __init__(self, *, controls: bool = False) -> None:
        self._held = ""
        self._controls = controls

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
            out.append(self._laid_out(text[at:slash]))
            if not whole and _OPEN.match(text, slash):
                self._held = text[slash:]
                return "".join(out)
            escape = _ESCAPE.match(text, slash)
            # Of another one, the letter behind belongs to it: it may be a backslash as well.
            at = escape.end() if escape else slash + 2
            out.append(self._plain(escape) if escape else text[slash:at])
        self._held = ""
        return "".join((*out, self._laid_out(text[at:])))

    def _laid_out(self, text: str) -> str:
        return text.translate(_LAID_OUT) if self._controls else text

    def _plain(self, escape: re.Match[str]) -> str:
        high, low, single, letter = escape.groups()
        if high:
            return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
        char = _CONTROLS.get(letter, letter) if letter else chr(int(single, 16))
        if ord(char) < _SPACE:
            return char if self._controls and char not in _LAYOUT.values() else escape[0]
        return escape[0] if char in '"\\' or "\ud800" <= char <= "\udfff" else char


def written(text: str) -> str:
    """Return what was read with `controls` as it stands in JSON."""
    return text.translate(_WRITTEN)
