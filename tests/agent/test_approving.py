"""Calls that are put to an embedder's function: what it is asked, and what counts as a yes."""

import asyncio
import contextvars
import functools
import threading
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest

from milepost import Agent, ApprovalRequest, Decision, RecordingObserver, tool
from milepost.agent import observations as seen
from milepost.agent.workplace import TOOL_THREADS_MAX
from milepost.core.canonical import call_digest
from milepost.core.errors import ConfigurationError
from milepost.core.events import ApprovalDecided, ApprovalRequested, ApprovalWithdrawn
from milepost.core.json import Json
from milepost.core.model import ModelRequest
from milepost.providers.scripted import Scripted, calling, saying
from tests.agent.desk import PLAIN, SOON_S, Desk, approvals_in
from tests.agent.making import agent, function_agent

BY_HANDLER = "Tool 'pay' denied by approval handler: "
FAR_S = 30.0
DEADLINE_S = 1.0  # Long enough for a run to come as far as to its question.
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")

Handler = Callable[[ApprovalRequest], Any]


def yes(_: ApprovalRequest) -> bool:
    return True


def no(_: ApprovalRequest) -> bool:
    return False


class Noting:
    """Says the same to every question, and keeps them."""

    def __init__(self, answer: object = True) -> None:
        self.asked: list[ApprovalRequest] = []
        self._answer = answer

    def __call__(self, request: ApprovalRequest) -> Any:
        """Answer."""
        self.asked.append(request)
        return self._answer


async def later(_: ApprovalRequest) -> bool:
    await asyncio.sleep(0)
    return True


class Person:
    """Somebody who may be asked in many ways."""

    def __call__(self, _: ApprovalRequest) -> bool:
        """Answer at once."""
        return True

    def ask(self, _: ApprovalRequest) -> bool:
        """Answer at once."""
        return True

    async def ask_later(self, _: ApprovalRequest, answer: bool = True) -> bool:
        """Answer a little later."""
        await asyncio.sleep(0)
        return answer


class PatientPerson:
    """Somebody who is awaited."""

    async def __call__(self, _: ApprovalRequest) -> bool:
        """Answer a little later."""
        await asyncio.sleep(0)
        return True


# --- What is asked ---


def test_the_question_says_what_would_be_done_why_and_in_which_run() -> None:
    handler, desk = Noting(), Desk()

    result = desk.run(approval_handler=handler)

    assert handler.asked == [
        ApprovalRequest(
            tool_name="pay",
            tool_args={"to": "ann", "amount": 5},
            reason="policy: ask pay",
            preview="pay(to='ann', amount=5)",
            digest=call_digest("pay", {"to": "ann", "amount": 5}),
            run_id=result.run_id,
            call_id="call_1_0",
        )
    ]
    assert (desk.paid, desk.told) == ([("ann", 5)], ["paid 5 to ann"])


def test_a_question_cannot_be_changed() -> None:
    request = ApprovalRequest("pay", {}, "", "", "", "", "")

    with pytest.raises(AttributeError):
        request.tool_name = "look"  # type: ignore[misc]  # that is the point


def test_a_preview_is_the_call_as_python_writes_it_cut_at_two_hundred_characters() -> None:
    handler = Noting()

    @tool
    def send_email(to: str, subject: str) -> str:
        """Send."""
        return f"{subject} to {to}"

    script = [
        calling(("send_email", {"to": "a@b.com", "subject": each})) for each in ("hi", "x" * 300)
    ]
    agent(
        *script, saying("Sent."), tools=[send_email], require_approval="*",
        approval_handler=handler,
    ).run("Send.")  # fmt: skip

    first, second = handler.asked
    assert first.preview == "send_email(to='a@b.com', subject='hi')"
    assert len(second.preview) == 200


def test_a_confirmation_is_asked_for_with_the_name_the_arguments_and_the_reason() -> None:
    asked: list[tuple[str, dict[str, Any], str]] = []

    def confirm(tool_name: str, args: dict[str, Any], reason: str) -> bool:
        asked.append((tool_name, args, reason))
        return True

    desk = Desk()
    desk.run(confirm_action=confirm)

    assert asked == [("pay", {"to": "ann", "amount": 5}, "policy: ask pay")]
    assert desk.paid == [("ann", 5)]


