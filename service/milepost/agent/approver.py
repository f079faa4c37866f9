"""Who answers in process where a person's yes is wanted: a function that the embedder brings."""

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from milepost.agent.answer_threads import AnswerThreads
from milepost.agent.approval import ApprovalHandler, ApprovalRequest, ConfirmAction, Decision
from milepost.core.errors import ConfigurationError
from milepost.core.json import clean_text
from milepost.telemetry.logs import logger
from milepost.tools.raised import told

TIMEOUT_S = 60.0
THREADS_MAX = 1_000
REASON_CHARS_MAX = 2_000

_log = logger("agent")


class Approver:
    """Calls the function with each question, and takes only a plain yes for one.

    What it raises, that it is late, and whatever else it answers are a no, with the reason.
    """

    def __init__(
        self,
        function: Callable[..., object],
        arguments_of: Callable[[ApprovalRequest], tuple[Any, ...]],
        timeout_s: float,
        threads_max: int = THREADS_MAX,
    ) -> None:
        self.timeout_s = timeout_s
        self._threads_max = threads_max
        self._function = function
        self._arguments_of = arguments_of
        self._is_async = _is_async(function)
        self._threads: dict[int, AnswerThreads] = {}
        self._asked: set[asyncio.Task[Decision]] = set()

    async def ask(self, request: ApprovalRequest, within_s: float) -> Decision:
        """Return the decision; raise `TimeoutError` if there is none in time.

        Who is late is cancelled, and left to itself.
        """
        asked = asyncio.create_task(self._answered(request), name=f"approval of {request.call_id}")
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)
        try:
            await asyncio.wait({asked}, timeout=within_s)
        finally:
            asked.cancel()
        if not asked.done():
            raise TimeoutError(f"it gave no answer within {within_s:g} s")
        if asked.cancelled():
            return refusal("it cancelled itself")
        return asked.result()

    async def _answered(self, request: ApprovalRequest) -> Decision:
        try:
            if self._is_async:
                return decision_in(await self._call(request))
            return await self._in_thread(request)
        except Exception as error:
            return _failed(request, error)

    def _call(self, request: ApprovalRequest) -> Any:
        return self._function(*self._arguments_of(request))

    async def _in_thread(self, request: ApprovalRequest) -> Decision:
        """Ask in a thread, where the answer is read too: one that is late has no other reader."""
        # A fork of the process has none of the threads that are counted here.
        threads = self._threads.setdefault(os.getpid(), AnswerThreads(self._threads_max))
        call = threads.call(lambda: decision_in(self._call(request)))
        decision, error = await call.future
        return decision if error is None else _failed(request, error)


def approver_of(
    handler: ApprovalHandler | None, confirm: ConfirmAction | None, timeout_s: float
) -> Approver | None:
    """Return who answers: the handler goes before `confirm`. None: nobody does.

    Raises `ConfigurationError` for what cannot be called, and for a time that is none.
    """
    for name, function in (("approval_handler", handler), ("confirm_action", confirm)):
        if function is not None and not callable(function):
            raise ConfigurationError(f"{name} is {function!r}; give a function")
    if isinstance(timeout_s, bool) or not 0 < timeout_s < float("inf"):
        raise ConfigurationError(f"approval_timeout_s is {timeout_s}; give more than 0 seconds")
    if handler is not None:
        return Approver(handler, lambda request: (request,), timeout_s)
    if confirm is not None:
        return Approver(confirm, _in_parts, timeout_s)
    return None


def refusal(reason: str | None) -> Decision:
    """Return a no."""
    return Decision(approve=False, reason=reason)


def decision_in(answer: object) -> Decision:
    """Return the decision that an answer is: what is not plainly yes is no."""
    if answer is True or answer is False:
        return Decision(approve=answer)
    # Not by `isinstance`: a mock says that it is one.
    if type(answer) is Decision and (answer.approve is True or answer.approve is False):
        return _whole(answer)
    if inspect.iscoroutine(answer):
        answer.close()  # Or Python would warn that nobody awaits it.
        return refusal("it answered with a coroutine that nobody awaits; define it with async def")
    kind = type(answer).__name__
    return refusal(f"it answered with a {kind}, which is neither True nor False")


def _whole(decision: Decision) -> Decision:
    """Return the decision if all of it can be told."""
    if not isinstance(decision.reason, str | None):
        return refusal("it gave a reason that is no text")
    if not isinstance(decision.arguments, Mapping | None):
        return refusal("it gave arguments that are no mapping")
    reason = decision.reason and clean_text(decision.reason[:REASON_CHARS_MAX])
    return Decision(decision.approve, decision.arguments, reason)


def _failed(request: ApprovalRequest, error: BaseException) -> Decision:
    """Tell of it in the process' own log too: the embedder's function is broken."""
    words = told(error)
    _log.warning(
        "an approval could not be asked for",
        run_id=request.run_id,
        call_id=request.call_id,
        tool=request.tool_name,
        error=words,
    )
    return refusal(f"it failed: {words}")


def _in_parts(request: ApprovalRequest) -> tuple[str, dict[str, Any], str]:
    return request.tool_name, request.tool_args, request.reason


def _is_async(function: object) -> bool:
    """Say whether calling it makes a coroutine: a function, or an object that is called like one.

    A partial is what it is a partial of.
    """
    while isinstance(function, functools.partial):
        function = function.func
    forms = (function, type(function).__call__) if callable(function) else ()
    return any(inspect.iscoroutinefunction(form) for form in forms)
