"""Which approvals the user of a chat may answer there."""

import orjson
import pytest

from milepost.runtime.chat import approver_at, may_answer
from milepost.store.approvals import ApprovalRow
from milepost.store.conversations import ScopeKey

ANN = ScopeKey("acme", "whatsapp", "c1", "ann")


def asked(requester: str | None = "ann", **terms: object) -> ApprovalRow:
    """Return a question on these terms, of a run that the bridge's key made for `requester`."""
    return ApprovalRow(
        id="apr_1",
        tenant="acme",
        run_id="run_1",
        session_id="ses_1",
        agent="clerk",
        user=requester,
        call_id="call_1_0",
        tool="charge",
        arguments="{}",
        digest="sha256:1",
        preview="charge()",
        reason="policy: ask charge",
        status="pending",
        required=1,
        decided_by=None,
        decision=None,
        comment=None,
        decided_ms=None,
        created_ms=0,
        expires_ms=60_000,
        terms=orjson.dumps(terms).decode(),
        requester=requester,
        made_by="key_bridge",
    )


def test_without_terms_users_answer_for_their_own_runs() -> None:
    assert may_answer(asked(), ANN)


@pytest.mark.parametrize(
    "named", ["user:ann", "key:key_bridge", "scope:approvals:decide", "channel:sms:ann"]
)
def test_where_approvers_are_named_the_chat_must_be_among_them(named: str) -> None:
    assert not may_answer(asked(approvers=[named]), ANN)
    assert may_answer(asked(approvers=[named, "channel:whatsapp:ann"]), ANN)


def test_nobody_approves_their_own_where_that_is_forbidden_and_others_may() -> None:
    assert not may_answer(asked(self_approval=False), ANN)
    assert may_answer(asked(requester="bob", self_approval=False), ANN)
    assert not may_answer(asked(self_approval=False, approvers=["channel:whatsapp:ann"]), ANN)


def test_a_user_has_one_voice_at_the_chat_and_with_a_key_of_their_own() -> None:
    assert approver_at(ANN).person == "user:ann"
    assert approver_at(ANN).names == {"channel:whatsapp:ann"}
