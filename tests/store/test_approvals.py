"""Approvals: one answer counts, everybody else is told, and the run hears it."""

from dataclasses import replace
from typing import Literal

import orjson
import pytest

from milepost.core.errors import ConflictError, InvalidError, NotFoundError
from milepost.core.policy import PLAIN
from milepost.store import approval_times, approvals, log, runs, schema
from milepost.store.approvals import (
    ApprovalFilter,
    ApprovalRow,
    Decided,
    DecidedError,
    Decision,
    Edit,
)
from milepost.store.dialect import number, text
from milepost.store.records import InboxMovedError, NewApproval, Page
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_finish,
    a_park,
    an_append,
    an_approval,
    asking,
    held,
    letters,
    next_claim,
    status,
)

LATER_MS = NOW_MS + 5
EDIT = Edit('{"to":"z@b.c"}', "sha256:2", "send_email(to='z@b.c')")


async def decide(store: Store, asked: NewApproval, decision: Decision) -> Decided:
    return await store.write(approvals.decide(TENANT, asked.id, decision, LATER_MS))


async def refused(store: Store, asked: NewApproval, decision: Decision) -> str:
    """Return the code with which the decision is refused."""
    with pytest.raises((ConflictError, InvalidError)) as caught:
        await decide(store, asked, decision)
    return caught.value.code


_REQUIRE = Statement(
    schema.approvals.update()
    .where(schema.approvals.c.id == text("approval_id"))
    .values(required=number("required"))
)


def requiring(asked: NewApproval, required: int) -> Work[None]:
    yield _REQUIRE(approval_id=asked.id, required=required)


PLAIN_TERMS = orjson.dumps(PLAIN).decode()


async def test_a_question_is_found_as_it_was_asked(store: Store) -> None:
    asked = await asking(store, user="ann")

    row = await store.read(approvals.find(TENANT, asked.id))

    assert row == ApprovalRow(
        id=asked.id,
        tenant=TENANT,
        run_id=asked.run_id,
        session_id=asked.session_id,
        agent="clerk",
        user="ann",
        call_id="call_1_0",
        tool="send_email",
        arguments='{"to":"a@b.c"}',
        digest="sha256:1",
        preview="send_email(to='a@b.c')",
        reason="policy: ask send_*",
        status="pending",
        required=1,
        decided_by=None,
        decision=None,
        comment=None,
        decided_ms=None,
        created_ms=asked.created_ms,
        expires_ms=asked.expires_ms,
        terms=PLAIN_TERMS,
        requester=asked.requester,
        changed_ms=asked.created_ms,
    )


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (ApprovalFilter(), "ba"),
        (ApprovalFilter(status="pending"), "b"),
        (ApprovalFilter(status="denied"), "a"),
        (ApprovalFilter(tool="delete"), "b"),
        (ApprovalFilter(agent="clerk", user="ann"), "a"),
        (ApprovalFilter(agent="other"), ""),
    ],
)
async def test_a_search_finds_what_was_asked_for(
    store: Store, wanted: ApprovalFilter, found: str
) -> None:
    a = await asking(store, user="ann")
    b = await asking(store, tool="delete")
    await decide(store, a, Decision("deny", "bob"))

    rows = await store.read(approvals.search(TENANT, wanted, Page(10)))

    assert "".join({a.id: "a", b.id: "b"}[row.id] for row in rows) == found


async def test_a_search_by_run_or_session_finds_its_questions(store: Store) -> None:
    asked = await asking(store)
    await asking(store)

    for wanted in (
        ApprovalFilter(run_id=asked.run_id),
        ApprovalFilter(session_id=asked.session_id),
    ):
        (row,) = await store.read(approvals.search(TENANT, wanted, Page(10)))
        assert row.id == asked.id


async def test_pages_of_approvals_go_on_where_the_last_ended(store: Store) -> None:
    asked = [await asking(store) for _ in range(3)]

    page = Page(1, after=asked[2].id)
    rows = await store.read(approvals.search(TENANT, ApprovalFilter(), page))

    assert [row.id for row in rows] == [asked[1].id, asked[0].id]