def test_a_confirmation_may_be_awaited_by_a_caller_who_waits() -> None:
    async def confirm(*_: Any) -> bool:
        await asyncio.sleep(0)
        return True

    desk = Desk()
    desk.run(confirm_action=confirm)

    assert desk.paid == [("ann", 5)]


def test_the_handler_goes_before_the_confirmation() -> None:
    desk = Desk()

    desk.run(approval_handler=no, confirm_action=lambda *_: True)

    assert desk.paid == []


def test_the_log_and_the_observers_tell_of_question_and_answer() -> None:
    recorded, desk = RecordingObserver(), Desk()

    result = desk.run(
        approval_handler=lambda _: Decision(approve=False, reason="too much"), observers=[recorded]
    )

    requested, decided = approvals_in(result)
    assert isinstance(requested, ApprovalRequested)
    assert isinstance(decided, ApprovalDecided)
    assert (decided.approval_id, decided.decision, decided.by, decided.comment) == (
        requested.approval_id, "deny", "approval handler", "too much",
    )  # fmt: skip
    told = [name for name in recorded.names if "approval" in name or name == "policy_decision"]
    assert told == ["policy_decision", "approval_requested", "approval_decided"]
    [asked], [answered] = recorded.of(seen.ApprovalRequested), recorded.of(seen.ApprovalDecided)
    assert (asked.tool, asked.preview) == ("pay", requested.preview)
    assert (answered.tool, answered.decision, answered.comment) == ("pay", "deny", "too much")
    [step] = result.trace.filter("approval")
    assert (step.name, step.detail["decision"], step.detail["comment"]) == (
        "pay", "deny", "too much",
    )  # fmt: skip


# --- Who is asked about what ---


@pytest.mark.parametrize(
    ("policy", "handler", "paid", "told"),
    [
        ({"allow": ["pay"]}, no, 1, "paid 5"),
        ({"ask": ["pay"]}, yes, 1, "paid 5"),
        ({"ask": ["pay"]}, None, 0, "denied by default: it needs a person's yes (policy: ask pay)"),
        ({"deny": ["pay"]}, yes, 0, "denied by policy: policy: deny pay"),
        ({"allow": ["look"]}, yes, 1, "paid 5"),
        ({"allow": ["look"]}, None, 0, "no rule names pay"),
    ],
)
def test_a_policy_allows_asks_or_denies_and_where_it_asks_in_vain_it_is_a_no(
    policy: dict[str, object], handler: Handler | None, paid: int, told: str
) -> None:
    desk = Desk()

    desk.run(policy=policy, approval_handler=handler, require_approval=())

    assert len(desk.paid) == paid
    assert told in desk.told[0]


def test_what_the_policy_denies_is_not_asked_about() -> None:
    handler, desk = Noting(), Desk()

    desk.run(policy={"deny": ["pay"]}, approval_handler=handler)

    assert (handler.asked, desk.paid) == ([], [])


def test_arguments_are_judged_too_and_again_where_the_answer_changes_them() -> None:
    policy = {
        "allow": [{"tool": "pay", "args": [{"arg": "amount", "max": 5}]}],
        "deny_when": [
            {"tool": "pay", "arg": "to", "pattern": "eve*", "reason": "she is no client"}
        ],
    }
    handler = Noting(Decision(approve=True, arguments={"to": "eve", "amount": 1}))
    desk = Desk({"to": "eve", "amount": 1}, PLAIN, {"to": "ann", "amount": 6})

    desk.run(policy=policy, require_approval=[], approval_handler=handler)

    assert [each.tool_args for each in handler.asked] == [{"to": "ann", "amount": 6}]
    assert desk.paid == [("ann", 5)]
    first, _, last = desk.told
    assert "she is no client" in first
    assert last.startswith(BY_HANDLER + "it changed the arguments, and those are denied: policy: ")


