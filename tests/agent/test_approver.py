"""Who answers: asked in its turn, or not at all."""

import asyncio
import threading

import pytest

from milepost.agent.approval import ApprovalRequest, Decision
from milepost.agent.approver import Approver

FAR_S = 30.0


def question(call_id: str) -> ApprovalRequest:
    return ApprovalRequest("pay", {}, "policy: ask pay", "pay()", "sha256:0", "run_1", call_id)


async def test_who_waits_in_vain_for_a_thread_is_not_asked_later() -> None:
    go, begun, asked = threading.Event(), threading.Event(), list[str]()

    def handler(request: ApprovalRequest) -> bool:
        asked.append(request.call_id)
        begun.set()
        return go.wait(FAR_S)

    approver = Approver(handler, lambda request: (request,), 60, threads_max=1)
    first = asyncio.create_task(approver.ask(question("first"), FAR_S))
    await asyncio.to_thread(begun.wait, FAR_S)

    with pytest.raises(TimeoutError, match=r"it gave no answer within 0\.02 s"):
        await approver.ask(question("second"), 0.02)
    go.set()

    assert await first == Decision(approve=True)
    assert await approver.ask(question("third"), FAR_S) == Decision(approve=True)
    assert asked == ["first", "third"]


async def test_who_gives_up_asking_gives_up_the_answer() -> None:
    asked, dropped = asyncio.Event(), asyncio.Event()

    async def handler(_: ApprovalRequest) -> bool:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            dropped.set()
        return True

    approver = Approver(handler, lambda request: (request,), 60)
    asking = asyncio.create_task(approver.ask(question("first"), FAR_S))
    await asked.wait()

    asking.cancel()

    await asyncio.wait_for(dropped.wait(), FAR_S)
    assert asking.cancelled()


async def test_a_function_that_fails_is_told_of_in_the_process_own_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    approver = Approver(lambda _: 1 / 0, lambda request: (request,), 60)

    decision = await approver.ask(question("first"), FAR_S)

    assert decision == Decision(False, reason="it failed: ZeroDivisionError: division by zero")
    [record] = [each for each in caplog.records if each.name == "milepost.agent"]
    assert "an approval could not be asked for" in str(record.msg)


async def test_a_no_is_no_matter_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    approver = Approver(lambda _: False, lambda request: (request,), 60)

    assert await approver.ask(question("first"), FAR_S) == Decision(approve=False)
    assert caplog.records == []
