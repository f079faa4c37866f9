"""Keep what was learned from conversations, found by its words; and which runs are to be read."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

# SQLite numbers the rows for good, so that the index of words may name them.
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_SQLITE_WORDS = (
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
)
_POSTGRES_WORDS = (
    "CREATE INDEX ix_memories_words ON memories USING gin (to_tsvector('simple', words))",
)


def upgrade() -> None:
    op.create_table(
        "memories",
        sa.Column("number", _NUMBER, nullable=False, autoincrement=True),
        *_texts("id", "tenant", "scope", "owner", "kind", "key", "origin"),
        *_texts("subject", "predicate", "object", "content", "words", default=""),
        *_texts("attributes", default="{}"),
        *_optional("user_id", "run_id", "session_id", "place", "embedding", "embedded_by"),
        sa.Column("mentions", sa.Integer(), server_default="1", nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        *_numbers("created_ms", "updated_ms", "seen_ms"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_memories")),
    )
    op.create_index(op.f("ix_memories_tenant_id"), "memories", ["tenant", "id"])
    op.create_index(op.f("ix_memories_id"), "memories", ["id"], unique=True)
    op.create_index(
        "uq_memories_key", "memories", ["tenant", "scope", "owner", "kind", "key"], unique=True
    )
    op.create_index("ix_memories_seen", "memories", ["tenant", "scope", "owner", "kind", "seen_ms"])
    op.create_index(op.f("ix_memories_tenant_updated_ms"), "memories", ["tenant", "updated_ms"])
    op.create_index(
        "ix_memories_user",
        "memories",
        ["tenant", "user_id", "id"],
        sqlite_where=sa.text("user_id IS NOT NULL"),
        postgresql_where=sa.text("user_id IS NOT NULL"),
    )
    op.create_index(
        "ix_memories_bare",
        "memories",
        ["number"],
        sqlite_where=sa.text("embedding IS NULL"),
        postgresql_where=sa.text("embedding IS NULL"),
    )
    words = {"sqlite": _SQLITE_WORDS, "postgresql": _POSTGRES_WORDS}
    for statement in words[op.get_bind().dialect.name]:
        op.execute(statement)
    op.create_table(
        "recollections",
        *_texts("run_id", "tenant"),
        *_numbers("created_ms"),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_recollections")),
    )
    op.create_index(op.f("ix_recollections_created_ms"), "recollections", ["created_ms"])


def downgrade() -> None:
    op.drop_table("recollections")
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE memory_words")
    op.drop_table("memories")


def _texts(*names: str, default: str | None = None) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=False, server_default=default) for name in names]


def _optional(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text()) for name in names]


def _numbers(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), server_default="0", nullable=False) for name in names]
