"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "agent_versions",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("agent_id", "version", name=op.f("pk_agent_versions")),
    )
    op.create_table(
        "agents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("deleted_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
    )
    with op.batch_alter_table("agents", schema=None) as batch_op:
        batch_op.create_index(
            "uq_agents_name",
            ["tenant", "name"],
            unique=True,
            sqlite_where=sa.text("deleted_ms IS NULL"),
            postgresql_where=sa.text("deleted_ms IS NULL"),
        )

    op.create_table(
        "approvals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("preview", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("required", sa.Integer(), server_default="1", nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("decision", sa.Text(), nullable=True),
        sa.Column("comment", sa.Text(), nullable=True),
        sa.Column("decided_ms", sa.BigInteger(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
    )
    with op.batch_alter_table("approvals", schema=None) as batch_op:
        batch_op.create_index(
            "ix_approvals_expiry",
            ["expires_ms"],
            unique=False,
            sqlite_where=sa.text("status = 'pending'"),
            postgresql_where=sa.text("status = 'pending'"),
        )
        batch_op.create_index(batch_op.f("ix_approvals_run_id"), ["run_id"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_approvals_tenant_status_id"), ["tenant", "status", "id"], unique=False
        )

    op.create_table(
        "audit",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), server_default="{}", nullable=False),
        sa.Column("time_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_audit_tenant_id"), ["tenant", "id"], unique=False)

    op.create_table(
        "events",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("append_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("time_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_events")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "idempotency",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("resource_id", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("tenant", "scope", "key", name=op.f("pk_idempotency")),
    )
    with op.batch_alter_table("idempotency", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_idempotency_created_ms"), ["created_ms"], unique=False)

    op.create_table(
        "inbox",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_inbox")),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
    )
    with op.batch_alter_table("keys", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_keys_hash"), ["hash"], unique=True)
        batch_op.create_index(batch_op.f("ix_keys_tenant_id"), ["tenant", "id"], unique=False)

    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("agent_version", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("lane", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("run_at_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("wake_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("resume_why", sa.Text(), nullable=True),
        sa.Column("crashes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=True),
        sa.Column("cancel_ms", sa.BigInteger(), nullable=True),
        sa.Column("inbox_seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("turn", sa.Integer(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("metadata", sa.Text(), server_default="{}", nullable=False),
        sa.Column("trace_parent", sa.Text(), nullable=True),
        sa.Column("waiting_for", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.01},
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(
            "ix_runs_blocked",
            ["session_id", "id"],
            unique=False,
            sqlite_where=sa.text("status = 'blocked'"),
            postgresql_where=sa.text("status = 'blocked'"),
        )
        batch_op.create_index(
            "ix_runs_ready",
            [sa.text("lane DESC"), "run_at_ms", "id"],
            unique=False,
            sqlite_where=sa.text("status = 'queued'"),
            postgresql_where=sa.text("status = 'queued'"),
        )
        batch_op.create_index(
            "ix_runs_owned",
            ["owner"],
            unique=False,
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        )
        batch_op.create_index(
            batch_op.f("ix_runs_session_id_turn"), ["session_id", "turn"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_runs_tenant_id"), ["tenant", "id"], unique=False)
        batch_op.create_index(
            "ix_runs_timers",
            ["wake_at_ms"],
            unique=False,
            sqlite_where=sa.text("wake_at_ms IS NOT NULL"),
            postgresql_where=sa.text("wake_at_ms IS NOT NULL"),
        )
        batch_op.create_index(
            "uq_runs_active",
            ["session_id"],
            unique=True,
            sqlite_where=sa.text("status IN ('queued', 'running', 'waiting')"),
            postgresql_where=sa.text("status IN ('queued', 'running', 'waiting')"),
        )

    op.create_table(
        "secrets",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ciphertext", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", name=op.f("pk_secrets")),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("metadata", sa.Text(), server_default="{}", nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("turns", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
    )
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_sessions_tenant_id"), ["tenant", "id"], unique=False)

    op.create_table(
        "spans",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("trace_id", sa.Text(), nullable=False),
        sa.Column("span_id", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("end_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("tool", sa.Text(), nullable=True),
        sa.Column("attributes", sa.Text(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_spans")),
    )
    with op.batch_alter_table("spans", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_spans_tenant_model_run_id"), ["tenant", "model", "run_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_spans_tenant_tool_run_id"), ["tenant", "tool", "run_id"], unique=False
        )

    op.create_table(
        "usage",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("metadata", sa.Text(), server_default="{}", nullable=False),
        sa.Column("time_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("model_calls", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cost_nanos", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("unpriced_calls", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("saved_input_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("saved_output_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("saved_cost_nanos", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_usage")),
    )
    with op.batch_alter_table("usage", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_usage_tenant_time_ms"), ["tenant", "time_ms"], unique=False
        )

    op.create_table(
        "votes",
        sa.Column("approval_id", sa.Text(), nullable=False),
        sa.Column("voter", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("approval_id", "voter", name=op.f("pk_votes")),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("dead", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("started_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
        postgresql_with={"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0.01},
    )


def downgrade() -> None:
    op.drop_table("workers")
    op.drop_table("votes")
    with op.batch_alter_table("usage", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_usage_tenant_time_ms"))

    op.drop_table("usage")
    with op.batch_alter_table("spans", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_spans_tenant_tool_run_id"))
        batch_op.drop_index(batch_op.f("ix_spans_tenant_model_run_id"))

    op.drop_table("spans")
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_sessions_tenant_id"))

    op.drop_table("sessions")
    op.drop_table("secrets")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_runs_active",
            sqlite_where=sa.text("status IN ('queued', 'running', 'waiting')"),
            postgresql_where=sa.text("status IN ('queued', 'running', 'waiting')"),
        )
        batch_op.drop_index(
            "ix_runs_timers",
            sqlite_where=sa.text("wake_at_ms IS NOT NULL"),
            postgresql_where=sa.text("wake_at_ms IS NOT NULL"),
        )
        batch_op.drop_index(batch_op.f("ix_runs_tenant_id"))
        batch_op.drop_index(batch_op.f("ix_runs_session_id_turn"))
        batch_op.drop_index(
            "ix_runs_ready",
            sqlite_where=sa.text("status = 'queued'"),
            postgresql_where=sa.text("status = 'queued'"),
        )
        batch_op.drop_index(
            "ix_runs_owned",
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        )
        batch_op.drop_index(
            "ix_runs_blocked",
            sqlite_where=sa.text("status = 'blocked'"),
            postgresql_where=sa.text("status = 'blocked'"),
        )

    op.drop_table("runs")
    with op.batch_alter_table("keys", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_keys_tenant_id"))
        batch_op.drop_index(batch_op.f("ix_keys_hash"))

    op.drop_table("keys")
    op.drop_table("inbox")
    with op.batch_alter_table("idempotency", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_idempotency_created_ms"))

    op.drop_table("idempotency")
    op.drop_table("events")
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_audit_tenant_id"))

    op.drop_table("audit")
    with op.batch_alter_table("approvals", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_approvals_tenant_status_id"))
        batch_op.drop_index(batch_op.f("ix_approvals_run_id"))
        batch_op.drop_index(
            "ix_approvals_expiry",
            sqlite_where=sa.text("status = 'pending'"),
            postgresql_where=sa.text("status = 'pending'"),
        )

    op.drop_table("approvals")
    with op.batch_alter_table("agents", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_agents_name",
            sqlite_where=sa.text("deleted_ms IS NULL"),
            postgresql_where=sa.text("deleted_ms IS NULL"),
        )

    op.drop_table("agents")
    op.drop_table("agent_versions")
