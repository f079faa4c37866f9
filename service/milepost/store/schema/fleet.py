"""Which processes there are, and which versions of the code may use the database."""

from sqlalchemy import Column, SmallInteger, Table, Text

from milepost.store.schema.columns import metadata, number

# One row: the oldest version of the code that may still use the database, by the newest schema that
# it knows.
schema_compat = Table("schema_compat", metadata, Column("oldest_code", Text, primary_key=True))

workers = Table(
    "workers",
    metadata,
    Column("id", Text, primary_key=True),
    number("until_ms", 0),
    Column("dead", SmallInteger, nullable=False, server_default="0"),
    number("started_ms", 0),
    Column("knows", Text),
    postgresql_with={"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0.01},
)
