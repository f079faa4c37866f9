"""What is said of a run or a session that is not there, or not this tenant's: both sound alike."""

from milepost.core.errors import NotFoundError


def run_not_found(run_id: str) -> NotFoundError:
    """Return the error for a run."""
    return NotFoundError(f"there is no run {run_id}", code="run_not_found")


def session_not_found(session_id: str) -> NotFoundError:
    """Return the error for a session."""
    return NotFoundError(f"there is no session {session_id}", code="session_not_found")