def test_what_is_called_too_often_is_asked_about_in_process_too() -> None:
    policy = {
        "ask": [{"tool": "pay", "rate": {"more_than": 2, "within_s": 3600}}],
        "allow": ["pay"],
    }
    often: list[dict[str, Json]] = [{"to": "ann", "amount": n} for n in range(4)]
    handler, desk = Noting(answer=False), Desk(*often)

    desk.run(policy=policy, require_approval=[], approval_handler=handler)

    assert [each.tool_args["amount"] for each in handler.asked] == [2, 3]
    assert desk.paid == [("ann", 0), ("ann", 1)]


def test_where_several_must_say_yes_a_handler_is_one_only() -> None:
    handler, desk = Noting(), Desk()

    desk.run(policy={"ask": [{"tool": "pay", "required": 2}]}, approval_handler=handler)

    assert (handler.asked, desk.paid) == ([], [])
    assert desk.told == [BY_HANDLER + "2 people must say yes, and an approval handler is one"]


def test_silence_ends_the_run_where_the_policy_says_so() -> None:
    policy = {"ask": [{"tool": "pay", "ttl_s": SOON_S, "on_timeout": "fail"}]}

    async def silent(_: ApprovalRequest) -> bool:
        await asyncio.Event().wait()
        return True

    desk = Desk()
    result = desk.run(policy=policy, require_approval=[], approval_handler=silent)

    assert (result.status, desk.paid) == ("failed", [])
    assert result.error is not None
    assert result.error.code == "approval_expired"


@pytest.mark.parametrize(
    ("required", "gated", "asks"),
    [
        ((), False, False),
        ([], False, False),
        ((), True, True),
        (["look"], False, False),
        (["look"], True, True),
        (["p*"], False, True),
        (["look", "pay"], True, True),
        (["PAY"], False, False),
        ("*", False, True),
        (["*"], False, True),
    ],
)
@pytest.mark.parametrize("policy", [None, {"allow": ["*"]}])
def test_a_call_is_gated_by_a_glob_or_by_its_tool(
    required: Any, gated: bool, asks: bool, policy: dict[str, object] | None
) -> None:
    handler = Noting()

    @tool(requires_approval=gated)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent(
        calling(("pay", {})), saying("Done."), tools=[pay], policy=policy,
        require_approval=required, approval_handler=handler,
    ).run("Go.")  # fmt: skip

    assert [each.tool_name for each in handler.asked] == (["pay"] if asks else [])


