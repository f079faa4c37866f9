"""Yes and no in a chat: which whole messages are one of them beyond doubt, and no others.

A yes sets off what was previewed without a model in between, so whatever could mean anything else
is none: a question, a condition, a restated wish, a letter that only looks like another.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

MESSAGE_CHARS_MAX = 80

# What accents leave behind once a letter is taken apart, in the languages that are spoken here.
_ACCENTS = dict.fromkeys(map(ord, "\u0300\u0301\u0302\u0303\u0308\u0327"))
_UPPER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ\u2019\u00a0", "abcdefghijklmnopqrstuvwxyz' ")
# Faces and hands that say yes again, or nothing. What could take it back is not among them.
_GLAD = "👍👌✅✔☑🙏🙂😊😀😃😄😁🤗🤝🎉💯👏🙌💪❤💚💙"
_SAD = "👎❌✖🚫⛔🛑🙅🙁☹😕😞😔😡😢"
_WITH_EMOJI = "\ufe0f\u200d♂♀🏻🏼🏽🏾🏿"
_ENDS = " \t\r\n\u00a0.!…"
_PAUSES = re.compile(r"[ \t\r\n]*[,;.!…]*[ \t\r\n]+")

_YES: Mapping[str, Sequence[str]] = {
    "en": (
        "yes", "yes please", "yes i confirm", "yes confirm", "yes confirmed", "yes go ahead",
        "yes do it", "yes proceed", "i confirm", "confirm", "confirmed",
    ),
    "pt": (
        "sim", "sim por favor", "sim confirmo", "sim eu confirmo", "sim confirmado",
        "sim pode confirmar", "sim pode fazer", "eu confirmo", "confirmo", "confirmar",
        "confirmado",
    ),
    # "si" is "if" as well: with anything beside it, it is no yes.
    "es": ("si", "yo confirmo", "lo confirmo", "confirmo", "confirmar", "confirmado"),
}  # fmt: skip
# Without "no cancel" in any of them: after a comma it is a no, and without one its opposite.
_NO: Mapping[str, Sequence[str]] = {
    "en": (
        "no", "no thanks", "no thank you", "no don't", "no do not", "don't", "do not",
        "don't do it", "do not do it", "no don't do it", "cancel", "cancel it", "cancel that",
        "please cancel", "stop", "abort", "never mind", "nevermind", "forget it",
    ),
    "pt": (
        "nao", "nao obrigado", "nao obrigada", "nao quero", "nao faca", "nao faca isso",
        "cancela", "cancele", "cancelar", "cancela isso", "pode cancelar", "deixa pra la",
        "deixe para la", "esquece", "esqueca", "pare",
    ),
    "es": (
        "no", "no gracias", "no quiero", "no lo hagas", "no lo haga", "cancela", "cancele",
        "cancelar", "cancelalo", "cancelarlo", "dejalo", "olvidalo", "detener",
    ),
}  # fmt: skip


class ConfirmationParser(Protocol):
    """Reads an answer to a preview. `version` is kept with whatever it decided.

    Only `True` counts as yes; a message that is neither is for the model.
    """

    @property
    def version(self) -> str:
        """Which words and rules these are."""

    def is_confirm(self, text: str) -> bool:
        """Say whether the whole message is a yes, beyond doubt."""

    def is_cancel(self, text: str) -> bool:
        """Say whether the whole message is a no, beyond doubt."""


@dataclass(frozen=True, slots=True)
class WholeMessages:
    """The parser that there is: Portuguese, English and Spanish, whole messages alone.

    Accents, case, a full stop and an emoji at the end make no difference. A message that names what
    is to be done, or anything at all besides its yes, is none.
    """

    version: str = "whole-message-v2:pt-en-es"

    def is_confirm(self, text: str) -> bool:
        """Say whether the whole message is a yes."""
        return _words_of(text, _GLAD) in _CONFIRMS

    def is_cancel(self, text: str) -> bool:
        """Say whether the whole message is a no."""
        return _words_of(text, _SAD + _GLAD) in _CANCELS


_CONFIRMS = frozenset(phrase for phrases in _YES.values() for phrase in phrases)
_CANCELS = frozenset(phrase for phrases in _NO.values() for phrase in phrases)


def _words_of(text: str, emoji: str) -> str | None:
    """Return the message in plain lower-case letters; None for what is too long to be one word.

    Nothing is folded but ASCII letters and accents: a letter that looks like another stays what it
    is, so that no such word is found.
    """
    if len(text) > MESSAGE_CHARS_MAX:
        return None
    told = text.rstrip(_ENDS + emoji + _WITH_EMOJI).lstrip(_ENDS + "¡")
    plain = unicodedata.normalize("NFD", told).translate(_ACCENTS)
    return _PAUSES.sub(" ", plain.translate(_UPPER))