async def test_another_tenant_s_approval_looks_as_if_it_were_not_there(store: Store) -> None:
    asked = await asking(store)

    for work in (
        approvals.find("other", asked.id),
        approvals.decide("other", asked.id, Decision("approve", "eve"), LATER_MS),
    ):
        with pytest.raises(NotFoundError) as caught:
            await store.write(work)
        assert caught.value.code == "approval_not_found"
    assert await store.read(approvals.search("other", ApprovalFilter(), Page(9))) == []
    assert await letters(store, asked.run_id) == []


# --- Deciding -------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "becomes"), [("approve", "approved"), ("deny", "denied")])
async def test_a_decision_is_written_down_and_queues_the_run(
    store: Store, answer: Literal["approve", "deny"], becomes: str
) -> None:
    asked = await asking(store)

    decided = await decide(store, asked, Decision(answer, "ann", "fine"))

    row = decided.approval
    assert (row.status, row.decision, row.decided_by) == (becomes, answer, "ann")
    assert (row.comment, row.decided_ms) == ("fine", LATER_MS)
    assert (decided.run_status, decided.repeated) == ("queued", False)
    assert await store.read(approvals.find(TENANT, asked.id)) == row
    assert (await next_claim(store)).run_id == asked.run_id


async def test_the_run_is_told_all_that_it_needs(store: Store) -> None:
    asked = await asking(store)

    await decide(store, asked, Decision("deny", "ann", "no!"))

    (letter,) = await letters(store, asked.run_id)
    assert letter.kind == "approval"
    assert orjson.loads(letter.data) == {
        "approval_id": asked.id,
        "call_id": "call_1_0",
        "decision": "deny",
        "by": "ann",
        "comment": "no!",
        "arguments": None,
        "digest": None,
        "result": None,
    }


async def test_a_run_that_still_works_gets_the_answer_into_its_inbox(store: Store) -> None:
    claim = await held(store)
    asked = an_approval(claim)
    await store.append(an_append(claim, approvals=(asked,)))

    decided = await decide(store, asked, Decision("approve", "ann"))

    assert decided.run_status == "running"
    assert len(await letters(store, claim.run_id)) == 1
    with pytest.raises(InboxMovedError):
        await store.append(a_park(claim, head=3))


async def test_an_edit_replaces_the_call_and_the_run_is_told_so(store: Store) -> None:
    asked = await asking(store)

    decided = await decide(store, asked, Decision("approve", "ann", edit=EDIT))

    row = decided.approval
    assert (row.arguments, row.digest, row.preview) == (EDIT.arguments, EDIT.digest, EDIT.preview)
    (letter,) = await letters(store, asked.run_id)
    said = orjson.loads(letter.data)
    assert (said["arguments"], said["digest"]) == ({"to": "z@b.c"}, EDIT.digest)


async def test_the_second_to_decide_is_told_who_was_first(store: Store) -> None:
    asked = await asking(store)
    first = await decide(store, asked, Decision("approve", "ann"))

    with pytest.raises(DecidedError, match="was approved by ann") as caught:
        await decide(store, asked, Decision("approve", "bob"))

    assert caught.value.code == "approval_decided"
    assert caught.value.winner == first.approval
    assert len(await letters(store, asked.run_id)) == 1


@pytest.mark.parametrize(
    "decision",
    [
        Decision("approve", "ann"),
        Decision("approve", "ann", "another comment"),
        Decision("approve", "ann", digest="sha256:1"),
    ],
)
async def test_repeating_one_s_own_decision_changes_nothing(
    store: Store, decision: Decision
) -> None:
    asked = await asking(store)
    first = await decide(store, asked, Decision("approve", "ann"))

    again = await decide(store, asked, decision)

    assert again == Decided(first.approval, repeated=True)
    assert len(await letters(store, asked.run_id)) == 1


async def test_repeating_one_s_own_edit_changes_nothing(store: Store) -> None:
    asked = await asking(store)
    decision = Decision("approve", "ann", digest="sha256:1", edit=EDIT)
    first = await decide(store, asked, decision)

    assert await decide(store, asked, decision) == Decided(first.approval, repeated=True)


@pytest.mark.parametrize(
    "decision", [Decision("deny", "ann"), Decision("approve", "ann", edit=EDIT)]
)
async def test_nobody_may_change_one_s_mind(store: Store, decision: Decision) -> None:
    asked = await asking(store)
    await decide(store, asked, Decision("approve", "ann"))

    assert await refused(store, asked, decision) == "approval_decided"