def test_agents_among_the_tools_are_gated_by_name_and_ask_their_own_handler() -> None:
    above, below, desk = Noting(), Noting(), Desk()
    child = desk.agent(name="payer", description="Pays.", approval_handler=below)

    agent(
        calling(("agent:payer", {"input": "Pay."})), saying("Done."), tools=[child],
        require_approval=["agent:*"], approval_handler=above,
    ).run("Go.")  # fmt: skip

    assert [each.tool_name for each in (*above.asked, *below.asked)] == ["agent:payer", "pay"]
    assert desk.paid == [("ann", 5)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"require_approval": ["pay"]}, "names pay, and there is nobody to ask"),
        ({"require_approval": "*"}, "nobody to ask"),
        ({"require_approval": "pay", "approval_handler": yes}, "give a list of globs"),
        ({"require_approval": [""], "approval_handler": yes}, "give a list of globs"),
        ({"require_approval": [1], "approval_handler": yes}, "give a list of globs"),
        ({"require_approval": None, "approval_handler": yes}, "give a list of globs"),
        ({"approval_handler": "yes"}, "approval_handler is 'yes'; give a function"),
        ({"confirm_action": True}, "confirm_action is True; give a function"),
        ({"approval_handler": yes, "approval_timeout_s": 0}, "more than 0 seconds"),
        ({"approval_handler": yes, "approval_timeout_s": float("nan")}, "more than 0 seconds"),
        ({"approval_handler": yes, "approval_timeout_s": float("inf")}, "more than 0 seconds"),
        ({"approval_handler": yes, "approval_timeout_s": True}, "more than 0 seconds"),
        ({"approval_timeout_s": 5}, "there is nobody to wait for"),
    ],
)
def test_a_gate_that_nobody_would_open_is_refused_at_once(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        agent(**fields)


def test_no_gate_needs_nobody_to_open_it() -> None:
    assert agent(saying("Hi."), require_approval=[]).run("Hi.").content == "Hi."


# --- What counts as a yes ---


def a_coroutine(_: object) -> Any:
    return later(ApprovalRequest("", {}, "", "", "", "", ""))


@pytest.mark.parametrize(
    "answer",
    [
        "yes", "true", 1, 1.0, None, [], [True], (True,), {"approve": True}, object(), Mock(),
        MagicMock(approve=True), Mock(spec=Decision, approve=True),
        Mock(spec=Decision, approve=True, arguments=None, reason=None),
        SimpleNamespace(approve=True),
        Decision(approve=1),  # type: ignore[arg-type]  # that is the point, here and below
        Decision(approve="yes"),  # type: ignore[arg-type]
        Decision(approve=None),  # type: ignore[arg-type]
        Decision(approve=True, reason=7),  # type: ignore[arg-type]
        Decision(approve=True, arguments=[("to", "ann")]),  # type: ignore[arg-type]
        Decision(approve=True, arguments="{}"),  # type: ignore[arg-type]
        Exception("True"),
        Decision,
    ],
)  # fmt: skip
@pytest.mark.parametrize("asked", ["approval_handler", "confirm_action"])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_not_plainly_yes_is_no(answer: object, asked: str, is_async: bool) -> None:
    async def awaited(*_: Any) -> object:
        return answer

    desk = Desk()

    desk.run(**{asked: awaited if is_async else lambda *_: answer})

    assert desk.paid == []
    assert desk.told[0].startswith(BY_HANDLER + "it ")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("yes", "it answered with a str, which is neither True nor False"),
        (None, "it answered with a NoneType, which is neither True nor False"),
        (Decision(approve=1), "it answered with a Decision, which is neither True nor False"),  # type: ignore[arg-type]
        (Decision(approve=True, reason=7), "it gave a reason that is no text"),  # type: ignore[arg-type]
        (Decision(approve=True, arguments=[]), "it gave arguments that are no mapping"),  # type: ignore[arg-type]
    ],
)
def test_the_model_is_told_what_is_wrong_with_an_answer(answer: object, said: str) -> None:
    desk = Desk()

    desk.run(approval_handler=lambda _: answer)

    assert desk.told == [BY_HANDLER + said]


def test_a_reason_is_told_within_bounds_and_in_words_that_can_be_kept() -> None:
    desk = Desk()

    desk.run(approval_handler=lambda _: Decision(approve=False, reason="\0" + "x" * 5_000))

    assert desk.told == [BY_HANDLER + "\N{REPLACEMENT CHARACTER}" + "x" * 1_999]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_coroutine_that_nobody_awaits_is_a_no_and_is_closed(is_async: bool) -> None:
    async def returning(_: ApprovalRequest) -> Any:
        return a_coroutine(_)

    desk = Desk()

    desk.run(approval_handler=returning if is_async else a_coroutine)

    assert desk.paid == []
    assert "a coroutine that nobody awaits; define it with async def" in desk.told[0]


@pytest.mark.parametrize(
    "handler",
    [
        yes,
        lambda _: True,
        Person(),
        Person().ask,
        functools.partial(yes),
        Mock(return_value=True),
        later,
        PatientPerson(),
        PatientPerson().__call__,
        Person().ask_later,
        functools.partial(later),
        functools.partial(Person().ask_later, answer=True),
        functools.partial(PatientPerson()),
        functools.partial(functools.partial(PatientPerson())),
        AsyncMock(return_value=True),
    ],
)
@pytest.mark.parametrize("waits", [True, False])
def test_functions_of_every_kind_answer_callers_of_either(handler: Handler, waits: bool) -> None:
    desk = Desk()
    asked = desk.agent(approval_handler=handler)

    result = asked.run("Pay.") if waits else asyncio.run(asked.arun("Pay."))

    assert (result.content, desk.paid) == ("Done.", [("ann", 5)])


async def test_a_caller_who_waits_on_a_running_loop_is_answered_too() -> None:
    desk = Desk()

    desk.run(approval_handler=later)

    assert desk.paid == [("ann", 5)]


