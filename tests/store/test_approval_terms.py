"""Approvals by terms: who may answer, what, how often, and what silence becomes."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from milepost.core.approvers import OPEN_ID, Approver
from milepost.core.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from milepost.core.policy import Terms
from milepost.store import (
    approval_rows,
    approval_times,
    approvals,
    grants,
    keys,
    policies,
    schema,
    votes,
    withdrawals,
)
from milepost.store.approval_rows import ApprovalFilter, ApprovalRow
from milepost.store.approvals import Answer, Decided, Decision, Remember
from milepost.store.dialect import text
from milepost.store.grants import GrantFilter
from milepost.store.keys import NewKey
from milepost.store.records import NewApproval, Page
from milepost.store.store import Store
from milepost.store.withdrawals import Withdrawal
from milepost.store.work import Rows, Statement, Work
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_park,
    an_approval,
    an_id,
    asking,
    held,
    letters,
    status,
)

LATER_MS = NOW_MS + 5
ANN, BOB, CAS = (Approver(f"key_{name}", name) for name in ("ann", "bob", "cas"))
DIGEST = "sha256:1"


def says(answer: Answer, who: Approver, **more: Any) -> Decision:
    return Decision(answer, str(who.key), who=who, **{"digest": DIGEST, **more})


async def decide(store: Store, asked: NewApproval, decision: Decision) -> Decided:
    return await store.write(approvals.decide(TENANT, asked.id, decision, LATER_MS))


async def refused(store: Store, asked: NewApproval, decision: Decision) -> str:
    """Return the code with which the decision is refused, and leaves no trace."""
    before = await row_of(store, asked)
    with pytest.raises((ConflictError, InvalidError, ForbiddenError)) as caught:
        await decide(store, asked, decision)
    assert await row_of(store, asked) == before
    return caught.value.code


async def row_of(store: Store, asked: NewApproval) -> ApprovalRow:
    return await store.read(approvals.find(TENANT, asked.id))


async def told(store: Store, asked: NewApproval) -> list[tuple[str, dict[str, Any]]]:
    found = await letters(store, asked.run_id)
    return [(letter.kind, orjson.loads(letter.data)) for letter in found]


async def a_key(store: Store, key_id: str, subject: str, tenant: str = TENANT) -> None:
    key = NewKey(key_id, tenant, key_id, an_id("hash"), "", "[]", subject, NOW_MS, None)
    await store.write(keys.create(key))


async def revoke(store: Store, key_id: str, tenant: str = TENANT) -> None:
    await store.write(keys.revoke(tenant, key_id, LATER_MS))


# --- What may be answered -------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["happened", "not_happened", "stop"])
async def test_a_call_that_may_be_made_has_no_outcome_yet(store: Store, answer: Answer) -> None:
    asked = await asking(store)

    assert await refused(store, asked, says(answer, ANN)) == "wrong_decision"


@pytest.mark.parametrize("answer", ["approve", "deny"])
async def test_what_came_of_a_call_is_no_matter_of_yes_and_no(store: Store, answer: Answer) -> None:
    asked = await asking(store, kind="outcome")

    with pytest.raises(InvalidError, match="answer happened or not_happened or stop"):
        await decide(store, asked, says(answer, ANN))


@pytest.mark.parametrize("answer", ["happened", "not_happened", "stop"])
async def test_what_came_of_a_call_is_told_to_its_run(store: Store, answer: Answer) -> None:
    asked = await asking(store, kind="outcome")
    result = '{"id":7}' if answer == "happened" else None

    decided = await decide(store, asked, says(answer, ANN, result=result))

    [(kind, said)] = await told(store, asked)
    assert (decided.approval.status, decided.approval.decision) == ("answered", answer)
    assert (kind, said["decision"]) == ("approval", answer)
    assert said["result"] == ({"id": 7} if result else None)


# --- Who may answer -------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["approve", "deny"])
async def test_only_those_who_are_named_may_answer(store: Store, answer: Answer) -> None:
    terms = Terms(approvers=("user:ann", "scope:finance"))
    asked = await asking(store, terms=terms)

    assert await refused(store, asked, says(answer, BOB)) == "not_an_approver"
    assert await refused(store, asked, Decision(answer, "user:ann")) == "not_an_approver"
    by_scope = replace(BOB, scopes=frozenset({"scope:finance"}))
    assert (await decide(store, asked, says(answer, by_scope))).run_status == "queued"


@pytest.mark.parametrize(
    ("made_by", "requester", "who"),
    [
        ("key_ann", None, ANN),
        ("key_other", "ann", ANN),
        ("key_2nd", None, ANN),
        (None, None, BOB),
        (None, "ann", BOB),
    ],
)
async def test_whoever_may_have_asked_does_not_approve_but_may_deny(
    store: Store, made_by: str | None, requester: str | None, who: Approver
) -> None:
    await a_key(store, "key_2nd", "ann")
    terms = Terms(self_approval=False)
    asked = await asking(store, terms=terms, made_by=made_by, requester=requester)

    assert await refused(store, asked, says("approve", who)) == "self_approval"
    assert (await decide(store, asked, says("deny", who))).approval.status == "denied"


@pytest.mark.parametrize("speakers", [("key_ann",), ("key_2nd", "key_cas"), (OPEN_ID,)])
async def test_whoever_told_the_run_something_does_not_approve_but_may_deny(
    store: Store, speakers: tuple[str, ...]
) -> None:
    await a_key(store, "key_2nd", "ann")
    own = {"made_by": "key_bob", "requester": "bob", "speakers": speakers}
    asked = await asking(store, terms=Terms(self_approval=False), **own)
    anybody_s = await asking(store, **own)

    assert await refused(store, asked, says("approve", ANN)) == "self_approval"
    assert (await decide(store, asked, says("deny", ANN))).approval.status == "denied"
    assert (await decide(store, anybody_s, says("approve", ANN))).approval.status == "approved"


async def test_somebody_else_may_approve_what_is_not_their_own(store: Store) -> None:
    terms = Terms(self_approval=False)
    asked = await asking(store, terms=terms, made_by="key_ann", requester="ann")

    assert (await decide(store, asked, says("approve", BOB))).approval.status == "approved"


async def test_two_keys_of_one_person_are_one_vote(store: Store) -> None:
    asked = await asking(store, terms=Terms(required=2))

    first = await decide(store, asked, says("approve", ANN))
    again = await decide(store, asked, says("approve", replace(ANN, key="key_2nd")))
    second = await decide(store, asked, says("approve", BOB))

    assert (first.approval.status, first.approval.change) == ("pending", "voted")
    assert (again.approval.status, again.repeated) == ("pending", True)
    assert (second.approval.status, second.approval.version) == ("approved", 3)


async def test_votes_are_kept_with_who_gave_them(store: Store) -> None:
    asked = await asking(store, terms=Terms(required=3))
    await decide(store, asked, says("approve", ANN, comment="fine"))
    await decide(store, asked, says("approve", BOB))

    given = await store.read(votes.of_many(TENANT, [asked.id]))

    assert [(vote.voter, vote.actor, vote.comment) for vote in given] == [
        ("user:ann", "key_ann", "fine"),
        ("user:bob", "key_bob", None),
    ]


async def test_a_vote_by_a_key_that_was_revoked_counts_no_more_and_may_be_given_anew(
    store: Store,
) -> None:
    await a_key(store, "key_ann", "ann")
    asked = await asking(store, terms=Terms(required=2))
    await decide(store, asked, says("approve", ANN))
    await revoke(store, "key_ann")

    bobs = await decide(store, asked, says("approve", BOB))
    anns = await decide(store, asked, says("approve", replace(ANN, key="key_2nd")))

    assert (bobs.approval.status, bobs.repeated) == ("pending", False)
    assert (anns.approval.status, anns.repeated) == ("approved", False)


async def test_what_was_decided_stays_so_whoever_is_revoked_later(store: Store) -> None:
    await a_key(store, "key_ann", "ann")
    asked = await asking(store)
    await decide(store, asked, says("approve", ANN))
    await revoke(store, "key_ann")

    again = await decide(store, asked, says("approve", replace(ANN, key="key_2nd")))

    assert (again.approval.status, again.repeated) == ("approved", True)
    [vote] = await store.read(votes.of_many(TENANT, [asked.id]))
    assert not again.approval.has_lost(vote)


@pytest.mark.parametrize("key", ["key_bob", "key_ann at another tenant's"])
async def test_a_vote_stands_whosever_else_key_is_revoked(store: Store, key: str) -> None:
    tenant = "globex" if "another" in key else TENANT
    await a_key(store, key.partition(" ")[0], "ann", tenant=tenant)
    asked = await asking(store, terms=Terms(required=2))
    await decide(store, asked, says("approve", ANN))
    await revoke(store, key.partition(" ")[0], tenant=tenant)

    assert (await decide(store, asked, says("approve", CAS))).approval.status == "approved"


async def test_one_who_votes_on_several_questions_votes_on_each(store: Store) -> None:
    questions = [await asking(store, terms=Terms(required=2)) for _ in range(2)]
    for asked in questions:
        await decide(store, asked, says("approve", ANN))

    given = await store.read(votes.of_many(TENANT, [questions[0].id]))
    assert [(vote.approval_id, vote.voter) for vote in given] == [(questions[0].id, "user:ann")]
    for asked in questions:
        assert (await decide(store, asked, says("approve", BOB))).approval.status == "approved"


# --- Remembering ----------------------------------------------------------------------------


@pytest.mark.parametrize(("same", "digest"), [(True, DIGEST), (False, None)])
async def test_a_yes_may_hold_on_for_the_session(
    store: Store, same: bool, digest: str | None
) -> None:
    asked = await asking(store)

    await decide(store, asked, says("approve", ANN, remember=Remember("grt_1", 1_000, same)))

    (grant,) = await store.read(grants.search(TENANT, GrantFilter(), Page(5)))
    assert (grant.id, grant.tool, grant.session_id) == ("grt_1", "send_email", asked.session_id)
    assert (grant.digest, grant.approval_id, grant.granted_by) == (digest, asked.id, "key_ann")
    assert (grant.created_ms, grant.expires_ms) == (LATER_MS, LATER_MS + 1_000)


async def test_that_another_yes_holds_on_says_nothing_of_this_one(store: Store) -> None:
    claim = await held(store)
    asked, other = an_approval(claim), an_approval(claim, call_id="call_1_1")
    await store.append(a_park(claim, approvals=(asked, other)))
    await decide(store, other, says("approve", ANN, remember=Remember("grt_1", 1_000, True)))
    await decide(store, asked, says("approve", ANN))

    lasting = says("approve", ANN, remember=Remember("grt_2", 1_000, True))

    assert await refused(store, asked, lasting) == "approval_decided"
    given = await store.read(grants.search(TENANT, GrantFilter(), Page(5)))
    assert [each.id for each in given] == ["grt_1"]


async def test_one_yes_is_taken_back_and_no_other(store: Store) -> None:
    for grant_id in ("grt_1", "grt_2"):
        asked, lasting = await asking(store), Remember(grant_id, 1_000, True)
        await decide(store, asked, says("approve", ANN, remember=lasting))

    with pytest.raises(NotFoundError):
        await store.write(grants.revoke("globex", "grt_1", "key_bob", LATER_MS))
    row, is_new = await store.write(grants.revoke(TENANT, "grt_1", "key_bob", LATER_MS))
    again = await store.write(grants.revoke(TENANT, "grt_1", "key_cas", LATER_MS + 1))

    assert (row.revoked_by, row.revoked_ms, is_new) == ("key_bob", LATER_MS, True)
    assert again == (row, False)
    assert (await store.read(grants.find(TENANT, "grt_2"))).revoked_ms is None


async def test_a_yes_holds_on_no_longer_than_the_key_that_gave_it(store: Store) -> None:
    sessions = dict[str, str]()
    for who in (ANN, BOB):
        key, asked = str(who.key), await asking(store)
        await a_key(store, key, str(who.subject))
        lasting = Remember(f"grt_{who.subject}", 2**40, False)
        await decide(store, asked, says("approve", who, remember=lasting))
        sessions[key] = asked.session_id

    await revoke(store, "key_ann")

    active, over = [
        await store.read(grants.search(TENANT, GrantFilter(active=wanted), Page(5)))
        for wanted in (True, False)
    ]
    assert [[each.id for each in found] for found in (active, over)] == [["grt_bob"], ["grt_ann"]]
    assert [each.giver_revoked_ms for each in (*active, *over)] == [None, LATER_MS]
    for key, left in (("key_ann", []), ("key_bob", ["grt_bob"])):
        standing = await store.read(policies.standing(TENANT, sessions[key]))
        assert [each.id for each in standing.grants] == left


async def test_one_of_several_votes_allows_nothing_more(store: Store) -> None:
    asked = await asking(store, terms=Terms(required=2))

    decision = says("approve", ANN, remember=Remember("grt_1", 1_000, True))

    assert await refused(store, asked, decision) == "not_rememberable"
    assert await store.read(grants.search(TENANT, GrantFilter(), Page(5))) == []


# --- Silence --------------------------------------------------------------------------------

UPWARD = Terms(
    approvers=("user:ann",), ttl_s=60.0, on_timeout="escalate", escalate_to=("user:cas",)
)


async def test_silence_passes_the_question_on_once(store: Store) -> None:
    asked = await asking(store, terms=replace(UPWARD, required=2, remind_s=5.0), expires_ms=1)

    runs_told = await store.write(approval_times.expire_due(LATER_MS, 10))

    row = await row_of(store, asked)
    [(kind, said)] = await told(store, asked)
    ((clock_ms,),) = await store.read(_clock())
    assert runs_told == [(TENANT, asked.run_id)]
    assert (row.status, row.escalated, row.change, row.version) == ("pending", 1, "escalated", 2)
    assert row.terms_shown()["approvers"] == ["user:cas"]
    assert clock_ms < row.expires_ms <= clock_ms + 60_000
    assert row.remind_ms is not None
    assert row.remind_ms <= clock_ms + 5_000
    assert kind == "approval_escalated"
    assert said == {
        "approval_id": asked.id,
        "call_id": asked.call_id,
        "approvers": ["user:cas"],
        "expires_at_ms": row.expires_ms,
    }


def _clock() -> Work[Rows]:
    rows: Rows = yield approval_rows.clock()
    return rows


async def test_the_votes_of_those_who_are_no_longer_asked_are_void(store: Store) -> None:
    asked = await asking(store, terms=replace(UPWARD, required=2, ttl_s=0.05))
    await decide(store, asked, says("approve", ANN))
    await store.write(_make_late(asked))

    await store.write(approval_times.expire_due(LATER_MS, 10))

    assert await store.read(votes.of_many(TENANT, [asked.id])) == []


async def test_silence_passes_on_no_other_question_and_voids_no_vote_on_it(store: Store) -> None:
    terms = replace(UPWARD, required=2)
    passed_on, open_still = [await asking(store, terms=terms) for _ in range(2)]
    for asked in (passed_on, open_still):
        await decide(store, asked, says("approve", ANN))
    over = await asking(store, expires_ms=1)
    await store.write(_make_late(passed_on))

    await store.write(approval_times.expire_due(LATER_MS, 10))

    rows = [await row_of(store, asked) for asked in (passed_on, open_still, over)]
    assert [(row.status, row.escalated) for row in rows] == [
        ("pending", 1), ("pending", 0), ("expired", 0),
    ]  # fmt: skip
    given = await store.read(votes.of_many(TENANT, [passed_on.id, open_still.id]))
    assert [vote.approval_id for vote in given] == [open_still.id]


async def test_whoever_was_asked_first_may_answer_no_more(store: Store) -> None:
    asked = await asking(store, terms=UPWARD, expires_ms=1)
    await store.write(approval_times.expire_due(LATER_MS, 10))

    assert await refused(store, asked, says("approve", ANN)) == "not_an_approver"
    assert (await decide(store, asked, says("approve", CAS))).approval.status == "approved"


async def test_a_second_silence_is_a_no(store: Store) -> None:
    asked = await asking(store, terms=replace(UPWARD, ttl_s=0.001), expires_ms=1)
    await store.write(approval_times.expire_due(LATER_MS, 10))
    await store.write(_make_late(asked))

    await store.write(approval_times.expire_due(LATER_MS, 10))

    (_, last) = (await told(store, asked))[-1]
    assert (await row_of(store, asked)).status == "expired"
    assert last["then"] == "deny"


_LATE = Statement(
    schema.approvals.update()
    .where(schema.approvals.c.id == text("approval_id"))
    .values(expires_ms=1)
)


def _make_late(asked: NewApproval) -> Work[None]:
    yield _LATE(approval_id=asked.id)


async def test_silence_may_be_the_end_of_the_run(store: Store) -> None:
    asked = await asking(store, terms=Terms(on_timeout="fail"), expires_ms=1)

    await store.write(approval_times.expire_due(LATER_MS, 10))

    [(kind, said)] = await told(store, asked)
    assert (kind, said["then"]) == ("approval_expired", "fail")


async def test_people_are_reminded_once(store: Store) -> None:
    asked = await asking(store, terms=Terms(remind_s=1.0))
    await asking(store)

    reminded = await store.write(approval_times.remind_due(LATER_MS, 10))
    again = await store.write(approval_times.remind_due(LATER_MS, 10))

    assert [row.id for row in reminded] == [asked.id]
    assert again == []
    row = await row_of(store, asked)
    assert (row.change, row.remind_ms, row.version) == ("reminded", None, 2)
    assert await letters(store, asked.run_id) == []


async def test_people_are_reminded_of_so_many_at_a_time(store: Store) -> None:
    asked = [await asking(store, terms=Terms(remind_s=1.0)) for _ in range(2)]

    reminded = [await store.write(approval_times.remind_due(LATER_MS, 1)) for _ in range(3)]

    assert [len(rows) for rows in reminded] == [1, 1, 0]
    assert {row.id for rows in reminded for row in rows} == {each.id for each in asked}


async def test_nobody_is_reminded_of_what_is_settled_or_too_late(store: Store) -> None:
    settled = await asking(store, terms=Terms(remind_s=1.0))
    await decide(store, settled, says("deny", ANN))
    await asking(store, terms=Terms(remind_s=1.0), expires_ms=1)

    assert await store.write(approval_times.remind_due(LATER_MS, 10)) == []


# --- Withdrawing ----------------------------------------------------------------------------


async def test_a_question_may_be_taken_back_which_means_no(store: Store) -> None:
    asked = await asking(store)
    taking = Withdrawal("key_ann", "not needed", "ann")

    taken = await store.write(withdrawals.withdraw(TENANT, asked.id, taking, LATER_MS))
    again = await store.write(withdrawals.withdraw(TENANT, asked.id, taking, LATER_MS))

    [(kind, said)] = await told(store, asked)
    assert (taken.approval.status, taken.run_status) == ("withdrawn", "queued")
    assert (again.approval, again.repeated) == (taken.approval, True)
    assert kind == "approval_withdrawn"
    assert said == {
        "approval_id": asked.id,
        "call_id": asked.call_id,
        "by": "ann",
        "reason": "not needed",
    }
    assert await refused(store, asked, says("approve", BOB)) == "approval_withdrawn"


async def test_what_is_settled_cannot_be_taken_back(store: Store) -> None:
    decided, expired = await asking(store), await asking(store, expires_ms=1)
    await decide(store, decided, says("approve", ANN))

    for asked, code in ((decided, "approval_decided"), (expired, "approval_expired")):
        work = withdrawals.withdraw(TENANT, asked.id, Withdrawal("key_bob"), LATER_MS)
        with pytest.raises(ConflictError) as caught:
            await store.write(work)
        assert caught.value.code == code


async def test_nobody_takes_back_another_tenant_s_question(store: Store) -> None:
    asked = await asking(store)

    with pytest.raises(NotFoundError):
        await store.write(withdrawals.withdraw("other", asked.id, Withdrawal("eve"), LATER_MS))
    assert await status(store, asked.run_id) == "waiting"


# --- Finding --------------------------------------------------------------------------------


async def test_one_finds_what_one_may_approve(store: Store) -> None:
    await a_key(store, "key_2nd", "ann")
    anybody_s = await asking(store)
    ann_s = await asking(store, terms=Terms(approvers=("user:ann",)))
    await asking(store, terms=Terms(approvers=("user:bob",)))
    for own in ({"made_by": "key_2nd"}, {"requester": "ann"}, {}):
        changes = {"made_by": "key_x", **own} if own else {}
        await asking(store, terms=Terms(self_approval=False), **changes)
    await asking(store, terms=Terms(self_approval=False), made_by=OPEN_ID)
    for speakers in (("key_cas", "key_ann"), ("key_2nd",), (OPEN_ID,)):
        bob_s = {"made_by": "key_bob", "speakers": speakers}
        await asking(store, terms=Terms(self_approval=False), **bob_s)
    told = {"made_by": "key_bob", "speakers": ("key_cas",)}
    other_s = await asking(store, terms=Terms(self_approval=False), **told)
    who = replace(ANN, own_keys=await store.read(keys.of_subject(TENANT, "ann")))
    mine = ApprovalFilter(mine=who)

    found = await store.read(approvals.search(TENANT, mine, Page(10, ascending=True)))

    assert [row.id for row in found] == [anybody_s.id, ann_s.id, other_s.id]
    every = await store.read(approvals.search(TENANT, ApprovalFilter(), Page(10, ascending=True)))
    assert [row.id for row in every if mine.fits(row)] == [row.id for row in found]


async def test_questions_are_found_by_kind_and_time(store: Store) -> None:
    first = await asking(store, kind="outcome", created_ms=NOW_MS)
    second = await asking(store, created_ms=NOW_MS + 10)

    async def ids(**wanted: Any) -> list[str]:
        found = await store.read(approvals.search(TENANT, ApprovalFilter(**wanted), Page(9)))
        return [row.id for row in found]

    assert await ids(kind="outcome") == [first.id]
    assert await ids(created_after_ms=NOW_MS) == [second.id]
    assert await ids(created_before_ms=NOW_MS + 10) == [first.id]


async def test_changes_are_read_on_from_where_the_last_page_ended(store: Store) -> None:
    asked = [await asking(store) for _ in range(3)]
    await decide(store, asked[0], says("deny", ANN))

    everything = await store.read(approval_rows.changed(TENANT, 0))
    behind = await store.read(approval_rows.changed(TENANT, NOW_MS, asked[1].id))

    assert everything == [
        (asked[1].id, 1, NOW_MS),
        (asked[2].id, 1, NOW_MS),
        (asked[0].id, 2, LATER_MS),
    ]
    assert behind == everything[1:]
    assert await store.read(approval_rows.changed("other", 0)) == []
