"""One run's questions to people, in process: each is answered by letter, as in the service."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from milepost.agent.approval import ApprovalRequest, Decision
from milepost.agent.approver import Approver, refusal
from milepost.agent.run_log import RunLog
from milepost.core.canonical import call_digest
from milepost.core.events import ApprovalWithdrawn, Event
from milepost.core.json import Json, clean
from milepost.core.messages import ToolCall
from milepost.core.rulings import Ask, Count, Refuse, Reject, Ruling, Run
from milepost.live.hub import Hub, inbox_bell
from milepost.store.records import NewApproval
from milepost.tools.raised import told

HANDLER = "approval handler"
NOBODY = "default"
STOP_S_MAX = 1.0


class InProcessApprovals:
    """What waits for an answer. Several questions of one step are asked side by side.

    `judge` says what becomes of a call: of what the answer has changed, for an answer may come with
    other arguments.
    """

    def __init__(
        self,
        approver: Approver | None,
        judge: Callable[[ToolCall], Ruling],
        log: RunLog,
        hub: Hub,
    ) -> None:
        self._approver = approver
        self._judge = judge
        self._log = log
        self._hub = hub
        self._open: dict[str, asyncio.Task[None]] = {}

    def ask(self, approval: NewApproval) -> None:
        """Put the question, or answer for whoever is not there: what is not plainly yes is no."""
        if self._approver is None:
            why = f"it needs a person's yes ({approval.reason}), and there is nobody to ask here"
            self._tell(approval, refusal(why), NOBODY)
        elif approval.terms.required > 1:
            why = f"{approval.terms.required} people must say yes, and an {HANDLER} is one"
            self._tell(approval, refusal(why), HANDLER)
        else:
            asking = self._settle(approval, self._approver)
            task = asyncio.create_task(asking, name=approval.id)
            self._open[approval.id] = task
            task.add_done_callback(lambda _: self._open.pop(approval.id))

    def see(self, happened: Sequence[Event]) -> None:
        """Give up the questions that fell away."""
        for event in happened:
            if isinstance(event, ApprovalWithdrawn) and (task := self._open.get(event.approval_id)):
                task.cancel()

    async def stop(self) -> None:
        """Give up all of them: the run is over."""
        tasks = {*self._open.values()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_S_MAX)

    async def _settle(self, approval: NewApproval, approver: Approver) -> None:
        """Answer. Whatever goes wrong on the way, nobody has said yes."""
        granted_s = (approval.expires_ms - approval.created_ms) / 1000
        try:
            decision = await approver.ask(_request(approval), min(approver.timeout_s, granted_s))
            if decision.approve and decision.arguments is not None:
                decision = self._edited(approval, decision.arguments, decision.reason)
        except TimeoutError as late:
            if approval.terms.on_timeout == "fail":
                self._deliver("approval_expired", approval, {"then": "fail"})
                return
            decision = refusal(str(late))
        except Exception as error:
            decision = refusal(f"it failed: {told(error)}")
        self._tell(approval, decision, HANDLER)

    def _edited(
        self, approval: NewApproval, arguments: Mapping[str, Any], reason: str | None
    ) -> Decision:
        """Return a yes to other arguments: as the tool takes them, if it and the policy do."""
        # A copy, so that what is judged is what runs, whatever becomes of theirs.
        wanted = clean(arguments)
        assert isinstance(wanted, dict), "of a mapping"
        match self._judge(ToolCall(approval.call_id, approval.tool, wanted)):
            case Run(fitting) | Ask(fitting) | Count(fitting):
                return Decision(approve=True, arguments=fitting, reason=reason)
            case Refuse(_, why):
                return refusal(f"it changed the arguments, and those are denied: {why}")
            case Reject(error):
                return refusal(f"it changed the arguments to what does not fit: {error.message}")

    def _tell(self, approval: NewApproval, decision: Decision, by: str) -> None:
        """Put the answer into the run's inbox. New arguments come with a digest of their own."""
        given = decision.arguments if decision.approve else None
        arguments = None if given is None else dict(given)
        said: dict[str, Json] = {
            "decision": "approve" if decision.approve else "deny",
            "by": by,
            "comment": decision.reason,
            "arguments": arguments,
            "digest": None if arguments is None else call_digest(approval.tool, arguments),
        }
        self._deliver("approval", approval, said)

    def _deliver(self, kind: str, approval: NewApproval, said: dict[str, Json]) -> None:
        self._log.deliver(kind, {"approval_id": approval.id, "call_id": approval.call_id, **said})
        self._hub.ring(inbox_bell(approval.run_id))


def _request(approval: NewApproval) -> ApprovalRequest:
    return ApprovalRequest(
        tool_name=approval.tool,
        tool_args=orjson.loads(approval.arguments),
        reason=approval.reason,
        preview=approval.preview,
        digest=approval.digest,
        run_id=approval.run_id,
        call_id=approval.call_id,
    )
