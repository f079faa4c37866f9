"""What came of a call: one shape for success and failure, whoever asked for it."""

from typing import Literal, Self

from milepost.core.errors import ToolError
from milepost.core.frozen import dataclass
from milepost.core.json import Json
from milepost.tools.results import as_text

OutcomeStatus = Literal["ok", "error"]


@dataclass(frozen=True, slots=True)
class OutcomeError:
    """Why a call failed, in words for the model; `type` is the stable code of the error."""

    type: str
    message: str
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call; `latency_ms` is how long it took, whichever way it ended.

    `cause` is the error that was raised, for those who look into it; it is not for the model.
    """

    status: OutcomeStatus
    content: Json = None
    error: OutcomeError | None = None
    latency_ms: int = 0
    cause: ToolError | None = None

    @classmethod
    def of_error(cls, error: ToolError, latency_ms: int) -> Self:
        """Return the outcome of a call that ended in `error`."""
        told = OutcomeError(error.code, str(error), error.retryable)
        return cls("error", error=told, latency_ms=latency_ms, cause=error)

    def raise_for_error(self) -> Self:
        """Return this if the call succeeded; raise the ToolError that it failed with if not."""
        if self.error is None:
            return self
        error = ToolError(self.error.message, code=self.error.type, retryable=self.error.retryable)
        raise self.cause or error

    def as_text(self) -> str:
        """Return what a model reads: the content, or what went wrong."""
        return as_text(self.content) if self.error is None else f"Error: {self.error.message}"