@pytest.mark.parametrize("handler", [yes, later])
def test_a_handler_sees_the_context_of_whoever_runs_the_agent(handler: Handler) -> None:
    told: list[str] = []

    def plain(_: ApprovalRequest) -> bool:
        told.append(WHO.get())
        return True

    async def awaited(_: ApprovalRequest) -> bool:
        told.append(WHO.get())
        return True

    token = WHO.set("ann")
    Desk().run(approval_handler=plain if handler is yes else awaited)
    WHO.reset(token)

    assert told == ["ann"]


# --- What goes wrong ---


def stops_the_process(_: ApprovalRequest) -> bool:
    raise SystemExit(1)


def unprintable(_: ApprovalRequest) -> bool:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    raise UnprintableError


def late_itself(_: ApprovalRequest) -> bool:
    raise TimeoutError("the desk is closed")


async def fails_later(_: ApprovalRequest) -> bool:
    raise LookupError("nobody is in")


async def cancels_itself(_: ApprovalRequest) -> bool:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (lambda _: 1 / 0, "it failed: ZeroDivisionError: division by zero"),
        (lambda: True, "it failed: TypeError: "),
        (stops_the_process, "it failed: SystemExit: 1"),
        (unprintable, "it failed: UnprintableError"),
        (late_itself, "it failed: TimeoutError: the desk is closed"),
        (fails_later, "it failed: LookupError: nobody is in"),
        (cancels_itself, "it cancelled itself"),
    ],
)
def test_to_fail_is_to_say_no_and_the_model_is_told_why(handler: Handler, said: str) -> None:
    desk = Desk()

    result = desk.run(approval_handler=handler)

    assert (result.content, desk.paid) == ("Done.", [])
    assert desk.told[0].startswith(BY_HANDLER + said)


def test_a_handler_in_a_thread_that_is_late_is_a_no_and_its_yes_comes_too_late() -> None:
    go, gone = threading.Event(), threading.Event()

    def slow(_: ApprovalRequest) -> bool:
        go.wait(FAR_S)
        gone.set()
        return True

    desk = Desk()
    result = desk.run(approval_handler=slow, approval_timeout_s=SOON_S)
    go.set()

    assert gone.wait(FAR_S)
    assert (result.content, desk.paid) == ("Done.", [])
    assert desk.told == [BY_HANDLER + "it gave no answer within 0.05 s"]


def test_a_handler_that_is_awaited_is_cancelled_when_it_is_late() -> None:
    cancelled: list[str] = []

    async def slow(_: ApprovalRequest) -> bool:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("yes")
            raise
        return True

    desk = Desk()
    desk.run(approval_handler=slow, approval_timeout_s=SOON_S)

    assert (cancelled, desk.paid) == (["yes"], [])
    assert desk.told == [BY_HANDLER + "it gave no answer within 0.05 s"]


async def test_a_handler_that_will_not_be_cancelled_holds_nothing_up() -> None:
    go = asyncio.Event()

    async def stubborn(_: ApprovalRequest) -> bool:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return True

    desk = Desk()
    result = await desk.agent(approval_handler=stubborn, approval_timeout_s=SOON_S).arun("Pay.")
    go.set()

    assert (result.content, desk.paid) == ("Done.", [])


@pytest.mark.parametrize(
    ("answer", "timeout_s", "said"),
    [
        (lambda: False, FAR_S, "no reason was given"),
        (lambda: Decision(approve=False, reason="too much"), FAR_S, "too much"),
        (lambda: "yes", FAR_S, "it answered with a str, which is neither True nor False"),
        (lambda: 1 / 0, FAR_S, "it failed: ZeroDivisionError: division by zero"),
        (lambda: threading.Event().wait(1), SOON_S, "it gave no answer within 0.05 s"),
    ],
)
def test_every_no_is_remembered_for_the_same_call_with_its_reason(
    answer: Callable[[], Any], timeout_s: float, said: str
) -> None:
    asked: list[int] = []
    desk = Desk(PLAIN, PLAIN, {"to": "bob", "amount": 5})

    def handler(_: ApprovalRequest) -> Any:
        asked.append(len(asked))
        return answer()

    desk.run(approval_handler=handler, approval_timeout_s=timeout_s)

    assert asked == [0, 1]
    assert desk.told == [
        f"{BY_HANDLER}{said}",
        f"Tool 'pay' denied by an earlier answer in this run: {said}",
        f"{BY_HANDLER}{said}",
    ]


