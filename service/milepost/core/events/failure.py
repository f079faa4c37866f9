"""Why something failed."""

from milepost.core.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed: `code` is stable, `retryable` says whether trying again may help."""

    code: str
    message: str
    retryable: bool = False
    retry_after_s: float | None = None
