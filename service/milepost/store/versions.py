"""Rows that change a version at a time: what is said of one that is not at the version expected."""

from typing import Protocol

from milepost.core.errors import ConflictError


class Versioned(Protocol):
    """What changes by making its next version."""

    @property
    def id(self) -> str:
        """What it is called, whatever its version."""

    @property
    def version(self) -> int:
        """How often it was changed, from 1."""


def moved(kind: str, row: Versioned, expected: int | None) -> ConflictError:
    """Return the error for a row that is there, as it was found, and is not as expected."""
    return ConflictError(
        f"{kind} {row.id} is at version {row.version}, not {expected}; read it again",
        code="precondition_failed",
    )