def test_a_no_holds_for_one_run_only() -> None:
    handler, desk = Noting(answer=False), Desk()
    desk.model = Scripted(desk.script * 2)

    both = desk.agent(approval_handler=handler).batch(["Pay.", "Pay."], max_concurrency=1)

    assert [each.run_id for each in handler.asked] == [each.run_id for each in both]


def test_a_yes_is_never_remembered() -> None:
    handler, desk = Noting(), Desk(PLAIN, PLAIN)

    desk.run(approval_handler=handler)

    assert [each.call_id for each in handler.asked] == ["call_1_0", "call_2_0"]
    assert desk.paid == [("ann", 5)] * 2


def test_who_is_not_there_is_remembered_to_have_said_no() -> None:
    desk = Desk(PLAIN, PLAIN)

    desk.run(policy={}, require_approval=())

    assert desk.paid == []
    assert [each.partition(":")[0] for each in desk.told] == [
        "Tool 'pay' denied by default", "Tool 'pay' denied by an earlier answer in this run",
    ]  # fmt: skip


# --- Other arguments ---


def test_a_yes_may_come_with_other_arguments_which_are_coerced_and_bound_anew() -> None:
    def less(_: ApprovalRequest) -> Decision:
        return Decision(approve=True, arguments={"to": "ann", "amount": "3"}, reason="half of it")

    desk, recorded = Desk(), RecordingObserver()
    result = desk.run(approval_handler=less, observers=[recorded])

    fitting: dict[str, Json] = {"to": "ann", "amount": 3}
    requested, decided = approvals_in(result)
    assert isinstance(requested, ApprovalRequested)
    assert isinstance(decided, ApprovalDecided)
    assert desk.paid == [("ann", 3)]
    assert (decided.arguments, decided.digest) == (fitting, call_digest("pay", fitting))
    assert decided.digest != requested.digest
    [call] = result.tool_calls
    [started], [answered] = recorded.of(seen.ToolStart), recorded.of(seen.ApprovalDecided)
    [step] = result.trace.filter("tool_execution")
    assert call.arguments == started.arguments == answered.arguments == fitting
    assert step.detail["arguments"] == fitting


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"to": "ann", "amount": "many"}, "to what does not fit: pay: parameter 'amount'"),
        ({"to": "ann"}, "to what does not fit: pay "),
        ({"to": "ann", "amount": 3, "more": 1}, "to what does not fit: pay "),
        ({"to": "ann", "amount": 3, "note": {"x": object()}}, "a object has no JSON form"),
        ({"to": "ann", "amount": float("nan")}, "nan is not a JSON number"),
    ],
)
def test_other_arguments_that_do_not_fit_are_a_no(arguments: dict[str, Any], said: str) -> None:
    desk = Desk()

    desk.run(approval_handler=lambda _: Decision(approve=True, arguments=arguments))

    assert desk.paid == []
    assert desk.told[0].startswith(BY_HANDLER)
    assert said in desk.told[0]


def test_the_arguments_of_a_no_are_nothing() -> None:
    desk = Desk()

    result = desk.run(approval_handler=lambda _: Decision(approve=False, arguments={"to": "bob"}))

    assert (desk.paid, desk.told) == ([], [BY_HANDLER + "no reason was given"])
    decided = approvals_in(result)[-1]
    assert isinstance(decided, ApprovalDecided)
    assert (decided.arguments, decided.digest) == (None, None)


def test_other_arguments_are_judged_for_the_user_of_the_run() -> None:
    sums: list[int] = []

    @tool(permissions=["ann"])
    def pay(amount: int) -> str:
        """Pay."""
        sums.append(amount)
        return "paid"

    asked = agent(
        *[calling(("pay", {"amount": 5})), saying("Done.")] * 2, tools=[pay], require_approval="*",
        approval_handler=lambda _: Decision(approve=True, arguments={"amount": 3}),
    )  # fmt: skip

    asked.run("Pay.", user="ann")
    asked.run("Pay.", user="bob")

    assert sums == [3]


# --- Many at once ---


