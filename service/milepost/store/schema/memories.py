"""What was learned of conversations, and the words by which it is found."""

from sqlalchemy import DDL, BigInteger, Column, Index, Integer, Table, Text, event

from milepost.store.schema.columns import metadata, number, partial_index, string

# What was learned of conversations. `words` is what it is found by, `number` its row in SQLite's
# index of words.
memories = Table(
    "memories",
    metadata,
    Column(
        "number",
        BigInteger().with_variant(Integer(), "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    string("id"),
    string("tenant"),
    string("scope"),
    string("owner"),
    string("kind"),
    string("key"),
    string("origin"),
    string("subject", ""),
    string("predicate", ""),
    string("object", ""),
    string("content", ""),
    string("words", ""),
    string("attributes", "{}"),
    Column("user_id", Text),
    Column("run_id", Text),
    Column("session_id", Text),
    Column("place", Text),
    Column("embedding", Text),
    Column("embedded_by", Text),
    Column("mentions", Integer, nullable=False, server_default="1"),
    Column("version", Integer, nullable=False, server_default="1"),
    number("created_ms", 0),
    number("updated_ms", 0),
    number("seen_ms", 0),
    Index(None, "tenant", "id"),
    Index(None, "id", unique=True),
    Index("uq_memories_key", "tenant", "scope", "owner", "kind", "key", unique=True),
    Index("ix_memories_seen", "tenant", "scope", "owner", "kind", "seen_ms"),
    Index(None, "tenant", "updated_ms"),
    partial_index("ix_memories_user", "tenant", "user_id", "id", where="user_id IS NOT NULL"),
    partial_index("ix_memories_run", "run_id", where="run_id IS NOT NULL"),
    partial_index("ix_memories_bare", "number", where="embedding IS NULL"),
)

# Whose a memory is stands in the index as one word, so that others' words are not looked through.
_OWNED = "lower(hex({0}.tenant || char(10) || {0}.scope || char(10) || {0}.owner))"
_ADD_WORDS = (
    "INSERT INTO memory_words(rowid, words, owned)"  # noqa: S608 - our own text
    f" VALUES (new.number, new.words, {_OWNED.format('new')});"
)
_TAKE_WORDS = (
    "INSERT INTO memory_words(memory_words, rowid, words, owned)\n"
    f"VALUES ('delete', old.number, old.words, {_OWNED.format('old')});"
)
_WORDS_OF_SQLITE = (
    """CREATE VIRTUAL TABLE memory_words USING fts5(words, owned, content='',
tokenize='unicode61 remove_diacritics 0')""",
    f"CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN\n{_ADD_WORDS} END",
    f"CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN\n{_TAKE_WORDS} END",
    f"""CREATE TRIGGER memories_reworded AFTER UPDATE OF words ON memories
WHEN old.words <> new.words BEGIN
{_TAKE_WORDS}
{_ADD_WORDS} END""",
)
_WORDS_OF_POSTGRES = (
    "CREATE INDEX ix_memories_words ON memories USING gin (to_tsvector('simple', words))",
)


def _beside(table: Table, moment: str, statements: tuple[str, ...], dialect: str) -> None:
    """Have one database do what the others have no word for."""
    for statement in statements:
        made = DDL(statement)  # type: ignore[no-untyped-call]  # untyped upstream
        event.listen(table, moment, made.execute_if(dialect=dialect))


_beside(memories, "after_create", _WORDS_OF_SQLITE, "sqlite")
_beside(memories, "before_drop", ("DROP TABLE IF EXISTS memory_words",), "sqlite")
_beside(memories, "after_create", _WORDS_OF_POSTGRES, "postgresql")

# Runs that are over, and from which something is to be learned.
recollections = Table(
    "recollections",
    metadata,
    Column("run_id", Text, primary_key=True),
    string("tenant"),
    number("created_ms", 0),
    Index(None, "created_ms"),
)
