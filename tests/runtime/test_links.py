"""Links: what they say, and that nobody else can have said it."""

from dataclasses import replace

import orjson
import pytest

from milepost.runtime.links import NONCE_MS, TOKEN_CHARS_MAX, Links, may_answer
from milepost.runtime.secrets import Vault
from milepost.store.approvals import ApprovalRow
from tests.store.making import NOW_MS
from tests.store.making_webhooks import a_webhook

PUBLIC = "https://agents.example/milepost/"
LINKS = Links(Vault("a secret key of the tests' own"), PUBLIC)
ROW = ApprovalRow(
    "apr_1", "acme", "run_1", "ses_1", "clerk", None, "call_1_0", "send_email", "{}", "sha256:1",
    "send_email()", "policy", "pending", 1, None, None, None, None, NOW_MS, NOW_MS + 60_000,
)  # fmt: skip


def token_of(links: Links = LINKS, decision: str = "approve") -> str:
    """Return the token of a link."""
    offered = links.of(ROW, a_webhook(id="whk_1"))
    assert offered is not None
    return offered[decision].rpartition("/")[2]


def test_a_link_says_what_it_stands_for() -> None:
    link = LINKS.read(token_of(decision="deny"))

    assert link is not None
    assert (link.tenant, link.approval_id, link.decision) == ("acme", "apr_1", "deny")
    assert (link.digest, link.webhook_id, link.expires_ms) == ("sha256:1", "whk_1", ROW.expires_ms)


def test_links_begin_with_the_public_url_and_pages_are_of_its_origin() -> None:
    offered = LINKS.of(ROW, a_webhook())

    assert offered is not None
    assert offered["approve"].startswith("https://agents.example/milepost/approve/")
    assert LINKS.origin == "https://agents.example"


def test_no_byte_of_a_link_can_be_changed() -> None:
    token = token_of()
    swapped = [
        token[:n] + ("A" if each != "A" else "B") + token[n + 1 :]
        for n, each in enumerate(token[:-1])  # The last has bits that stand for nothing.
    ]

    assert [each for each in swapped if LINKS.read(each) is not None] == []


@pytest.mark.parametrize("token", ["", ".", "a.b", "x" * (TOKEN_CHARS_MAX + 1), "é.ü"])
def test_what_is_no_link_says_nothing(token: str) -> None:
    assert LINKS.read(token) is None


def test_another_key_signs_other_links() -> None:
    other = Links(Vault("another key, and just as long"), PUBLIC)

    assert other.read(token_of()) is None


def test_without_key_or_url_there_are_no_links() -> None:
    for links in (Links(Vault(None), PUBLIC), Links(Vault("a secret key that is long"), None)):
        assert links.of(ROW, a_webhook()) is None
    assert Links(Vault(None), PUBLIC).read(token_of()) is None
    assert Links(Vault(None), None).origin is None


def test_nothing_is_offered_for_what_cannot_be_answered() -> None:
    hook = a_webhook()

    assert LINKS.of(replace(ROW, status="approved"), hook) is None
    assert LINKS.of(replace(ROW, kind="outcome"), hook) is None
    assert LINKS.of(ROW, replace(hook, approval_links=0)) is None


def test_a_nonce_is_of_one_link_and_of_a_quarter_of_an_hour() -> None:
    token, other = token_of(), token_of(decision="deny")
    nonce = LINKS.nonce(token, NOW_MS)

    assert LINKS.knows(nonce, token, NOW_MS + NONCE_MS - 1)
    assert not LINKS.knows(nonce, token, NOW_MS + NONCE_MS)
    assert not LINKS.knows(nonce, other, NOW_MS)
    assert LINKS.nonce(token, NOW_MS) != nonce
    for forged in ("", "a.b.c", nonce[:-2], nonce.replace(str(NOW_MS + NONCE_MS), "9" * 13)):
        assert not LINKS.knows(forged, token, NOW_MS)


@pytest.mark.parametrize(
    ("terms", "approver", "answers"),
    [
        ({}, None, True),
        ({"approvers": ["user:ann"]}, None, False),
        ({"approvers": ["user:ann"]}, "ann", True),
        ({"approvers": ["user:ann"]}, "bob", False),
        ({"approvers": ["scope:finance"]}, "ann", False),
        ({"self_approval": False}, None, False),
        ({"self_approval": False}, "ann", True),
        ({"self_approval": False}, "dan", False),
    ],
)
def test_terms_say_whose_links_may_answer(
    terms: dict[str, object], approver: str | None, *, answers: bool
) -> None:
    row = replace(ROW, terms=orjson.dumps(terms).decode(), requester="dan", made_by="key_1")

    assert may_answer(row, approver) is answers