async def test_calls_of_one_step_are_asked_about_side_by_side_and_decided_apart() -> None:
    both = asyncio.Barrier(2)
    desk = Desk()
    desk.model = Scripted(
        [calling(("pay", PLAIN), ("pay", {"to": "bob", "amount": 7})), saying("Done.")]
    )

    async def handler(request: ApprovalRequest) -> bool:
        await both.wait()
        return bool(request.tool_args["to"] == "bob")

    async with asyncio.timeout(FAR_S):
        await desk.agent(approval_handler=handler).arun("Pay.")

    assert desk.paid == [("bob", 7)]
    assert desk.told == [BY_HANDLER + "no reason was given", "paid 7 to bob"]


def a_payment(to: str) -> Any:
    return calling(("pay", {"to": to}))


def crowd(handler: Handler, some_paid: threading.Event | None = None) -> tuple[Agent, list[str]]:
    """Return an agent whose every run wants to pay once, and who was paid."""
    paid: list[str] = []

    @tool
    def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        if some_paid:
            some_paid.set()
        return "paid"

    async def model(request: ModelRequest) -> AsyncIterator[Any]:
        last = request.messages[-1]
        for delta in saying("Done.") if last.role == "tool" else a_payment(last.content):
            yield delta

    asked = function_agent(
        model, tools=[pay], require_approval="*", approval_handler=handler,
        approval_timeout_s=FAR_S,
    )  # fmt: skip
    return asked, paid


PEOPLE = [f"person {n}" for n in range(200)]


async def test_two_hundred_handlers_in_threads_may_wait_for_one_another() -> None:
    together = threading.Barrier(len(PEOPLE))

    def handler(_: ApprovalRequest) -> bool:
        together.wait(FAR_S)
        return True

    asked, paid = crowd(handler)
    results = await asked.abatch(PEOPLE, max_concurrency=len(PEOPLE))

    assert sorted(paid) == sorted(PEOPLE)
    assert {each.content for each in results} == {"Done."}


async def test_two_hundred_handlers_that_are_awaited_may_wait_for_one_another() -> None:
    together = asyncio.Barrier(len(PEOPLE))

    async def handler(_: ApprovalRequest) -> bool:
        await together.wait()
        return True

    asked, paid = crowd(handler)
    await asked.abatch(PEOPLE, max_concurrency=len(PEOPLE))

    assert sorted(paid) == sorted(PEOPLE)


async def test_who_waits_for_people_holds_no_thread_that_a_tool_needs() -> None:
    people, paid_first = PEOPLE[: TOOL_THREADS_MAX + 1], threading.Event()

    def handler(request: ApprovalRequest) -> bool:
        if request.tool_args["to"] == people[-1]:
            return True
        return paid_first.wait(FAR_S)

    asked, paid = crowd(handler, paid_first)
    await asked.abatch(people, max_concurrency=len(people))

    assert (paid[0], len(paid)) == (people[-1], len(people))


# --- The end of a run ---


