"""RFC 8785, the JSON Canonicalization Scheme, and the digests made with it.

Integers are written exactly, also beyond 2**53, where the RFC's number model would round them:
two different amounts must never share a digest.
"""

import codecs
import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal

from milepost.core.json import Json

# ECMAScript's Number::toString switches to exponents outside of these (RFC 8785, 3.2.2.3).
_PLAIN_EXPONENT_MAX = 21
_PLAIN_EXPONENT_MIN = -6
# A codec is a module: whoever looked for it at first use might find no file left to open.
_utf_16 = codecs.getencoder("utf-16-be")


def canonical(value: Json) -> str:
    """Return the one spelling of `value` that equal values share."""
    match value:
        case None | bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return str(value)
        case float():
            return _number(value)
        case Mapping():
            ordered = sorted(value.items(), key=lambda item: _utf_16(item[0])[0])
            members = (f"{canonical(key)}:{canonical(item)}" for key, item in ordered)
            return "{" + ",".join(members) + "}"
        case Sequence():
            return "[" + ",".join(canonical(item) for item in value) + "]"


def digest(value: Json) -> str:
    """Return `sha256:` and the hex digest of the canonical form."""
    return "sha256:" + hashlib.sha256(canonical(value).encode()).hexdigest()


def call_digest(tool: str, arguments: Mapping[str, Json]) -> str:
    """Return what an approval binds: this tool with exactly these arguments."""
    return digest({"tool": tool, "arguments": dict(arguments)})


def _number(value: float) -> str:
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "infinities and NaN are refused before this"
    text = "".join(map(str, digits))
    point = len(text) + exponent
    prefix = "-" if sign else ""
    if len(text) <= point <= _PLAIN_EXPONENT_MAX:
        return prefix + text + "0" * (point - len(text))
    if 0 < point <= _PLAIN_EXPONENT_MAX:
        return f"{prefix}{text[:point]}.{text[point:]}"
    if _PLAIN_EXPONENT_MIN < point <= 0:
        return f"{prefix}0.{'0' * -point}{text}"
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{prefix}{mantissa}e{'+' if point > 0 else '-'}{abs(point - 1)}"
