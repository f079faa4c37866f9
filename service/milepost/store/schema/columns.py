"""What the tables are made of."""

from sqlalchemy import BigInteger, Column, Index, MetaData, Text, TextClause, text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def number(name: str, default: int | None = None) -> Column[int]:
    """Return a column of integers, which may be null unless it has a default."""
    if default is None:
        return Column(name, BigInteger)
    return Column(name, BigInteger, nullable=False, server_default=str(default))


def string(name: str, default: str | None = None) -> Column[str]:
    """Return a column of text that is never null."""
    if default is None:
        return Column(name, Text, nullable=False)
    return Column(name, Text, nullable=False, server_default=default)


def partial_index(name: str, *columns: str | TextClause, where: str, unique: bool = False) -> Index:
    """Return an index of the rows for which `where` holds, on either database."""
    holds = text(where)
    return Index(name, *columns, unique=unique, sqlite_where=holds, postgresql_where=holds)
