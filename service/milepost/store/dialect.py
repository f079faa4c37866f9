"""Every place where SQLite and Postgres differ. If you write `if dialect`, it belongs here."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import orjson
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    ColumnClause,
    ColumnElement,
    Double,
    Executable,
    Table,
    Text,
    bindparam,
    column,
    literal,
    literal_column,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.sql.selectable import TableValuedAlias

DialectName = Literal["sqlite", "postgresql"]

DIALECTS: dict[DialectName, Dialect] = {
    "sqlite": SQLiteDialect_pysqlite(paramstyle="named"),
    "postgresql": PGDialect_psycopg(),  # type: ignore[no-untyped-call]  # untyped upstream
}


def text(name: str) -> BindParameter[str]:
    """Return a named text parameter, whose value comes with each execution."""
    return bindparam(name, type_=Text, required=False)


def number(name: str) -> BindParameter[int]:
    """Return a named integer parameter, whose value comes with each execution."""
    return bindparam(name, type_=BigInteger, required=False)


def word(value: str) -> BindParameter[str]:
    """Return a constant written into the text, without which no partial index would be used."""
    return literal(value, Text, literal_execute=True)


def words(values: tuple[str, ...]) -> BindParameter[Any]:
    """Return constants for an IN, written into the text like `word`."""
    return bindparam(None, values, type_=Text, expanding=True, literal_execute=True)


_POSTGRES_TYPES = {"BIGINT": "bigint", "TEXT": "text"}


class now_ms(FunctionElement[int]):  # noqa: N801 - reads as a SQL function
    """The database's clock in milliseconds, so that workers' clocks cannot disagree on a lease."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_ms, "sqlite")
def _now_ms_sqlite(*_: Any, **__: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


@compiles(now_ms, "postgresql")
def _now_ms_postgresql(*_: Any, **__: Any) -> str:
    # clock_timestamp() moves on inside a transaction, now() stands still at its start.
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"


class _rows(FunctionElement[Any]):  # noqa: N801 - reads as a SQL function
    """A JSON array of objects in one parameter, read as a table."""

    inherit_cache = False

    def __init__(self, parameter: str, columns: list[ColumnClause[Any]]) -> None:
        self.names = [(item.name, item.type) for item in columns]
        super().__init__(text(parameter))


@compiles(_rows, "sqlite")
def _rows_sqlite(element: _rows, compiler: SQLCompiler, **options: Any) -> str:
    picked = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name, _ in element.names)
    source = compiler.process(element.clauses, **options)
    return f"(SELECT {picked} FROM json_each({source}))"  # noqa: S608 - names are the code's own


@compiles(_rows, "postgresql")
def _rows_postgresql(element: _rows, compiler: SQLCompiler, **options: Any) -> str:
    types = ", ".join(f"{name} {_POSTGRES_TYPES[str(kind)]}" for name, kind in element.names)
    source = compiler.process(element.clauses, **options)
    return f"(SELECT * FROM json_to_recordset(CAST({source} AS json)) AS r({types}))"  # noqa: S608


def rows(parameter: str, *names: str, numbers: tuple[str, ...] = ()) -> TableValuedAlias:
    """Return a table with text columns `names` and bigint columns `numbers`, filled from JSON.

    The parameter is a JSON array of objects: one statement then serves a whole batch, at the cost
    of one parameter, which is a fifth of what an array for each column takes psycopg to send.
    """
    columns: list[ColumnClause[Any]] = [column(name, Text) for name in names]
    columns += [column(name, BigInteger) for name in numbers]
    return _rows(parameter, columns).table_valued(*columns, name=parameter)


class among(FunctionElement[bool]):  # noqa: N801 - reads as a SQL function
    """Whether a column is one of a query's: `among(column, select(...).scalar_subquery())`.

    Postgres is handed an array, so that it looks each up in the column's index; of an IN it may
    make a join that reads the whole table.
    """

    type = Boolean()
    inherit_cache = True

    def self_group(self, against: OperatorType | None = None) -> "among":  # noqa: ARG002
        """Stay as it is: SQLAlchemy would compare it with 1, and SQLite would see no index."""
        return self


