"""The tables. Every row has a tenant; times are Unix milliseconds; JSON is opaque text.

`events` is only ever inserted into. On Postgres it is partitioned by the time that run ids begin
with: see `milepost.store.partitions`. Nothing that an index of `runs` covers changes while a run is
running, so that Postgres updates its row in place.
"""

from milepost.store.schema.agents import agent_versions, agents
from milepost.store.schema.approvals import approvals, votes
from milepost.store.schema.artifacts import artifact_contents, artifacts
from milepost.store.schema.batches import BATCH_OPEN, batch_items, batches
from milepost.store.schema.channels import channel_messages, conversations, pending_actions
from milepost.store.schema.columns import metadata
from milepost.store.schema.fleet import schema_compat, workers
from milepost.store.schema.keys import audit, keys, secrets
from milepost.store.schema.memories import memories, recollections
from milepost.store.schema.requests import idempotency, rate_counters, rate_marks
from milepost.store.schema.retention import erasures, leftovers, retention, retention_marks
from milepost.store.schema.runs import ACTIVE, ENDED, PENDING, events, inbox, runs
from milepost.store.schema.schedules import schedules
from milepost.store.schema.sessions import pins, sessions, summaries
from milepost.store.schema.spending import budget_counters, budget_reservations, budgets, usage
from milepost.store.schema.tools import grants, policies, tool_permissions, tool_sources
from milepost.store.schema.traces import spans
from milepost.store.schema.webhooks import outbox, webhook_deliveries, webhooks

__all__ = [
    "ACTIVE",
    "BATCH_OPEN",
    "ENDED",
    "PENDING",
    "agent_versions",
    "agents",
    "approvals",
    "artifact_contents",
    "artifacts",
    "audit",
    "batch_items",
    "batches",
    "budget_counters",
    "budget_reservations",
    "budgets",
    "channel_messages",
    "conversations",
    "erasures",
    "events",
    "grants",
    "idempotency",
    "inbox",
    "keys",
    "leftovers",
    "memories",
    "metadata",
    "outbox",
    "pending_actions",
    "pins",
    "policies",
    "rate_counters",
    "rate_marks",
    "recollections",
    "retention",
    "retention_marks",
    "runs",
    "schedules",
    "schema_compat",
    "secrets",
    "sessions",
    "spans",
    "summaries",
    "tool_permissions",
    "tool_sources",
    "usage",
    "votes",
    "webhook_deliveries",
    "webhooks",
    "workers",
]
