"""Prompt injection in what a tool brought from outside: phrases that address the model.

Patterns find the plain attempts and nothing else: a tool that acts still needs its approval. They
are kept narrow, since a result that is blocked by mistake is a result lost.
"""

import re
import unicodedata

CHARS_MAX = 200_000

_EARLIER = r"(?:previous|prior|above|earlier|preceding|former|existing)"
_ORDERS = r"(?:instructions?|prompts?|rules|directives|guidelines|commands)"
_YOURS = r"(?:all |any |every |the |your |my |these |those |of )*"

_PATTERNS = {
    "tells the model to ignore its instructions": (
        rf"\b(?:ignore|disregard|forget|override|bypass) {_YOURS}"
        rf"(?:{_EARLIER} {_ORDERS}|system (?:prompt|instructions?|message)|your {_ORDERS})"
    ),
    "tells the model to ignore what came before": (
        r"\b(?:ignore|disregard|forget) (?:everything|all|anything) (?:"
        r"(?:you|that) (?:were|was|have been|had been) told|(?:said|written) (?:above|before))"
    ),
    "gives the model another role": (
        r"\byou are (?:now|no longer) (?:a |an |the |in )?"
        r"(?:dan\b|developer mode|jailbroken|restricted|unrestricted|bound by"
        r"|different (?:ai|model))"
    ),
    "poses as new instructions": (
        r"(?:^|\n|[.!:>*#\]] ?)\W{0,5}(?:new|updated|real|actual|important) (?:system )?"
        rf"{_ORDERS} ?(?:for (?:you|the (?:ai|assistant|model|agent)))? ?:"
    ),
    "poses as a message of the system": (
        r"<\|?(?:im_start|system|im_end|start_header_id|endoftext)\|?>|\[/?(?:inst|system)\]"
        r"|<</?sys>>|(?:^|\n) ?#{2,3} ?(?:system|instruction) ?:"
    ),
    "asks for the system prompt": (
        r"\b(?:reveal|print|show|repeat|output|leak|send)(?: me| us)? (?:your|the) "
        r"(?:full |entire |initial |original |hidden )*"
        r"(?:system prompt|system message|initial instructions)"
    ),
    "tells the model to hide something from the user": (
        r"\b(?:do not|don't|never) (?:tell|inform|mention (?:this|it) to|reveal (?:this|it) to"
        r"|alert|notify) the (?:user|human|operator)"
    ),
}
_COMPILED = tuple((why, re.compile(pattern, re.IGNORECASE)) for why, pattern in _PATTERNS.items())
_INVISIBLE = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f]"
)
_BLANKS = re.compile(r"[^\S\n]+|\\n")
_LINES = re.compile(r" ?\n ?")


def injection_in(text: str) -> str | None:
    """Return what a text does that is meant for the model; None where it does nothing such."""
    shown = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text[:CHARS_MAX]))
    shown = _LINES.sub(
        "\n", _BLANKS.sub(" ", shown.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    )
    # A phrase may be broken over lines, and a few patterns look where lines begin.
    folded = shown.replace("\n", " ")
    for why, pattern in _COMPILED:
        if pattern.search(shown) or pattern.search(folded):
            return why
    return None
