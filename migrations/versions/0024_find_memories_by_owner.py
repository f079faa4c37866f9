"""Find memories by their owners' words alone, and by the run that they are from."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

_OWNED = "lower(hex({0}.tenant || char(10) || {0}.scope || char(10) || {0}.owner))"
_ADD = (
    "INSERT INTO memory_words(rowid, words, owned)"  # noqa: S608 - our own text
    f" VALUES (new.number, new.words, {_OWNED.format('new')});"
)
_TAKE = (
    "INSERT INTO memory_words(memory_words, rowid, words, owned)\n"
    f"VALUES ('delete', old.number, old.words, {_OWNED.format('old')});"
)
_FILL = (
    "INSERT INTO memory_words(rowid, words, owned)"  # noqa: S608 - our own text
    f" SELECT number, words, {_OWNED.format('memories')} FROM memories"
)
_WITHOUT = tuple(f"DROP TRIGGER memories_{each}" for each in ("added", "removed", "reworded"))
# What is kept stands in the memories themselves: the index has no copy of it.
_WITH = (
    """CREATE VIRTUAL TABLE memory_words USING fts5(words, owned, content='',
tokenize='unicode61 remove_diacritics 0')""",
    f"CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN\n{_ADD} END",
    f"CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN\n{_TAKE} END",
    f"""CREATE TRIGGER memories_reworded AFTER UPDATE OF words ON memories
WHEN old.words <> new.words BEGIN
{_TAKE}
{_ADD} END""",
    _FILL,
)
_BEFORE = (
    """CREATE VIRTUAL TABLE memory_words USING fts5(words, content='memories',
content_rowid='number', tokenize='unicode61 remove_diacritics 0')""",
    """CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
INSERT INTO memory_words(rowid, words) VALUES (new.number, new.words); END""",
    """CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
INSERT INTO memory_words(memory_words, rowid, words) VALUES ('delete', old.number, old.words);
END""",
    """CREATE TRIGGER memories_reworded AFTER UPDATE OF words ON memories
WHEN old.words <> new.words BEGIN
INSERT INTO memory_words(memory_words, rowid, words) VALUES ('delete', old.number, old.words);
INSERT INTO memory_words(rowid, words) VALUES (new.number, new.words); END""",
    "INSERT INTO memory_words(memory_words) VALUES ('rebuild')",
)


def upgrade() -> None:
    _rebuild(_WITH)
    said = sa.text("run_id IS NOT NULL")
    with op.get_context().autocommit_block():
        op.create_index(
            "ix_memories_run",
            "memories",
            ["run_id"],
            sqlite_where=said,
            postgresql_where=said,
            postgresql_concurrently=True,
            if_not_exists=True,
        )


def downgrade() -> None:
    op.drop_index("ix_memories_run", "memories")
    _rebuild(_BEFORE)


def _rebuild(statements: tuple[str, ...]) -> None:
    if op.get_bind().dialect.name == "sqlite":
        for statement in (*_WITHOUT, "DROP TABLE memory_words", *statements):
            op.execute(statement)
