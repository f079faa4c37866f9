"""Actions that wait for a yes in a chat: what an answer makes of them; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeGuard

from milepost.core.canonical import digest
from milepost.core.confirmations import ConfirmationParser
from milepost.core.json import Json

TTL_S = 60.0
TTL_S_MAX = 86_400.0
IGNORED_S = 10.0
"""How long an action may be confirmed yet, once an answer to it was ignored."""
APPROVAL_KIND = "approval"
KIND_CHARS_MAX = 100

Meaning = Literal["confirm", "cancel", "ignore", "other"]
Move = Literal[
    "start", "confirm", "cancel", "supersede", "ignore", "expired", "kind_mismatch",
    "digest_mismatch", "nothing_pending",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a user: text, or the intent of a button, which no parser reads.

    What is `expected` pins the answer to the action that its asker saw.
    """

    text: str | None = None
    intent: str | None = None
    expected_kind: str | None = None
    expected_id: str | None = None
    expected_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What waits for a yes; `digest` binds its arguments, `intact` says that it still does."""

    id: str
    kind: str
    digest: str
    intact: bool = True


@dataclass(frozen=True, slots=True)
class Shown:
    """What the user was shown last. `expired` says that its time has run out since."""

    id: str
    digest: str
    expired: bool = False


def is_kind(kind: object) -> TypeGuard[str]:
    """Say whether a tool may call an action that; what approvals are called is taken."""
    return isinstance(kind, str) and 0 < len(kind) <= KIND_CHARS_MAX and kind != APPROVAL_KIND


def args_digest(args: Mapping[str, Json] | None) -> str:
    """Return what binds an action's arguments: no arguments are the same as none given."""
    return digest(dict(args or {}))


def meaning_of(said: Said, parser: ConfirmationParser) -> Meaning:
    """Return what a message means to an action that waits. What is not plainly yes is none."""
    if said.intent is not None:
        match said.intent.strip().lower():
            case "confirm":
                return "confirm"
            case "cancel":
                return "cancel"
            case _:
                return "ignore"
    if said.text is None:
        return "other"
    if parser.is_confirm(said.text) is True:
        return "confirm"
    return "cancel" if parser.is_cancel(said.text) is True else "other"


def move(said: Said, meaning: Meaning, offer: Offer | None, shown: Shown | None) -> Move:
    """Return what becomes of a message while `offer` waits, or nothing does.

    A yes counts for what its user was shown last, and for exactly that; who was shown nothing has
    said it to something else, unless it says to what.
    """
    if offer is None:
        if meaning != "other" and shown is not None and shown.expired:
            return "expired"
        return "nothing_pending" if said.intent is not None else "start"
    if meaning == "other":
        return "supersede"
    if not _is_meant(said, offer):
        return "kind_mismatch"
    if meaning == "ignore":
        return "ignore"
    if meaning == "cancel":
        return "cancel"
    if said.expected_id is None and (shown is None or shown.id != offer.id):
        return "kind_mismatch" if shown is None else "expired"
    return "digest_mismatch" if _is_changed(said, offer, shown) else "confirm"


def _is_changed(said: Said, offer: Offer, shown: Shown | None) -> bool:
    if not offer.intact or said.expected_digest not in {None, offer.digest}:
        return True
    return shown is not None and shown.id == offer.id and shown.digest != offer.digest


def _is_meant(said: Said, offer: Offer) -> bool:
    kind_fits = said.expected_kind in {None, offer.kind}
    return kind_fits and said.expected_id in {None, offer.id}
