"""Links by which a person answers an approval: what they say, and that we have said it.

A link carries all that it stands for, signed with a key that is derived from the secret key. So
there is nothing to look up before it is known to be ours, and nothing in the database that would
let its reader approve anything.
"""

import base64
import hashlib
import hmac
import secrets
from dataclasses import asdict, dataclass
from typing import Literal, get_args

import orjson

from milepost.core.approvers import Approver
from milepost.runtime.secrets import Vault
from milepost.store.approvals import ApprovalRow
from milepost.store.webhooks import WebhookRow

LinkDecision = Literal["approve", "deny"]
DECISIONS: tuple[LinkDecision, ...] = get_args(LinkDecision)

NONCE_MS = 15 * 60_000
TOKEN_CHARS_MAX = 2_000

_PURPOSE = "milepost approval links v1"
_NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Link:
    """What a link stands for: this answer, to exactly this call, by this approver, until then.

    `approver` is the name that the webhook was given for whoever uses its links.
    """

    tenant: str
    approval_id: str
    decision: LinkDecision
    digest: str
    webhook_id: str
    approver: str | None
    expires_ms: int


class Links:
    """Makes links below a public URL, and reads them. Without URL or secret key there are none."""

    def __init__(self, vault: Vault, public_url: str | None) -> None:
        self._key = vault.key_for(_PURPOSE)
        self._public_url = public_url.rstrip("/") if public_url else None

    @property
    def origin(self) -> str | None:
        """The origin of the pages, as browsers name it."""
        if self._public_url is None:
            return None
        return "/".join(self._public_url.split("/")[:3]).lower()

    def of(self, row: ApprovalRow, hook: WebhookRow) -> dict[str, str] | None:
        """Return the links to answer this approval, for whoever this webhook tells."""
        if self._key is None or self._public_url is None or not hook.approval_links:
            return None
        if row.status != "pending" or row.kind != "call" or not may_answer(row, hook.approver):
            return None
        return {
            decision: f"{self._public_url}/{decision}/{self._token(_link(row, hook, decision))}"
            for decision in DECISIONS
        }

    def read(self, token: str) -> Link | None:
        """Return what a token stands for, if it is one of ours; it may be void all the same."""
        said, _, signed = token.partition(".")
        if self._key is None or len(token) > TOKEN_CHARS_MAX:
            return None
        if not hmac.compare_digest(self._sign("link", said).encode(), signed.encode()):
            return None
        return Link(**orjson.loads(_decoded(said)))

    def nonce(self, token: str, now_ms: int) -> str:
        """Return what the page of this link sends along once, soon after it was opened."""
        said = f"{secrets.token_urlsafe(_NONCE_BYTES)}.{now_ms + NONCE_MS}"
        return f"{said}.{self._sign('nonce', token, said)}"

    def knows(self, nonce: str, token: str, now_ms: int) -> bool:
        """Say whether the nonce was made for this link, not long ago."""
        said, _, signed = nonce.rpartition(".")
        if not hmac.compare_digest(self._sign("nonce", token, said).encode(), signed.encode()):
            return False
        return now_ms < int(said.rpartition(".")[2])

    def _token(self, link: Link) -> str:
        said = _encoded(orjson.dumps(asdict(link)))
        return f"{said}.{self._sign('link', said)}"

    def _sign(self, *said: str) -> str:
        assert self._key is not None, "nothing is signed without a key"
        digest = hmac.new(self._key, orjson.dumps(said), hashlib.sha256).digest()
        return _encoded(digest)


def may_answer(row: ApprovalRow, approver: str | None) -> bool:
    """Say whether the approval's terms leave its answer to who uses a link.

    Whoever has no name is nobody that the terms could name, and may well be the one who asked.
    """
    who = Approver(subject=approver)
    return row.asks(who) and not row.is_own(who)


def _link(row: ApprovalRow, hook: WebhookRow, decision: LinkDecision) -> Link:
    return Link(
        tenant=row.tenant,
        approval_id=row.id,
        decision=decision,
        digest=row.digest,
        webhook_id=hook.id,
        approver=hook.approver,
        expires_ms=row.expires_ms,
    )


def _encoded(said: bytes) -> str:
    return base64.urlsafe_b64encode(said).rstrip(b"=").decode()


def _decoded(said: str) -> bytes:
    return base64.urlsafe_b64decode(said + "=" * (-len(said) % 4))