async def test_a_decision_on_another_call_than_the_present_one_is_refused(store: Store) -> None:
    asked = await asking(store)

    code = await refused(store, asked, Decision("approve", "ann", digest="sha256:0"))

    assert code == "digest_mismatch"
    assert await status(store, asked.run_id) == "waiting"


async def test_a_decision_after_its_time_is_refused_even_before_anybody_swept(
    store: Store,
) -> None:
    asked = await asking(store, expires_ms=1)

    assert await refused(store, asked, Decision("approve", "ann")) == "approval_expired"
    assert (await store.read(approvals.find(TENANT, asked.id))).status == "pending"
    assert await letters(store, asked.run_id) == []


async def test_a_decision_on_a_run_that_is_over_is_refused(store: Store) -> None:
    claim = await held(store)
    asked = an_approval(claim)
    await store.append(an_append(claim, approvals=(asked,)))
    await store.append(a_finish(claim, head=3))

    assert await refused(store, asked, Decision("approve", "ann")) == "approval_withdrawn"


async def test_what_a_run_takes_back_while_it_goes_on_is_open_no_more(store: Store) -> None:
    """What was answered stays as it was answered, and is read before anything is taken back."""
    claim = await held(store)
    skipped, answered = (an_approval(claim, id=f"apr_{name}") for name in ("skipped", "answered"))
    await store.append(an_append(claim, approvals=(skipped, answered)))
    await decide(store, answered, Decision("approve", "ann"))

    taken = (skipped.id, answered.id)
    taking = an_append(claim, head=claim.head + 1, withdrawn=taken)
    with pytest.raises(InboxMovedError):
        await store.append(taking)
    await store.append(replace(taking, inbox_seen=1))

    rows = [await store.read(approvals.find(TENANT, approval_id)) for approval_id in taken]
    assert [(row.status, row.version) for row in rows] == [("withdrawn", 2), ("approved", 2)]
    assert await refused(store, skipped, Decision("approve", "ann")) == "approval_withdrawn"


# --- Several votes --------------------------------------------------------------------------


async def test_two_must_agree_where_two_are_required(store: Store) -> None:
    asked = await asking(store)
    await store.write(requiring(asked, 2))

    first = await decide(store, asked, Decision("approve", "ann", digest="sha256:1"))
    again = await decide(store, asked, Decision("approve", "ann", digest="sha256:1"))
    second = await decide(store, asked, Decision("approve", "bob", digest="sha256:1"))

    assert (first.approval.status, first.approval.decided_by, first.run_status) == (
        "pending", None, None,
    )  # fmt: skip
    assert (again.approval.status, again.repeated) == ("pending", True)
    assert (second.approval.status, second.run_status) == ("approved", "queued")
    repeated = await decide(store, asked, Decision("approve", "ann", digest="sha256:1"))
    assert repeated == Decided(second.approval, repeated=True)


async def test_one_no_settles_it_whoever_said_yes(store: Store) -> None:
    asked = await asking(store)
    await store.write(requiring(asked, 3))
    await decide(store, asked, Decision("approve", "ann", digest="sha256:1"))

    decided = await decide(store, asked, Decision("deny", "bob", digest="sha256:1"))

    assert (decided.approval.status, decided.run_status) == ("denied", "queued")


async def test_who_votes_with_others_must_say_on_what(store: Store) -> None:
    asked = await asking(store)
    await store.write(requiring(asked, 2))

    assert await refused(store, asked, Decision("approve", "ann")) == "digest_required"


async def test_an_edit_voids_earlier_votes_and_counts_as_its_editor_s(store: Store) -> None:
    asked = await asking(store)
    await store.write(requiring(asked, 2))
    await decide(store, asked, Decision("approve", "ann", digest="sha256:1"))

    edited = await decide(store, asked, Decision("approve", "bob", digest="sha256:1", edit=EDIT))
    stale = await refused(store, asked, Decision("approve", "cas", digest="sha256:1"))
    settled = await decide(store, asked, Decision("approve", "ann", digest=EDIT.digest))

    assert (edited.approval.status, edited.approval.digest) == ("pending", EDIT.digest)
    assert stale == "digest_mismatch"
    assert (settled.approval.status, settled.approval.arguments) == ("approved", EDIT.arguments)
    (letter,) = await letters(store, asked.run_id)
    said = orjson.loads(letter.data)  # or the run would go on with what nobody approved
    assert (said["arguments"], said["digest"]) == ({"to": "z@b.c"}, EDIT.digest)


