"""One run's questions: what becomes of an answer, and of silence."""

import asyncio
from collections.abc import Callable

import orjson
import pytest

from milepost.agent.approval import ApprovalHandler, ApprovalRequest, Decision
from milepost.agent.approvals import InProcessApprovals
from milepost.agent.approver import Approver, approver_of
from milepost.agent.run_log import RunLog
from milepost.core.canonical import call_digest
from milepost.core.events import ApprovalWithdrawn, Failure
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.policy import PLAIN, Terms
from milepost.core.rulings import Ask, Count, Refuse, Reject, Ruling, Run
from milepost.live.hub import Hub
from milepost.store.records import NewApproval

FAR_S = 30.0
FIVE: dict[str, Json] = {"amount": 5}
THREE: dict[str, Json] = {"amount": 3}


def question(terms: Terms = PLAIN, ttl_ms: int = 60_000) -> NewApproval:
    """Return a question about a payment of five."""
    return NewApproval(
        id="apr_1", run_id="run_1", session_id="ses_1", agent="clerk", user=None,
        call_id="call_1_0", tool="pay", arguments=orjson.dumps(FIVE).decode(),
        digest=call_digest("pay", FIVE), preview="pay(amount=5)", reason="policy: ask pay",
        created_ms=1_000, expires_ms=1_000 + ttl_ms, terms=terms,
    )  # fmt: skip


def answering(answer: ApprovalHandler) -> Approver:
    found = approver_of(answer, None, 60)
    assert found is not None
    return found


def less(_: ApprovalRequest) -> Decision:
    return Decision(approve=True, arguments=THREE, reason="half of it")


class Silent:
    """Never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.given_up = asyncio.Event()

    async def __call__(self, _: ApprovalRequest) -> bool:
        """Wait."""
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        return True


async def letter(
    approval: NewApproval,
    approver: Approver | None,
    judge: Callable[[ToolCall], Ruling] = lambda call: Run(call.arguments, "once"),
) -> tuple[str, dict[str, Json]]:
    """Return the kind of the letter that the run gets, and what it says."""
    log = RunLog()
    approvals = InProcessApprovals(approver, judge, log, Hub())

    approvals.ask(approval)
    await log.mail(within_s=FAR_S)

    [told] = (await log.inbox("local", "run_1", 0))[1]
    return told.kind, orjson.loads(told.data)


async def test_a_plain_yes_leaves_the_call_as_it_was_asked_for() -> None:
    assert await letter(question(), answering(lambda _: True)) == (
        "approval",
        {
            "approval_id": "apr_1", "call_id": "call_1_0", "decision": "approve",
            "by": "approval handler", "comment": None, "arguments": None, "digest": None,
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    "ruling",
    [
        Run({"amount": 4}, "once"),
        Ask({"amount": 4}, "once", "policy: ask pay"),
        Count({"amount": 4}, ()),
    ],
)
async def test_other_arguments_are_taken_as_the_tool_takes_them(ruling: Ruling) -> None:
    kind, said = await letter(question(), answering(less), lambda _: ruling)

    assert (kind, said["decision"], said["comment"]) == ("approval", "approve", "half of it")
    assert (said["arguments"], said["digest"]) == (
        {"amount": 4}, call_digest("pay", {"amount": 4}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ruling", "why"),
    [
        (
            Refuse("policy", "policy: deny pay"),
            "it changed the arguments, and those are denied: policy: deny pay",
        ),
        (
            Reject(Failure("invalid_arguments", "pay wants more")),
            "it changed the arguments to what does not fit: pay wants more",
        ),
    ],
)
async def test_a_deny_still_wins_over_a_yes_to_other_arguments(ruling: Ruling, why: str) -> None:
    _, said = await letter(question(), answering(less), lambda _: ruling)

    assert (said["decision"], said["comment"], said["arguments"]) == ("deny", why, None)


async def test_who_judges_other_arguments_may_fail_and_that_is_a_no() -> None:
    def broken(_: ToolCall) -> Ruling:
        raise LookupError("no rules")

    _, said = await letter(question(), answering(less), broken)

    assert (said["decision"], said["comment"]) == ("deny", "it failed: LookupError: no rules")


async def test_where_several_must_say_yes_one_does_not_do_and_is_not_asked() -> None:
    asked: list[ApprovalRequest] = []

    def handler(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    _, said = await letter(question(Terms(required=2)), answering(handler))

    assert (said["decision"], asked) == ("deny", [])
    assert said["comment"] == "2 people must say yes, and an approval handler is one"


async def test_where_nobody_answers_it_is_a_no_that_says_so() -> None:
    _, said = await letter(question(), None)

    assert (said["decision"], said["by"]) == ("deny", "default")
    assert said["comment"] == (
        "it needs a person's yes (policy: ask pay), and there is nobody to ask here"
    )


@pytest.mark.parametrize(
    ("terms", "kind"),
    [
        (Terms(), "approval"),
        (Terms(on_timeout="escalate"), "approval"),
        (Terms(on_timeout="fail"), "approval_expired"),
    ],
)
async def test_silence_is_a_no_within_the_time_of_the_question_or_fails_the_run(
    terms: Terms, kind: str
) -> None:
    silent = Silent()

    told, said = await letter(question(terms, ttl_ms=20), answering(silent))

    assert told == kind
    await asyncio.wait_for(silent.given_up.wait(), FAR_S)
    if kind == "approval":
        assert (said["decision"], said["comment"]) == ("deny", "it gave no answer within 0.02 s")
    else:
        assert said["then"] == "fail"


async def test_a_question_that_fell_away_is_given_up_and_others_are_not() -> None:
    log, silent = RunLog(), Silent()
    approvals = InProcessApprovals(
        answering(silent), lambda call: Run(call.arguments, "once"), log, Hub()
    )
    approvals.ask(question())
    await silent.asked.wait()

    approvals.see([ApprovalWithdrawn("apr_2", "call_1_1")])
    await asyncio.sleep(0)
    assert not silent.given_up.is_set()
    approvals.see([ApprovalWithdrawn("apr_1", "call_1_0")])

    await asyncio.wait_for(silent.given_up.wait(), FAR_S)
    assert (await log.inbox("local", "run_1", 0)) == (0, [])


async def test_a_run_that_is_over_gives_up_all_its_questions() -> None:
    log, silent = RunLog(), Silent()
    approvals = InProcessApprovals(
        answering(silent), lambda call: Run(call.arguments, "once"), log, Hub()
    )
    approvals.ask(question())
    await silent.asked.wait()

    await approvals.stop()

    await asyncio.wait_for(silent.given_up.wait(), FAR_S)