class Waiting:
    """Answers never, and says when it was asked and when it was given up."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.dropped = asyncio.Event()

    async def __call__(self, _: ApprovalRequest) -> bool:
        """Wait."""
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.dropped.set()
        return True


async def test_a_question_falls_away_with_a_run_that_is_cancelled() -> None:
    handler, recorded = Waiting(), RecordingObserver()
    asked = Desk().agent(approval_handler=handler, observers=[recorded])
    run = asyncio.create_task(asked.arun("Pay."))
    await handler.asked.wait()

    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    [ended] = recorded.of(seen.ApprovalEnded)
    assert ended.how == "withdrawn"
    assert ended.approval_id not in {task.get_name() for task in asyncio.all_tasks()}
    assert recorded.of(seen.RunEnd)[0].status == "cancelled"
    await asyncio.wait_for(handler.dropped.wait(), FAR_S)


async def test_a_question_falls_away_with_a_run_whose_time_is_up() -> None:
    handler, recorded = Waiting(), RecordingObserver()

    result = (
        await Desk()
        .agent(approval_handler=handler, observers=[recorded])
        .arun("Pay.", deadline_s=DEADLINE_S)
    )

    assert (result.status, recorded.of(seen.ApprovalEnded)[0].how) == ("expired", "withdrawn")
    await asyncio.wait_for(handler.dropped.wait(), FAR_S)


async def test_a_question_falls_away_with_a_result_that_ends_the_run() -> None:
    handler = Waiting()

    @tool(terminal=True)
    async def answer() -> str:
        """Answer, once somebody was asked about the other."""
        await handler.asked.wait()
        return "That is all."

    desk = Desk()
    result = await agent(
        calling(("pay", PLAIN), ("answer", {})), tools=[desk.pay, answer],
        require_approval=["pay"], approval_handler=handler,
    ).arun("Pay.")  # fmt: skip

    assert (result.content, result.finish_reason, desk.paid) == ("That is all.", "terminal", [])
    await asyncio.wait_for(handler.dropped.wait(), FAR_S)
    assert isinstance(approvals_in(result)[-1], ApprovalWithdrawn)


async def test_a_question_falls_away_at_once_while_another_call_still_runs() -> None:
    handler = Waiting()

    @tool(terminal=True)
    async def answer() -> str:
        """Answer, once somebody was asked about the payment."""
        await handler.asked.wait()
        return "That is all."

    @tool
    async def linger() -> str:
        """Take as long as somebody is asked."""
        await handler.dropped.wait()
        return "Nobody is asked any more."

    desk = Desk()
    asked = agent(
        calling(("pay", PLAIN), ("answer", {}), ("linger", {})), tools=[desk.pay, answer, linger],
        require_approval=["pay"], approval_handler=handler,
    )  # fmt: skip

    result = await asyncio.wait_for(asked.arun("Pay."), FAR_S)

    assert [each.result for each in result.tool_calls[1:]] == [
        "That is all.", "Nobody is asked any more.",
    ]  # fmt: skip


def test_the_log_tells_until_when_an_answer_is_waited_for() -> None:
    result = Desk().run(approval_handler=yes, approval_timeout_s=5)

    moments = zip(result.record.times_ms, result.record.events, strict=True)
    [left_ms] = [
        event.expires_at_ms - time_ms
        for time_ms, event in moments
        if isinstance(event, ApprovalRequested)
    ]
    assert left_ms == 5_000


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("how", ["terminal", "condition"])
def test_an_approved_result_ends_the_run_and_a_denied_one_does_not(
    parallel: bool, how: str
) -> None:
    def handler(request: ApprovalRequest) -> bool:
        return bool(request.tool_args["n"] != 1)

    @tool(terminal=how == "terminal")
    def close(n: int) -> dict[str, int]:
        """Close a case."""
        return {"closed": n}

    calls = calling(*(("close", {"n": n}) for n in (1, 2, 3)))
    result = agent(
        calls, tools=[close], require_approval="*", approval_handler=handler,
        parallel_tools=parallel, stop_condition=(
            None if how == "terminal" else lambda _, brought: brought["closed"] == 2
        ),
    ).run("Go.")  # fmt: skip

    assert (result.content, result.finish_reason) == ('{"closed":2}', "terminal")
    assert [each.error is None for each in result.tool_calls][:2] == [False, True]
    assert all(each.result or each.error for each in result.tool_calls)


def test_who_streams_a_run_is_asked_like_anybody() -> None:
    desk = Desk()

    async def streamed() -> list[str]:
        chunks = [chunk async for chunk in desk.agent(approval_handler=yes).astream("Pay.")]
        return [each.type for each in chunks[:-1] if hasattr(each, "type")]

    assert asyncio.run(streamed()) == ["tool_call", "tool_result", "text"]
    assert desk.paid == [("ann", 5)]


def test_an_agent_that_is_kept_open_asks_from_run_to_run() -> None:
    desk = Desk(PLAIN)
    desk.model = Scripted(desk.script * 2)

    with desk.agent(approval_handler=later) as kept:
        kept.run("Pay.")
        kept.run("Pay.")

    assert desk.paid == [("ann", 5)] * 2


def test_another_agent_made_of_this_one_asks_the_same_handler() -> None:
    desk = Desk()

    more = desk.agent(approval_handler=no).with_tools(desk.pay, replacing=True)
    more.run("Pay.")

    assert desk.told == [BY_HANDLER + "no reason was given"]
