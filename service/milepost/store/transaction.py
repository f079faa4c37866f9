"""A transaction that stays open between statements, for SQL that is not ours."""

import functools
import re
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from sqlalchemy import text

from milepost.core.errors import MilepostError
from milepost.store.dialect import DIALECTS, DialectName
from milepost.store.work import Work

T = TypeVar("T")
Row = dict[str, Any]

ROWS_MAX = 10_000
FINISH_S = 2.0
"""How long a transaction lasts beyond the time of who writes in it, so that it can be ended."""
_TEXTS_MAX = 256

_COMMENTS = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_NOT_THEIRS = frozenset(
    {
        "BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "PREPARE",
        "SET", "RESET", "DISCARD", "PRAGMA", "ATTACH", "DETACH", "VACUUM", "LISTEN", "NOTIFY",
        "LOCK", "DEALLOCATE",
    }
)  # fmt: skip


# What drivers raise of a value, before the database has seen it: half a surrogate pair, 2**70.
UNSENDABLE = (ValueError, OverflowError)


class StatementRefusedError(MilepostError):
    """A statement cannot be run in the transaction, which can only be rolled back now."""

    code = "statement_refused"


class OpenTransaction(Protocol):
    """A transaction, begun. It is rolled back when it is left without a commit, or too late."""

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run a statement of somebody else's. Raises `StatementRefusedError`."""

    async def work(self, work: Work[T]) -> T:
        """Do work of the store's own within it."""

    async def commit(self) -> None:
        """Make all of it durable. Raises `DatabaseUnavailableError` where nobody knows if it is.

        Raises `StatementRefusedError` for a constraint that is looked at only now: then it is not.
        """


def rendered(
    sql: str, parameters: Mapping[str, Any], dialect: DialectName
) -> tuple[str, dict[str, Any]]:
    """Return what a driver's cursor takes. Raises `StatementRefusedError`."""
    written, named = _compiled(sql, dialect)
    if missing := sorted(named - parameters.keys()):
        raise StatementRefusedError(
            f"the statement names :{missing[0]}, which has no value; a colon that begins no"
            r" parameter is written \:"
        )
    if foreign := sorted(parameters.keys() - named):
        raise StatementRefusedError(
            f"the statement does not name :{foreign[0]}; leave it out, or write"
            f" CAST(:{foreign[0]} AS ...) where a type follows it"
        )
    return written, dict(parameters)


@functools.lru_cache(maxsize=_TEXTS_MAX)
def _compiled(sql: str, dialect: DialectName) -> tuple[str, frozenset[str]]:
    """Return the text for `dialect` and its parameters' names.

    Refuses what ends a transaction, or changes a connection's settings, and what is no statement.
    """
    if "\x00" in sql:
        raise StatementRefusedError("a statement has no NUL characters")
    behind_comments = _COMMENTS.match(sql)
    assert behind_comments is not None, "there may be none"
    word = re.match(r"\w*", sql[behind_comments.end() :])
    first = word[0].upper() if word else ""
    if first in _NOT_THEIRS or not first:
        raise StatementRefusedError(
            f"{first or 'nothing'} is no statement for a tool: its transaction is begun and ended"
            " for it, and so are its settings"
        )
    compiled = text(sql).compile(dialect=DIALECTS[dialect])
    return str(compiled), frozenset(compiled.params)


def as_rows(names: list[str], found: list[tuple[Any, ...]]) -> list[Row]:
    """Return the rows by the names of their columns; refuse more than anybody should hold."""
    if len(found) > ROWS_MAX:
        raise StatementRefusedError(f"there are more than {ROWS_MAX} rows; ask for fewer: LIMIT")
    return [dict(zip(names, row, strict=True)) for row in found]
