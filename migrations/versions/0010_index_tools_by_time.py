"""Find tool calls by their time, and leave spans without a tool or a model out of their indexes."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_TOOL = sa.text("tool IS NOT NULL")
_MODEL = sa.text("model IS NOT NULL")


def upgrade() -> None:
    op.drop_index("ix_spans_tenant_tool_run_id", "spans")
    op.drop_index("ix_spans_tenant_model_run_id", "spans")
    _create("ix_spans_tool", ["tenant", "tool", "run_id"], _TOOL)
    _create("ix_spans_tool_time", ["tenant", "start_ms"], _TOOL)
    _create("ix_spans_model", ["tenant", "model", "run_id"], _MODEL)


def downgrade() -> None:
    for name in ("ix_spans_model", "ix_spans_tool_time", "ix_spans_tool"):
        op.drop_index(name, "spans")
    op.create_index("ix_spans_tenant_model_run_id", "spans", ["tenant", "model", "run_id"])
    op.create_index("ix_spans_tenant_tool_run_id", "spans", ["tenant", "tool", "run_id"])


def _create(name: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, "spans", columns, sqlite_where=where, postgresql_where=where)
