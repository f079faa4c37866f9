"""Every error that Milepost raises on purpose.

MilepostError
├── InvalidError            the caller sent something that cannot be accepted
├── NotFoundError           no such thing, or it belongs to somebody else
├── ConflictError           the thing is in a state that does not allow this
├── ForbiddenError          the caller is known, and may not
├── UnauthorizedError       the caller is not known
├── OverloadedError         try again later
├── UnavailableError        a part that this needs is not there
├── ConfigurationError      a setting, a file or an installation is wrong; do not start
├── ApiError                a Milepost server refused or failed: what its clients see
├── RunError                a run in process did not complete: what `raise_for_status` raises
├── FencedError             somebody else owns the run now; write nothing more
├── ToolError               a tool call came to nothing
│   ├── ToolValidationError its arguments, or the tool's own definition, do not fit
│   └── PendingActionExistsError  another action waits for a yes in the conversation
└── ProviderError           the model's vendor refused or failed

`code` is stable and documented; `retryable` says whether the same request may succeed later.
"""

from collections.abc import Mapping
from typing import ClassVar

from milepost.core.json import Json


class MilepostError(Exception):
    """The root. `code` is part of the interface, the message is for people."""

    code: str = "internal"
    retryable: bool = False

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        """Go through a pickle as what it says: pools of processes bring errors so."""
        return _as_it_was, (type(self), self.args), vars(self)


def _as_it_was(kind: type[MilepostError], args: tuple[object, ...]) -> MilepostError:
    """Return an error without making it anew, for which its message alone does not do."""
    return kind.__new__(kind, *args)


class InvalidError(MilepostError):
    """What was sent cannot be accepted. `pointer` is the JSON pointer of the culprit, if one is."""

    code = "invalid_request"

    def __init__(
        self, message: str, *, code: str | None = None, pointer: str | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.pointer = pointer


class NotFoundError(MilepostError):
    """There is no such thing, or it is another tenant's, which must look the same."""

    code = "not_found"


class ConflictError(MilepostError):
    """The thing's present state does not allow what was asked."""

    code = "conflict"


class ForbiddenError(MilepostError):
    """The caller's key does not carry the right for this."""

    code = "forbidden"


class UnauthorizedError(MilepostError):
    """No key, or none that is known."""

    code = "unauthorized"


class OverloadedError(MilepostError):
    """A bound was reached; `retry_after_s` says when to come back."""

    code = "queue_full"
    retryable = True

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: float = 1) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class UnavailableError(MilepostError):
    """A part that this needs does not answer just now."""

    code = "unavailable"
    retryable = True
    retry_after_s: ClassVar[float] = 1


class ConfigurationError(MilepostError):
    """A setting, a file or the installation is wrong: say so and do not start."""

    code = "misconfigured"


class ApiError(MilepostError):
    """A Milepost server refused, or failed. `problem` is all that it said (RFC 9457).

    `retry_after_s` is when it asked to be tried again, if it did.
    """

    code = "api_error"

    def __init__(
        self, problem: Mapping[str, Json], *, status: int, retry_after_s: float | None = None
    ) -> None:
        super().__init__(
            str(problem.get("detail") or f"the server answered {status}"),
            code=str(problem.get("code") or self.code),
        )
        self.problem = problem
        self.status = status
        self.retryable = bool(problem.get("retryable"))
        self.retry_after_s = retry_after_s

    @property
    def request_id(self) -> str | None:
        """What the server calls the request in its own log."""
        named = self.problem.get("request_id")
        return None if named is None else str(named)


class RunError(MilepostError):
    """A run in process did not complete. `code` is its error's, or why it ended."""

    code = "run_not_completed"

    def __init__(self, message: str, *, code: str | None = None, retryable: bool = False) -> None:
        super().__init__(message, code=code)
        self.retryable = retryable


class FencedError(MilepostError):
    """Another worker, or the API, has taken the run over since: stop at once, write nothing."""

    code = "fenced"


class ToolError(MilepostError):
    """A tool call came to nothing. The message is written for the model that must go on."""

    code = "tool_failed"

    def __init__(self, message: str, *, code: str | None = None, retryable: bool = False) -> None:
        super().__init__(message, code=code)
        self.retryable = bool(retryable)  # It is written down, and tools hand in anything.


class ToolValidationError(ToolError):
    """A tool's arguments, or its definition, do not fit its schema.

    The message says all. Of arguments, the parts say it apart: which `tool`, which `parameter`
    (empty where it is the call as a whole), the `issue`, and a `suggestion` where there is one.
    """

    code = "invalid_arguments"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        tool: str = "",
        parameter: str = "",
        issue: str = "",
        suggestion: str = "",
    ) -> None:
        super().__init__(message, code=code)
        self.tool = tool
        self.parameter = parameter
        self.issue = issue
        self.suggestion = suggestion


class PendingActionExistsError(ToolError):
    """Another action waits for the user's yes in the conversation: there is one at a time."""

    code = "pending_action_exists"


class ProviderError(MilepostError):
    """The vendor refused or failed. `retryable` says whether the same request may yet succeed.

    `retry_after_s` is what the vendor asked us to wait, `status` its HTTP status where it had one.
    `at_work` says whether it was at work, and may bill that; None: `code` and `status` tell.
    """

    code = "provider_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.status = status
        self.at_work: bool | None = None