async def test_an_edit_voids_no_vote_on_another_question(store: Store) -> None:
    edited, other = await asking(store), await asking(store)
    for asked in (edited, other):
        await store.write(requiring(asked, 2))
    await decide(store, other, Decision("approve", "ann", digest="sha256:1"))

    await decide(store, edited, Decision("approve", "bob", digest="sha256:1", edit=EDIT))

    settled = await decide(store, other, Decision("approve", "cas", digest="sha256:1"))
    assert settled.approval.status == "approved"


async def test_while_it_is_open_one_may_change_one_s_mind(store: Store) -> None:
    asked = await asking(store)
    await store.write(requiring(asked, 2))
    await decide(store, asked, Decision("approve", "ann", digest="sha256:1"))

    decided = await decide(store, asked, Decision("deny", "ann", digest="sha256:1"))

    assert decided.approval.status == "denied"


# --- Expiring -------------------------------------------------------------------------------


async def test_what_nobody_answered_expires_and_wakes_its_run(store: Store) -> None:
    asked = await asking(store, expires_ms=1)

    told = await store.write(approval_times.expire_due(LATER_MS, 10))

    row = await store.read(approvals.find(TENANT, asked.id))
    (letter,) = await letters(store, asked.run_id)
    assert told == [(TENANT, asked.run_id)]
    assert (row.status, row.decided_ms, row.decided_by) == ("expired", LATER_MS, None)
    assert letter.kind == "approval_expired"
    assert orjson.loads(letter.data) == {
        "approval_id": asked.id,
        "call_id": "call_1_0",
        "then": "deny",
    }
    assert await status(store, asked.run_id) == "queued"


async def test_what_has_time_left_or_is_settled_does_not_expire(store: Store) -> None:
    await asking(store)
    decided = await asking(store)
    await decide(store, decided, Decision("deny", "ann"))

    assert await store.write(approval_times.expire_due(LATER_MS, 10)) == []


async def test_what_expired_does_so_once(store: Store) -> None:
    asked = await asking(store, expires_ms=1)
    await store.write(approval_times.expire_due(LATER_MS, 10))

    again = await store.write(approval_times.expire_due(LATER_MS, 10))

    assert again == []
    assert len(await letters(store, asked.run_id)) == 1
    assert await refused(store, asked, Decision("approve", "ann")) == "approval_expired"


async def test_the_longest_due_expire_first_and_so_many_at_a_time(store: Store) -> None:
    second = await asking(store, expires_ms=2)
    first = await asking(store, expires_ms=1)

    told = [await store.write(approval_times.expire_due(LATER_MS, 1)) for _ in range(3)]

    assert told == [[(TENANT, first.run_id)], [(TENANT, second.run_id)], []]


async def test_a_run_with_several_questions_is_told_of_each(store: Store) -> None:
    claim = await held(store)
    asked = [an_approval(claim, call_id=f"call_1_{n}", expires_ms=1) for n in range(2)]
    await store.append(a_park(claim, approvals=tuple(asked)))

    told = await store.write(approval_times.expire_due(LATER_MS, 10))

    assert told == [(TENANT, claim.run_id)]
    found = await letters(store, claim.run_id)
    assert {orjson.loads(letter.data)["call_id"] for letter in found} == {"call_1_0", "call_1_1"}


async def test_expiry_of_a_run_that_ended_meanwhile_tells_nobody(store: Store) -> None:
    asked = await asking(store, expires_ms=1)
    row = await store.read(runs.find(TENANT, asked.run_id))
    head = await store.read(log.head(TENANT, asked.run_id))
    entries = (an_append(await held(store)).entries[0],)
    ending = runs.Ending("cancelled", "{}", entries, head)
    await store.write(runs.end(row, ending, "append"))

    assert await store.write(approval_times.expire_due(LATER_MS, 10)) == []
