"""Putting an action off: what a tool may put off, where, and what it returns."""

import threading

import pytest

from milepost import (
    PendingActionExistsError,
    PendingConfirmation,
    Registry,
    ToolContext,
    ToolError,
    ToolValidationError,
    executor,
    stash_pending,
    tool,
    tool_of,
)
from milepost.tools import execute
from milepost.tools.direct import NOBODYS
from milepost.tools.pending import PREVIEW_CHARS_MAX, Stash, Stashed, stashing


def test_dc1_outside_a_chat_nothing_is_put_off() -> None:
    assert stash_pending("refund", "Refund A1") is None
    assert NOBODYS.stash_pending("refund", "Refund A1", {"order": "A1"}) is None


def test_dc1_the_model_reads_what_waits_and_how_to_ask() -> None:
    @tool
    def refund(order: str, context: ToolContext) -> object:
        """Refund."""
        return context.stash_pending("refund", f"Refund {order}", {"order": order})

    with stashing(Stash(room=True)) as stash:
        outcome = execute(refund, {"order": "A1"})
        stashed = stash.close()

    prompt = "Refund A1\nReply yes to confirm or no to cancel, within 60 seconds."
    assert outcome.content == {
        "kind": "pending_confirmation",
        "action": "refund",
        "preview": "Refund A1",
        "user_prompt": prompt,
    }
    assert stashed == Stashed("refund", "Refund A1", {"order": "A1"}, 60.0, prompt)


def test_what_is_put_off_is_taken_as_it_is_then() -> None:
    args = {"items": ["a"]}
    with stashing(Stash(room=True)) as stash:
        stash_pending("order", "Order a", args)
        args["items"].append("b")

    stashed = stash.close()
    assert stashed is not None
    assert stashed.args == {"items": ["a"]}


def test_dc8_a_second_action_is_an_error_that_names_the_first() -> None:
    with stashing(Stash(room=True)):
        stash_pending("refund", "the first")
        with pytest.raises(PendingActionExistsError, match="the first"):
            stash_pending("refund", "the second")
    before = Stash(room=True, taken="what came before")
    with stashing(before), pytest.raises(PendingActionExistsError, match="what came before"):
        stash_pending("refund", "the first")


def test_of_many_threads_that_put_off_one_does() -> None:
    stash, kept = Stash(room=True), []

    def put() -> None:
        try:
            kept.append(stash.put("refund", "Refund"))
        except PendingActionExistsError:
            kept.append(None)

    threads = [threading.Thread(target=put) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(isinstance(each, PendingConfirmation) for each in kept) == 1


def test_whoever_still_runs_when_the_call_is_over_puts_nothing_off() -> None:
    stash = Stash(room=True)
    stash.close()

    assert stash.put("refund", "Refund") is None
    assert stash.close() is None


@pytest.mark.parametrize(
    ("kind", "preview", "args", "ttl_s"),
    [
        ("", "x", None, 60),
        ("approval", "x", None, 60),
        ("refund", "  ", None, 60),
        ("refund", "x" * (PREVIEW_CHARS_MAX + 1), None, 60),
        ("refund", "x", {"a": object()}, 60),
        ("refund", "x", {"a": float("nan")}, 60),
        ("refund", "x", {"a": "x" * 70_000}, 60),
        ("refund", "x", None, 0),
        ("refund", "x", None, float("nan")),
        ("refund", "x", None, 1e9),
    ],
)
def test_what_cannot_be_put_off_is_refused(
    kind: str, preview: str, args: dict[str, object] | None, ttl_s: float
) -> None:
    with stashing(Stash(room=True)), pytest.raises(ToolError):
        stash_pending(kind, preview, args, ttl_s)


def test_dc11_an_executor_is_found_by_its_kind_and_offered_to_no_model() -> None:
    @executor("refund", effect="idempotent")
    def do_refund(order: str) -> str:
        """Refund."""
        return order

    registry = Registry([tool_of(do_refund)])

    found = registry.executor("refund")
    assert found is tool_of(do_refund)
    assert (found.executes, found.effect) == ("refund", "idempotent")
    assert registry.executor("payment") is None
    assert registry.schemas(["do_refund"]) == ()
    assert registry.projected(["do_refund"], "openai") == []
    assert do_refund("A1") == "A1"


def test_of_each_kind_there_is_one_executor_and_the_kind_must_be_one() -> None:
    @executor("refund")
    def one() -> None:
        """Refund."""

    @executor("refund")
    def other() -> None:
        """Refund."""

    with pytest.raises(ToolValidationError, match="there is an executor of 'refund' already"):
        Registry([tool_of(one), tool_of(other)])
    with pytest.raises(ToolValidationError, match="no kind of an action"):
        executor("approval", name="approve", description="Approve.")(lambda: None)


def test_an_executor_takes_the_place_of_its_own_name_and_of_no_other() -> None:
    @executor("refund")
    def pay_back(order: str) -> None:
        """Pay back."""

    @executor("refund", name="pay_back")
    def better(order: str) -> None:
        """Pay back better."""

    @executor("refund")
    def pay_twice(order: str) -> None:
        """Pay back twice."""

    registry = Registry([tool_of(pay_back)])
    registry.replace(tool_of(better))

    with pytest.raises(ToolValidationError, match="there is an executor of 'refund' already"):
        registry.replace(tool_of(pay_twice))
    assert registry.names == ("pay_back",)
    assert registry.executor("refund") is tool_of(better)