@compiles(among, "sqlite")
def _among_sqlite(element: among, compiler: SQLCompiler, **options: Any) -> str:
    column, query = (compiler.process(part, **options) for part in element.clauses)
    return f"{column} IN {query}"


@compiles(among, "postgresql")
def _among_postgresql(element: among, compiler: SQLCompiler, **options: Any) -> str:
    column, query = (compiler.process(part, **options) for part in element.clauses)
    return f"{column} = ANY(ARRAY{query})"


class at_start(FunctionElement[str]):  # noqa: N801 - reads as a SQL function
    """A text parameter that picks partitions when a statement starts, not when it is planned.

    Postgres prunes for a parameter in either way. But what it could prune as it plans, it plans
    anew for every execution, which takes longer than the statement itself. `concat` may depend on
    settings, as far as the planner knows: so it keeps one plan, and opens only what that needs.
    """

    type = Text()
    inherit_cache = True


@compiles(at_start, "sqlite")
def _at_start_sqlite(element: at_start, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


@compiles(at_start, "postgresql")
def _at_start_postgresql(element: at_start, compiler: SQLCompiler, **options: Any) -> str:
    return f"concat({compiler.process(element.clauses, **options)})"


class in_reach(FunctionElement[bool]):  # noqa: N801 - reads as a SQL function
    """Whether a run's id lies in the `reach` that comes with the execution: where to look for it.

    Says nothing that a join with these runs does not say; but of a join Postgres must open every
    partition first. SQLite has none.
    """

    type = Boolean()
    inherit_cache = True

    def __init__(self, run_id: ColumnElement[str]) -> None:
        super().__init__(run_id, at_start(text("first_run")), at_start(text("last_run")))

    def self_group(self, against: OperatorType | None = None) -> "in_reach":  # noqa: ARG002
        """Stay as it is: it is a condition, not a value to compare."""
        return self


@compiles(in_reach, "sqlite")
def _in_reach_sqlite(*_: Any, **__: Any) -> str:
    return "1"


@compiles(in_reach, "postgresql")
def _in_reach_postgresql(element: in_reach, compiler: SQLCompiler, **options: Any) -> str:
    run_id, first, last = (compiler.process(part, **options) for part in element.clauses)
    return f"{run_id} BETWEEN {first} AND {last}"


def reach(run_ids: Iterable[str]) -> dict[str, str]:
    """Return the parameters of `in_reach` for these runs."""
    known = list(run_ids)
    return {"first_run": min(known, default=""), "last_run": max(known, default="")}


class packed(FunctionElement[str]):  # noqa: N801 - reads as a SQL function
    """All rows of a query as one text, which `unpacked` reads.

    The driver of SQLite lets go of the interpreter, and waits for it again, at each row: with an
    event loop beside it that is 40 microseconds a row, where packing costs less than one.
    """

    type = Text()
    inherit_cache = True


@compiles(packed, "sqlite")
def _packed_sqlite(element: packed, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_group_array(json_array({compiler.process(element.clauses, **options)}))"


@compiles(packed, "postgresql")
def _packed_postgresql(element: packed, compiler: SQLCompiler, **options: Any) -> str:
    built = f"json_agg(json_build_array({compiler.process(element.clauses, **options)}))"
    return f"CAST(coalesce({built}, '[]') AS TEXT)"


def unpacked(found: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return the rows of a query for `packed` columns."""
    ((text_,),) = found
    rows: list[list[Any]] = orjson.loads(text_)
    return rows


def rows_of(items: Iterable[Mapping[str, Any]]) -> str:
    """Return the parameter that `rows` reads as a table."""
    return orjson.dumps(list(items)).decode()


def rows_of_ids(ids: Iterable[str]) -> str:
    """Return the parameter that `rows` reads as a table with a column `id` alone."""
    return rows_of({"id": each} for each in ids)


def insert_new(table: Table) -> postgresql.Insert:
    """Return an insert that leaves out a row whose key is there; only RETURNING tells.

    Both databases read the same text. Postgres waits for a rival that has not committed yet.
    """
    return postgresql.insert(table).on_conflict_do_nothing()


class _worded(FunctionElement[Any]):  # noqa: N801 - reads as a SQL function
    """The memories of a tenant in which one of some words occurs, or begins a word, with a score.

    The parameters are `tenant` and `words`: letters and digits, with a space between words; and
    `owned`, which `owned_by` makes: SQLite's index has all tenants' words, and looks no further.
    """

    inherit_cache = False

    def __init__(self) -> None:
        super().__init__(text("words"), text("tenant"), text("owned"))


@compiles(_worded, "sqlite")
def _worded_sqlite(element: _worded, compiler: SQLCompiler, **options: Any) -> str:
    words, _, owned = (compiler.process(part, **options) for part in element.clauses)
    wanted = f"""{owned} || 'words : ("' || replace({words}, ' ', '"* OR "') || '"*)'"""
    return (
        "(SELECT rowid AS number, -bm25(memory_words, 1.0, 0.0) AS score"  # noqa: S608 - our own text
        f" FROM memory_words WHERE memory_words MATCH {wanted})"
    )


@compiles(_worded, "postgresql")
def _worded_postgresql(element: _worded, compiler: SQLCompiler, **options: Any) -> str:
    words, tenant, _ = (compiler.process(part, **options) for part in element.clauses)
    wanted = f"to_tsquery('simple', replace({words}, ' ', ':* | ') || ':*')"
    indexed = "to_tsvector('simple', said.words)"
    return (
        f"(SELECT said.number, ts_rank({indexed}, {wanted}) AS score FROM memories AS said"  # noqa: S608 - our own text
        f" WHERE said.tenant = {tenant} AND {indexed} @@ {wanted})"
    )


def owned_by(tenant: str, owners: Iterable[tuple[str, str]]) -> str:
    """Return what keeps a search for words to these owners, each a scope and a name; see `_worded`.

    Of none it is empty, and all are looked through.
    """
    tokens = [f"{tenant}\n{scope}\n{name}".encode().hex() for scope, name in owners]
    return f"owned : ({' OR '.join(tokens)}) AND " if tokens else ""


def worded() -> TableValuedAlias:
    """Return the numbers of memories in which words occur, with a score: see `_worded`."""
    columns: list[ColumnClause[Any]] = [column("number", BigInteger), column("score", Double)]
    return _worded().table_valued(*columns, name="found")


class distance(FunctionElement[float]):  # noqa: N801 - reads as a SQL function
    """How far two vectors, written as JSON, lie apart: for Postgres with pgvector alone."""

    type = Double()
    inherit_cache = True


@compiles(distance, "postgresql")
def _distance_postgresql(element: distance, compiler: SQLCompiler, **options: Any) -> str:
    one, other = (compiler.process(part, **options) for part in element.clauses)
    return f"(CAST({one} AS vector) <=> CAST({other} AS vector))"


class has_vectors(FunctionElement[bool]):  # noqa: N801 - reads as a SQL function
    """Whether the database itself knows vectors: Postgres does where pgvector is installed."""

    type = Boolean()
    inherit_cache = True


@compiles(has_vectors, "sqlite")
def _has_vectors_sqlite(*_: Any, **__: Any) -> str:
    return "0"


@compiles(has_vectors, "postgresql")
def _has_vectors_postgresql(*_: Any, **__: Any) -> str:
    return "EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'vector')"


class tidied_words(Executable, ClauseElement):  # noqa: N801 - reads as a SQL statement
    """Leaves nothing of what was deleted in SQLite's index of words, where it would stay a while.

    Postgres takes it out when it vacuums, as it does everything.
    """

    inherit_cache = True


@compiles(tidied_words, "sqlite")
def _tidied_words_sqlite(*_: Any, **__: Any) -> str:
    return "INSERT INTO memory_words(memory_words) VALUES ('optimize')"


@compiles(tidied_words, "postgresql")
def _tidied_words_postgresql(*_: Any, **__: Any) -> str:
    return "SELECT 1"


class advisory_lock(Executable, ClauseElement):  # noqa: N801 - reads as a SQL statement
    """Holds a lock that only has a number until the transaction ends: `shared`, or alone.

    The number may be a parameter. SQLite has one writer at a time, and needs none.
    """

    inherit_cache = False

    def __init__(self, key: int | BindParameter[int], *, shared: bool) -> None:
        self.key = literal_column(str(key)) if isinstance(key, int) else key
        self.shared = shared


@compiles(advisory_lock, "sqlite")
def _advisory_lock_sqlite(*_: Any, **__: Any) -> str:
    return "SELECT 1"


@compiles(advisory_lock, "postgresql")
def _advisory_lock_postgresql(element: advisory_lock, compiler: SQLCompiler, **options: Any) -> str:
    manner = "_shared" if element.shared else ""
    return f"SELECT pg_advisory_xact_lock{manner}({compiler.process(element.key, **options)})"


class idle_bound(Executable, ClauseElement):  # noqa: N801 - reads as a SQL statement
    """Ends the transaction whose client says nothing for so many milliseconds: it may be frozen.

    SQLite has no such bound, and no second process either.
    """

    inherit_cache = False

    def __init__(self, idle_ms: int) -> None:
        self.idle_ms = idle_ms


@compiles(idle_bound, "sqlite")
def _idle_bound_sqlite(*_: Any, **__: Any) -> str:
    return "SELECT 1"


@compiles(idle_bound, "postgresql")
def _idle_bound_postgresql(element: idle_bound, *_: Any, **__: Any) -> str:
    return f"SELECT set_config('idle_in_transaction_session_timeout', '{element.idle_ms}ms', true)"


class json_text(FunctionElement[str]):  # noqa: N801 - reads as a SQL function
    """The text of one member of a JSON object: `json_text(column, key)`."""

    type = Text()
    inherit_cache = True


@compiles(json_text, "sqlite")
def _json_text_sqlite(element: json_text, compiler: SQLCompiler, **options: Any) -> str:
    document, key = (compiler.process(part, **options) for part in element.clauses)
    # Spelled as JSON does, any key is found but one with a quote in it, which the API refuses.
    return f"json_extract({document}, '$.' || json_quote({key}))"


@compiles(json_text, "postgresql")
def _json_text_postgresql(element: json_text, compiler: SQLCompiler, **options: Any) -> str:
    document, key = (compiler.process(part, **options) for part in element.clauses)
    return f"(CAST({document} AS json) ->> {key})"


class json_list_is_empty(FunctionElement[bool]):  # noqa: N801 - reads as a SQL function
    """Whether a list within a JSON object has nothing in it, or is not there."""

    type = Boolean()
    inherit_cache = False

    def __init__(self, document: ColumnElement[str], name: str) -> None:
        self.name = name
        super().__init__(document)

    def self_group(self, against: OperatorType | None = None) -> "json_list_is_empty":  # noqa: ARG002
        """Stay as it is: it is a condition, not a value to compare."""
        return self


@compiles(json_list_is_empty, "sqlite")
def _json_list_is_empty_sqlite(
    element: json_list_is_empty, compiler: SQLCompiler, **options: Any
) -> str:
    (document,) = (compiler.process(part, **options) for part in element.clauses)
    return f"(NOT EXISTS (SELECT 1 FROM json_each({document}, '$.{element.name}')))"  # noqa: S608


@compiles(json_list_is_empty, "postgresql")
def _json_list_is_empty_postgresql(
    element: json_list_is_empty, compiler: SQLCompiler, **options: Any
) -> str:
    (document,) = (compiler.process(part, **options) for part in element.clauses)
    return f"(coalesce(CAST({document} AS jsonb) -> '{element.name}', '[]') = '[]')"


class json_list_has(FunctionElement[bool]):  # noqa: N801 - reads as a SQL function
    """Whether a list within a JSON object has any of some texts; false if it is not there."""

    type = Boolean()
    inherit_cache = False

    def __init__(self, document: ColumnElement[str], name: str, wanted: Sequence[str]) -> None:
        self.name = name
        super().__init__(document, literal(orjson.dumps(list(wanted)).decode(), Text))

    def self_group(self, against: OperatorType | None = None) -> "json_list_has":  # noqa: ARG002
        """Stay as it is: it is a condition, not a value to compare."""
        return self


@compiles(json_list_has, "sqlite")
def _json_list_has_sqlite(element: json_list_has, compiler: SQLCompiler, **options: Any) -> str:
    document, wanted = (compiler.process(part, **options) for part in element.clauses)
    listed = f"json_each({document}, '$.{element.name}')"
    return (
        f"(EXISTS (SELECT 1 FROM {listed} AS listed"  # noqa: S608
        f" WHERE listed.value IN (SELECT value FROM json_each({wanted}))))"
    )


@compiles(json_list_has, "postgresql")
def _json_list_has_postgresql(element: json_list_has, compiler: SQLCompiler, **options: Any) -> str:
    document, wanted = (compiler.process(part, **options) for part in element.clauses)
    listed = f"coalesce(CAST({document} AS jsonb) -> '{element.name}', '[]')"
    return f"({listed} ?| ARRAY(SELECT json_array_elements_text(CAST({wanted} AS json))))"


class json_flag(FunctionElement[bool]):  # noqa: N801 - reads as a SQL function
    """Whether a member of a JSON object is true, or is not there."""

    type = Boolean()
    inherit_cache = False

    def __init__(self, document: ColumnElement[str], name: str) -> None:
        self.name = name
        super().__init__(document)

    def self_group(self, against: OperatorType | None = None) -> "json_flag":  # noqa: ARG002
        """Stay as it is: it is a condition, not a value to compare."""
        return self


@compiles(json_flag, "sqlite")
def _json_flag_sqlite(element: json_flag, compiler: SQLCompiler, **options: Any) -> str:
    (document,) = (compiler.process(part, **options) for part in element.clauses)
    return f"coalesce(json_extract({document}, '$.{element.name}'), 1) = 1"


@compiles(json_flag, "postgresql")
def _json_flag_postgresql(element: json_flag, compiler: SQLCompiler, **options: Any) -> str:
    (document,) = (compiler.process(part, **options) for part in element.clauses)
    return f"coalesce(CAST(CAST({document} AS json) ->> '{element.name}' AS boolean), true)"


class day_of(FunctionElement[str]):  # noqa: N801 - reads as a SQL function
    """The UTC day of Unix milliseconds, as `YYYY-MM-DD`."""

    type = Text()
    inherit_cache = True


@compiles(day_of, "sqlite")
def _day_of_sqlite(element: day_of, compiler: SQLCompiler, **options: Any) -> str:
    return (
        f"strftime('%Y-%m-%d', {compiler.process(element.clauses, **options)} / 1000, 'unixepoch')"
    )


@compiles(day_of, "postgresql")
def _day_of_postgresql(element: day_of, compiler: SQLCompiler, **options: Any) -> str:
    moment = f"to_timestamp({compiler.process(element.clauses, **options)} / 1000)"
    return f"to_char({moment} AT TIME ZONE 'UTC', 'YYYY-MM-DD')"


class hour_of(FunctionElement[str]):  # noqa: N801 - reads as a SQL function
    """The UTC hour of Unix milliseconds, as `YYYY-MM-DDTHH:00Z`."""

    type = Text()
    inherit_cache = True


@compiles(hour_of, "sqlite")
def _hour_of_sqlite(element: hour_of, compiler: SQLCompiler, **options: Any) -> str:
    moment = compiler.process(element.clauses, **options)
    return f"strftime('%Y-%m-%dT%H:00Z', {moment} / 1000, 'unixepoch')"


@compiles(hour_of, "postgresql")
def _hour_of_postgresql(element: hour_of, compiler: SQLCompiler, **options: Any) -> str:
    moment = f"to_timestamp({compiler.process(element.clauses, **options)} / 1000)"
    return f"to_char({moment} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:00\"Z\"')"
