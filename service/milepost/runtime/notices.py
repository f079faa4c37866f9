"""What whoever runs this should read in the process' own log about runs that go wrong.

Never a tool's arguments, nor what is injected into it: a log is read by more people than a run.
"""

import traceback

from milepost.core.errors import ProviderError, ToolError, ToolValidationError
from milepost.core.events import ModelRetried, RunFailed, RunResumed
from milepost.telemetry.logs import logger

TRACEBACK_CHARS_MAX = 10_000

_log = logger("runs")


def tool_failed(error: ToolError, run_id: str, call_id: str, tool: str) -> None:
    """Tell what a tool raised, and where in its code; a call that fits no tool is its model's."""
    if isinstance(error, ToolValidationError):
        return
    raised = error.__cause__
    shown = {} if raised is None else {"exception": _shown(raised)}
    _log.warning("a tool failed", run=run_id, call=call_id, tool=tool, code=error.code, **shown)


def lookup_failed(error: ToolError, run_id: str, call_id: str, tool: str) -> None:
    """Tell that nobody learned whether a call has acted, and where the lookup's code ended."""
    raised = error.__cause__
    shown = {} if raised is None else {"exception": _shown(raised)}
    _log.warning("a lookup failed", run=run_id, call=call_id, tool=tool, code=error.code, **shown)


def artifact_lost(error: Exception, run_id: str, call_id: str) -> None:
    """Tell that what a stopped call had left behind could not be kept: no result says so."""
    _log.warning("an artifact was lost", run=run_id, call=call_id, why=str(error))


def tool_left(tool: str, running: int) -> None:
    """Tell that a tool could not be stopped: its call is over, and it runs on."""
    _log.warning("a tool could not be stopped and runs on", tool=tool, running=running)


def result_cut(run_id: str, tool: str, model: str, why: str) -> None:
    """Tell that a long result could only be cut; the first time in a run."""
    _log.warning("a result was cut, not compressed", run=run_id, tool=tool, model=model, why=why)


def history_untold(run_id: str, model: str, why: str) -> None:
    """Tell that messages fell out of sight, and nothing is told of them."""
    _log.warning("a session was trimmed, not summarized", run=run_id, model=model, why=why)


def guardrail_failed(error: BaseException, run_id: str, guardrail: str) -> None:
    """Tell that a guardrail could not judge; what becomes of its subject, the run's log says."""
    _log.warning("a guardrail failed", run=run_id, guardrail=guardrail, exception=_shown(error))


def parser_failed(error: BaseException, version: str) -> None:
    """Tell that an answer in a chat could not be read: it was taken for neither yes nor no."""
    _log.warning("a parser of confirmations failed", parser=version, exception=_shown(error))


def model_retried(event: ModelRetried, run_id: str, model: str) -> None:
    """Tell that a model is called again, and why."""
    _log.warning(
        "a model call failed; trying again",
        run=run_id,
        model=model,
        attempt=event.attempt,
        wait_ms=event.wait_ms,
        code=event.error.code,
        error=event.error.message,
    )


def model_fell_back(failed: str, following: str, error: ProviderError) -> None:
    """Tell that a model gave no reply, and which one is asked instead."""
    _log.warning(
        "a model gave no reply; asking the next one",
        model=failed,
        next=following,
        code=error.code,
        error=str(error),
    )


def embeddings_failed(model: str, error: Exception) -> None:
    """Tell that no vectors could be made, so that memories are found by their words alone."""
    _log.warning("no embeddings; memories are found by words", model=model, error=str(error))


def run_failed(event: RunFailed, run_id: str, agent: str) -> None:
    """Tell that a run has come to nothing."""
    error = event.error
    _log.warning("a run failed", run=run_id, agent=agent, code=error.code, error=error.message)


def run_taken_over(event: RunResumed, run_id: str) -> None:
    """Tell that a run goes on here that another worker had in hand."""
    _log.info("took a run over", run=run_id, attempt=event.attempt, why=event.why)


def run_handed_back(run_id: str) -> None:
    """Tell that a run is left to another worker."""
    _log.info("handed a run back", run=run_id)


def _shown(raised: BaseException) -> str:
    """Return the traceback, whose end says the most, without any variable's value."""
    try:
        lines = "".join(traceback.format_exception(raised)).rstrip()
    except Exception:  # It cannot even be printed, and the run goes on all the same.
        return type(raised).__name__
    cut = len(lines) - TRACEBACK_CHARS_MAX
    return lines if cut <= 0 else f"[{cut} characters cut] …{lines[cut:]}"
