"""Every statement finds its rows by an index, even where the planner sees a small table.

A plan that was made while a table was small is kept while it grows; so what a small table is given
here is what a large one gets.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, Protocol

import psycopg
import pytest

from milepost.core import window
from milepost.core.approvers import Approver
from milepost.core.usage import Usage
from milepost.store import (
    agents,
    approval_rows,
    approval_times,
    approvals,
    arrivals,
    audit,
    batch_turns,
    batches,
    budget_counters,
    budgets,
    chat_approvals,
    conversations,
    engine_sqlite,
    erasure,
    erasures,
    grants,
    idempotency,
    keys,
    leftovers,
    log,
    memories,
    new_runs,
    pending,
    pins,
    policies,
    queue,
    rates,
    recollections,
    removals,
    reservations,
    retention,
    runs,
    schedules,
    schema,
    session_forks,
    session_order,
    session_past,
    sessions,
    steers,
    summaries,
    tool_statistics,
    tool_usage,
    traces,
    unsigning,
    usage,
    votes,
    webhook_deliveries,
    webhooks,
    withdrawals,
)
from milepost.store.address import PostgresAddress, SqliteAddress
from milepost.store.amounts import Amounts
from milepost.store.approvals import ApprovalFilter, Decision
from milepost.store.batches import BatchFilter
from milepost.store.budget_counters import CounterKey, Place
from milepost.store.conversations import Delivery, ScopeKey
from milepost.store.dialect import DialectName
from milepost.store.erasures import ErasureRow
from milepost.store.grants import GrantFilter
from milepost.store.idempotency import Asked
from milepost.store.leftovers import Leftover
from milepost.store.memories import MemoryFilter
from milepost.store.pending import NewPending
from milepost.store.postgres_session import connect
from milepost.store.rates import Counting, Tally
from milepost.store.recollections import RecollectionRow
from milepost.store.records import (
    Change,
    Claim,
    IfActive,
    Lesson,
    NewRun,
    Page,
    Request,
    RunFilter,
    UsageRow,
)
from milepost.store.reservations import Holder
from milepost.store.schedules import Due, ScheduleFilter, ScheduleRow
from milepost.store.session_order import Spot
from milepost.store.sessions import NewSession, SessionFilter, SessionRow
from milepost.store.spending import Charge, Reserve, Settle, spend
from milepost.store.traces import TraceFilter
from milepost.store.unsigning import Signature
from milepost.store.usage import Account, Taken, UsageFilter
from milepost.store.withdrawals import Withdrawal
from milepost.store.work import Call, Rows, Work
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_finish,
    a_park,
    a_run,
    an_append,
    an_approval,
    an_entry,
)
from tests.store.making_batches import a_batch, an_offer, chunk
from tests.store.making_memories import ANN, a_fact, a_memory
from tests.store.making_schedules import a_schedule, an_occasion

GROWING = {
    "agent_versions", "agents", "approvals", "audit", "batch_items", "batches", "budget_counters",
    "budgets", "events", "idempotency", "inbox", "keys", "runs", "sessions", "spans", "usage",
    "votes", "webhook_deliveries",
    "channel_messages", "conversations", "pending_actions", "summaries", "pins", "schedules",
}  # fmt: skip
# Each holds only what is not over, or a part of that.
SMALL_INDEXES = {"ix_runs_ready", "ix_runs_owned", "ix_runs_timers", "ix_runs_blocked"} | {
    "uq_runs_active",
    "ix_approvals_expiry",
    "ix_approvals_remind",
    "ix_batches_open",
    "ix_batch_items_started",
    "ix_webhook_deliveries_due",
    "ix_webhook_deliveries_waiting",
    "ix_schedules_next",
}

_MANY_COMPLETED = (
    """INSERT INTO runs (id, tenant, session_id, agent_id, agent, agent_version, status)
    WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 2000)
    SELECT 'run_' || n, 'acme', 'ses_of_' || n, 'agt_1', 'clerk', 1, 'completed' FROM counted""",
    "ANALYZE",
)
EXECUTIONS = 7  # Postgres makes a plan for each of the first five, and then decides

_RUN = (
    "INSERT INTO runs (id, tenant, session_id, agent_id, agent, agent_version, status, epoch,"
    " owner, wake_at_ms) VALUES ('{}', 'acme', '{}', 'agt_1', 'clerk', 1, '{}', 1, 'worker', 1)"
)
_APPROVAL = (
    "INSERT INTO approvals (id, tenant, run_id, session_id, agent, call_id, tool, arguments,"
    " digest, preview, reason, expires_ms) VALUES"
    " ('{}', 'acme', 'running', 'ses_1', 'clerk', 'c', 't', '', '', '', '', {})"
)
_BATCH = (
    "INSERT INTO batches (id, tenant, agent_id, agent, agent_version, status, concurrency,"
    " queued_event, total) VALUES ('{}', 'acme', 'agt_1', 'clerk', 1, '{}', 2, '', 3)"
)
_DELIVERY = """INSERT INTO webhook_deliveries (id, tenant, webhook_id, type, status, due_ms)
    VALUES ('{}', 'acme', 'whk_1', 'custom', '{}', 1)"""
_SCHEDULE = (
    "INSERT INTO schedules (id, tenant, cron, timezone, overlap, agent, user_id, run, queued_event,"
    " made_by, last_run_id, next_ms) VALUES ('{}', 'acme', '0 * * * *', 'UTC', 'skip', 'clerk',"
    " 'ann', '', '', 'key_1', 'over', {})"
)

_PRESENT = (
    "INSERT INTO workers (id, until_ms) VALUES ('worker', 9000000000000)",
    "INSERT INTO sessions (id, tenant) VALUES ('ses_1', 'acme')",
    "INSERT INTO sessions (id, tenant) VALUES ('ses_2', 'acme')",
    "INSERT INTO sessions (id, tenant) VALUES ('ses_3', 'acme')",
    _RUN.format("running", "ses_1", "running"),
    _RUN.format("blocked", "ses_1", "blocked"),
    _RUN.format("queued", "ses_2", "queued"),
    _RUN.format("scheduled", "ses_2", "scheduled"),
    _RUN.format("over", "ses_3", "completed"),
    _RUN.format("below", "ses_5", "completed"),
    "INSERT INTO sessions (id, tenant) VALUES ('ses_5', 'acme')",
    """UPDATE runs SET ended_ms = 1, told_ms = 1, turn = 1,
    parent_run_id = CASE WHEN id = 'below' THEN 'over' END WHERE status = 'completed'""",
    _RUN.format("stranded", "ses_4", "running").replace("'worker'", "'gone'"),
    """INSERT INTO events (run_id, seq, tenant, append_id, type, data)
    VALUES ('running', 1, 'acme', 'a', 'run.queued', '{}')""",
    _APPROVAL.format("apr_open", 9_000_000_000_000),
    _APPROVAL.format("apr_due", 1),
    "INSERT INTO agents (id, tenant, name, version) VALUES ('agt_1', 'acme', 'clerk', 1)",
    """INSERT INTO agent_versions (agent_id, version, tenant, definition)
    VALUES ('agt_1', 1, 'acme', '{}')""",
    _BATCH.format("bat_open", "running"),
    _BATCH.format("bat_over", "completed"),
    "INSERT INTO batch_items (batch_id, place, tenant, input) VALUES ('bat_open', 0, 'acme', '[]')",
    """INSERT INTO batch_items (batch_id, place, tenant, status, run_id)
    VALUES ('bat_open', 1, 'acme', 'started', 'running')""",
    "INSERT INTO policies (tenant, scope, policy, version) VALUES ('acme', 'ses_1', '{}', 1)",
    """INSERT INTO grants (id, tenant, session_id, tool, approval_id, granted_by, expires_ms)
    VALUES ('gra_1', 'acme', 'ses_1', 'pay', 'apr_1', 'ann', 9000000000000)""",
    "INSERT INTO rate_counters (tenant, key, ticks, until_ms) VALUES ('acme', 'pay', 1, 1)",
    """INSERT INTO rate_marks (tenant, key, run_id, call_id, tick, until_ms)
    VALUES ('acme', 'pay', 'running', 'call_0', 1, 9000000000000)""",
    """INSERT INTO budgets (id, tenant, scope, period, model_calls)
    VALUES ('bud_1', 'acme', 'tenant', 'total', 5)""",
    """INSERT INTO webhooks (id, tenant, url, events, secret)
    VALUES ('whk_1', 'acme', '', '["*"]', '')""",
    """INSERT INTO outbox (id, tenant, type, run_id, seq, created_ms)
    VALUES ('running:1', 'acme', 'run.queued', 'running', 1, 1)""",
    """INSERT INTO conversations (tenant, channel, conversation, user_id, session_id)
    VALUES ('acme', 'sms', 'c1', 'ann', 'ses_3')""",
    """INSERT INTO channel_messages (tenant, channel, conversation, message_id, user_id, said_hash,
    run_id) VALUES ('acme', 'sms', 'c1', 'm0', 'ann', 'h', 'over')""",
    """INSERT INTO pending_actions (id, tenant, channel, conversation, user_id, run_id, call_id,
    kind, preview, args, digest, user_prompt)
    VALUES ('pnd_1', 'acme', 'sms', 'c1', 'ann', 'over', 'call_1', '', '', '{}', 'd', '')""",
    """INSERT INTO summaries (id, tenant, session_id, from_turn, from_index, through_turn,
    through_index, run_id, content)
    VALUES ('sum_1', 'acme', 'ses_3', 1, 0, 1, 1, 'running', 'told')""",
    """INSERT INTO pins (tenant, session_id, turn, message_index)
    VALUES ('acme', 'ses_3', 1, 0)""",
    """INSERT INTO sessions (id, tenant, forked_from, forked_turn)
    VALUES ('ses_6', 'acme', 'ses_1', 1)""",
    """INSERT INTO memories (id, tenant, scope, owner, kind, key, origin, content, words, user_id)
    VALUES ('mem_1', 'acme', 'user', 'ann', 'fact', 'tea', 'run', 'tea', 'tea', 'ann')""",
    "INSERT INTO recollections (run_id, tenant) VALUES ('over', 'acme')",
    _SCHEDULE.format("sch_1", 1),
    _SCHEDULE.format("sch_2", 9_000_000_000_000),
    _SCHEDULE.format("sch_3", "NULL"),
    _DELIVERY.format("whd_1", "pending"),
    _DELIVERY.format("whd_2", "dead"),
)
CLAIM = Claim("running", TENANT, "ses_1", "agt_1", 1, None, 1, 1, 0, 0, "{}", None, None)
USED = UsageRow(2, "ses_1", "clerk", "m", None, "{}", 1, Usage())
CALL = Holder(TENANT, "running", 1, "msg_1")
PLACE = Place(CounterKey("bud_1", "", 0), "bct_1")
SIGNATURE = Signature("ann", frozenset({"key_1"}), "era_1", frozenset({"ann"}))
TALLY = Tally("often", "pay", 3_600_000, 4)
ASKED = Asked(TENANT, Request("POST /v1/agents", "key", "hash"), "agt_2", NOW_MS)

TAUGHT = Change(
    "completed",
    outcome="{}",
    ended_ms=1,
    lesson=Lesson(is_to_be_read=True, memories=(a_memory(),), kept_max={"fact": 1}),
)
CHAT = ScopeKey(TENANT, "sms", "c1", "ann")
HEARD = Delivery("ann", "h", "started", "ses_1", "running", 0, None)
PUT_OFF = NewPending(
    "pnd_2", CHAT, "running", "call_0", "refund", "Refund", "{}", "sha256:1", "Refund?", 60_000
)


def a_pending_row() -> pending.PendingRow:
    return pending.PendingRow(
        "pnd_1", TENANT, "sms", "c1", "ann", "running", "call_1", "refund", "Refund", "{}", "d",
        "pending", None, None, None, 1, 1, None,
    )  # fmt: skip


def a_row(run_id: str, session_id: str, status: str) -> runs.RunRow:
    return runs.RunRow(
        run_id, TENANT, session_id, "agt_1", "clerk", 1, None, status, 1, 0, 1, None, None, 1,
        "{}", None, None, None, None,
    )  # fmt: skip


def a_due_schedule(**changes: Any) -> ScheduleRow:
    return a_schedule(id="sch_1", next_ms=1, last_run_id="over", **changes)


A_FORK = SessionRow(
    "ses_6", TENANT, None, None, "{}", 1, 1, 1, 1, forked_from="ses_1", forked_turn=1
)


def erasing(stage: str) -> Work[Any]:
    """Take a step of a stage of the erasure of a user, as if it stood there."""
    row = ErasureRow("era_1", TENANT, "", "", "ann", stage, "", "{}", 0, 0, None)
    work = erasure.go_on(row, NOW_MS)
    yield next(work)
    answer: Any = [(row.id,)]
    while True:
        try:
            asked = work.send(answer)
        except StopIteration:
            return
        answer = yield asked


def arriving(then: Literal["interrupt", "rollback", "steer"]) -> NewRun:
    said = ('{"message_id":"ste_1"}',)
    wish = IfActive(then, "ann", said, ("ste_1",))
    return a_run(session_id="ses_1", session_is_new=False, if_active=wish)


WORKS: dict[str, Callable[[], Work[Any]]] = {
    "past": lambda: session_past.past(TENANT, "ses_3", 9, limit=10),
    "past of a fork": lambda: session_past.past(TENANT, "ses_6", 9, limit=10),
    "runs at": lambda: session_past.runs_at(TENANT, [("ses_3", 9)], [1]),
    "told": lambda: session_past.told(TENANT, ["sum_1"]),
    "summaries": lambda: summaries.search(TENANT, "ses_3", Page(limit=10)),
    "revert": lambda: summaries.revert(TENANT, "ses_3", "sum_1", NOW_MS),
    "pin": lambda: pins.put(TENANT, "ses_3", window.Place(1, 0), NOW_MS),
    "unpin": lambda: pins.remove(TENANT, "ses_3", window.Place(1, 0)),
    "pins": lambda: pins.find(TENANT, "ses_3"),
    "remove runs": lambda: removals.remove_runs(TENANT, ["ended"], forks=True),
    "close sessions": lambda: removals.close_sessions(TENANT, ["ses_3"]),
    "what is due": lambda: retention.remove_due(TENANT, "", NOW_MS),
    "due of all": lambda: retention.due_of_all("", NOW_MS),
    "wear events": lambda: retention.wear(TENANT, "events", None, NOW_MS),
    "wear traces": lambda: retention.wear(TENANT, "traces", None, NOW_MS),
    "wear artifacts": lambda: retention.wear(TENANT, "artifacts", None, NOW_MS),
    "old batches": lambda: retention.remove_batches(TENANT, "", NOW_MS),
    "expired sessions": lambda: retention.expired(NOW_MS),
    "an expired session": lambda: retention.remove_expired(TENANT, "ses_3", NOW_MS),
    "sessions that keep": lambda: retention.keeping(""),
    "what a session keeps": lambda: retention.remove_kept(TENANT, "ses_3", NOW_MS),
    "unsign": lambda: unsigning.approvals(TENANT, SIGNATURE, ()),
    "unsign grants": lambda: unsigning.grants(TENANT, SIGNATURE, ()),
    "who is being erased": lambda: erasures.require_none(TENANT, "ann"),
    "take an erasure": erasures.take,
    "owners": erasures.owners,
    "content": lambda: leftovers.give_up_content(Leftover(TENANT, "ses_3", "ab")),
    **{f"erase {stage}": partial(erasing, stage) for stage in erasure.STAGES},
    "claim": lambda: queue.claim("worker", 10, "a", 1),
    "fair claim": lambda: queue.claim("worker", 10, "a", 1, fair=True),
    "claim specific": lambda: queue.claim_specific("worker", ["queued"], "a", 1),
    "claim overdue": lambda: queue.claim_overdue("worker", 10, 1_000, "a", 1),
    "ready": lambda: queue.ready(10),
    "how a run stands": lambda: queue.standing("running"),
    "sweep": queue.sweep,
    "give up": lambda: queue.give_up(TENANT, "running", 1, "worker", "crash"),
    "claimed": lambda: queue.claimed("worker", "a"),
    "owned": lambda: queue.owned("worker"),
    "load": queue.load,
    "create": lambda: new_runs.create([a_run(request=Request("s", "k", "h"))], queue_max=100),
    "create in a session": lambda: new_runs.create(
        [a_run(session_id="ses_1", session_is_new=False)]
    ),
    "create for a session's user": lambda: new_runs.create(
        [a_run(session_id="ses_1", session_is_new=False, follows_session=True)]
    ),
    "interrupt": lambda: new_runs.create([arriving("interrupt")]),
    "roll back": lambda: new_runs.create([arriving("rollback")]),
    "come to a busy session": lambda: arrivals.arrive(arriving("steer")),
    "whether it was heard": lambda: arrivals.heard(arriving("steer")),
    "steer": lambda: steers.steer(TENANT, "running", ['{"message_id":"ste_1"}'], NOW_MS),
    "create with a remembered agent": lambda: new_runs.create([a_run(agent_is_remembered=True)]),
    "append": lambda: log.append(
        [an_append(CLAIM, usage=(USED,), inbox_consumed=True, withdrawn=("apr_1",), skips=True)]
    ),
    "park": lambda: log.append([a_park(CLAIM, approvals=(an_approval(CLAIM),))]),
    "finish": lambda: log.append([a_finish(CLAIM)]),
    "landed": lambda: log.landed(an_append(CLAIM)),
    "read": lambda: log.read(TENANT, "running"),
    "head": lambda: log.head(TENANT, "running"),
    "heads": lambda: log.heads(["running", "queued"]),
    "inbox": lambda: log.inbox(TENANT, "running", 0),
    "find": lambda: runs.find(TENANT, "running"),
    "search": lambda: runs.search(TENANT, RunFilter(status="failed"), Page(20)),
    "deliver": lambda: runs.deliver(TENANT, "running", runs.Letter("x", "{}", "approval", 1)),
    "end": lambda: runs.end(
        a_row("running", "ses_1", "running"),
        runs.Ending("cancelled", "{}", (an_entry("run.cancelled"),), 1),
        "a",
    ),
    "due": lambda: runs.due(NOW_MS, 100),
    "start scheduled": lambda: runs.start_scheduled(a_row("scheduled", "ses_2", "scheduled")),
    "session": lambda: sessions.find(TENANT, "ses_1"),
    "history": lambda: sessions.history(TENANT, "ses_1", 5, limit=100),
    "turns": lambda: sessions.turns(TENANT, "ses_1", Page(20)),
    "the first run of a session": lambda: session_order.following(TENANT, "ses_1", None),
    "the next run of a session": lambda: session_order.following(
        TENANT, "ses_1", Spot("running", "running", 1, None)
    ),
    "where a run stands": lambda: session_order.spot(TENANT, "ses_1", "running"),
    "how sessions stand": lambda: session_order.stands(["ses_1", "ses_2"]),
    "sessions of a user": lambda: sessions.search(TENANT, SessionFilter(user="ann"), Page(20)),
    "fork": lambda: session_forks.fork(
        NewSession("ses_7", TENANT, None, None, "{}", 1), "ses_1", None
    ),
    "past of a fork of forks": lambda: session_forks.lineage(A_FORK),
    "forks": lambda: sessions.search(TENANT, SessionFilter(forked_from="ses_1"), Page(20)),
    "logs": lambda: sessions.logs(["running", "queued"]),
    "delete session": lambda: sessions.delete(TENANT, "ses_3"),
    "agent": lambda: agents.find(TENANT, "clerk"),
    "definition": lambda: agents.definition(TENANT, "agt_1", 1),
    "apply": lambda: agents.apply(TENANT, "clerk", "[]", agent_id="agt_2", now_ms=1),
    "decide": lambda: approvals.decide(TENANT, "apr_open", Decision("approve", "ann"), 1),
    "expire": lambda: approval_times.expire_due(1, 100),
    "withdraw": lambda: withdrawals.withdraw(TENANT, "apr_open", Withdrawal("ann"), 1),
    "remind": lambda: approval_times.remind_due(1, 100),
    "changed": lambda: approval_rows.changed(TENANT, 1, "apr_1"),
    "these": lambda: approval_rows.these(TENANT, ["apr_open"]),
    "votes": lambda: votes.of_many(TENANT, ["apr_open"]),
    "my inbox": lambda: approvals.search(
        TENANT, ApprovalFilter("pending", mine=Approver("key_1", "ann")), Page(20)
    ),
    "inbox of people": lambda: approvals.search(TENANT, ApprovalFilter("pending"), Page(20)),
    "key": lambda: keys.by_hash("hash"),
    "names": lambda: keys.names(TENANT, ["key_1"]),
    "create batch": lambda: batches.create(a_batch(1), [chunk(0, 1)]),
    "look at batches": lambda: batch_turns.look(100),
    "turn of a batch": lambda: batch_turns.turn(TENANT, "bat_open", an_offer()),
    "results of a batch": lambda: batches.results(TENANT, "bat_open", Page(20), done=True),
    "cancel batch": lambda: batches.cancel(TENANT, "bat_open", by="a", reason=None, now_ms=1),
    "delete batch": lambda: batches.delete(TENANT, "bat_over"),
    "search batches": lambda: batches.search(TENANT, BatchFilter(), Page(20)),
    "create schedule": lambda: schedules.create(a_schedule(user="ann")),
    "a schedule": lambda: schedules.find(TENANT, "sch_1"),
    "search schedules": lambda: schedules.search(TENANT, ScheduleFilter(), Page(20)),
    "schedules of a user": lambda: schedules.search(TENANT, ScheduleFilter(user="ann"), Page(20)),
    "what is due of schedules": lambda: schedules.due(2, 100),
    "what is still due": lambda: schedules.still_due(Due(TENANT, "sch_1", 1, 1)),
    "come": lambda: schedules.come(an_occasion(a_due_schedule()), queue_max=100),
    "come by a key": lambda: schedules.come(
        an_occasion(a_due_schedule(made_by="key_1")), queue_max=100
    ),
    "change schedule": lambda: schedules.change(
        a_due_schedule(), a_due_schedule(run="x", user="ann"), now_ms=NOW_MS
    ),
    "delete schedule": lambda: schedules.delete(TENANT, "sch_1", expected_version=1),
    "audit": lambda: audit.search(TENANT, audit.AuditFilter(), Page(20)),
    "remember": lambda: idempotency.remember(ASKED),
    "purge": lambda: idempotency.purge(NOW_MS),
    "spans": lambda: traces.spans(TENANT, "running"),
    "traces": lambda: traces.search(TENANT, TraceFilter(), Page(20)),
    "traces of a tool": lambda: traces.search(TENANT, TraceFilter(tool="add"), Page(20)),
    "calls of a tool": lambda: tool_statistics.calls(TENANT, "add"),
    "denials": lambda: tool_statistics.denials(TENANT),
    "budgets": lambda: budgets.all_of(TENANT),
    "reserve": lambda: spend([Reserve(CALL, [PLACE], lambda _: Amounts(model_calls=1))]),
    "charge": lambda: spend([Charge(TENANT, [PLACE], Amounts(model_calls=1))]),
    "usage beside logs": lambda: usage.add(
        [Taken(Account(TENANT, run_id="running"), "m", Usage(input_tokens=1), 1, NOW_MS)]
    ),
    "settle": lambda: spend([Settle(CALL, [PLACE], Amounts())]),
    "free": reservations.free,
    "free of a tenant": lambda: reservations.free(TENANT),
    "counters": lambda: budget_counters.present(TENANT, "bud_1", 0, Page(20)),
    "purge of counters": lambda: budget_counters.purge(NOW_MS),
    "delete a budget": lambda: budgets.delete(TENANT, "bud_1"),
    "fan out": lambda: webhook_deliveries.fan_out(1),
    "what is due for webhooks": lambda: webhook_deliveries.ready(["whk_2"], NOW_MS),
    "claim deliveries": lambda: webhook_deliveries.claim({"whk_1": 4}, lease_ms=1, now_ms=NOW_MS),
    "claimed deliveries": lambda: webhook_deliveries.claimed(["whk_1"], NOW_MS),
    "deliveries": lambda: webhook_deliveries.search(TENANT, "whk_1", Page(20)),
    "purge of deliveries": lambda: webhook_deliveries.purge(NOW_MS),
    "delete a webhook": lambda: webhooks.delete(TENANT, "whk_1"),
    "usage of a run": lambda: usage.total(TENANT, "running"),
    "standing": lambda: policies.standing(TENANT, "ses_5"),
    "whether anything stands": lambda: policies.exist(TENANT),
    "a policy": lambda: policies.get(TENANT, "ses_1"),
    "grants": lambda: grants.search(TENANT, GrantFilter(session_id="ses_1"), Page(20)),
    "grants that hold": lambda: grants.search(TENANT, GrantFilter(active=True), Page(20)),
    "grants of an approval": lambda: grants.came_of(TENANT, "ses_1", "apr_1"),
    "revoke": lambda: grants.revoke(TENANT, "gra_1", "ann", NOW_MS),
    "count": lambda: rates.count([Counting(TENANT, "running", "call_1", [TALLY])]),
    "foretell": lambda: rates.foretell(TENANT, [TALLY]),
    "purge of counts": lambda: rates.purge(NOW_MS),
    "take a message": lambda: conversations.take(CHAT, "m1", "h", NOW_MS),
    "note a message": lambda: conversations.note(CHAT, "m0", HEARD),
    "purge of messages": lambda: conversations.purge(NOW_MS),
    "enter": lambda: conversations.enter(CHAT, "ses_1", NOW_MS),
    "show": lambda: conversations.show(CHAT, "pnd_1", "d"),
    "put off": lambda: pending.stash(PUT_OFF, 1),
    "what is pending": lambda: pending.open_in(CHAT),
    "answer": lambda: pending.answer(a_pending_row(), "confirmed", by="ann"),
    "tighten": lambda: pending.tighten(TENANT, "pnd_1", 1),
    "whether it is past": lambda: pending.is_past(TENANT, "pnd_1"),
    "what waits in a session": lambda: chat_approvals.waiting_in(TENANT, "ses_1"),
    "whom a session waits for": lambda: chat_approvals.run_of(TENANT, "ses_1"),
    "what was said": lambda: traces.said(TENANT, "running"),
    "tools of a run": lambda: tool_usage.grouped(TENANT, ["tool"], UsageFilter(run_id="running")),
    "tools of a day": lambda: tool_usage.grouped(
        TENANT, ["tool", "agent"], UsageFilter(from_ms=1, until_ms=2)
    ),
    "a tool of a tenant": lambda: tool_usage.grouped(TENANT, ["day"], UsageFilter(tool="add")),
    "keep a memory": lambda: memories.keep(a_memory()),
    "a memory": lambda: memories.find(TENANT, "mem_1"),
    "what is known": lambda: memories.known(a_memory(a_fact("tea"))),
    "keys of memories": lambda: memories.keys(TENANT, ANN, 100),
    "memories": lambda: memories.search(TENANT, MemoryFilter(), Page(20)),
    "memories of a user": lambda: memories.search(TENANT, MemoryFilter(user="ann"), Page(20)),
    "memories by words": lambda: memories.worded_like(TENANT, MemoryFilter(), ["tea"], 20),
    "memories of some by words": lambda: memories.matching(TENANT, [ANN], ["tea"], 20),
    "what was mentioned of late": lambda: memories.recent(TENANT, [ANN], {"fact": (20, 0)}),
    "forget a memory": lambda: memories.delete(TENANT, "mem_1"),
    "forget a user": lambda: memories.delete_of_user(TENANT, "ann"),
    "learn": lambda: log.append([a_finish(CLAIM, change=TAUGHT)]),
    "what is to be read": lambda: recollections.waiting(10),
    "begin to read": lambda: recollections.begin(
        RecollectionRow("over", TENANT, 1), a_run(parent_run_id="over")
    ),
    "usage of a day": lambda: usage.grouped(TENANT, ["agent"], UsageFilter(from_ms=1, until_ms=2)),
}


class Explainer(Protocol):
    """A database that says what it reads, and how, before it does a statement."""

    dialect: DialectName

    def execute(self, text: str, values: dict[str, Any]) -> Rows: ...

    def whole_tables(self, text: str, values: dict[str, Any]) -> list[str]: ...

    def indexes_of_runs(self, text: str, values: dict[str, Any]) -> list[str]: ...


class Postgres:
    """Postgres as the service uses it."""

    dialect: DialectName = "postgresql"

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def execute(self, text: str, values: dict[str, Any]) -> Rows:
        cursor = self._connection.execute(text.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def whole_tables(self, text: str, values: dict[str, Any]) -> list[str]:
        ((plan,),) = self.execute(f"EXPLAIN (FORMAT JSON) {text}", values)
        return list(self._whole(plan[0]["Plan"]))

    def indexes_of_runs(self, text: str, values: dict[str, Any]) -> list[str]:
        """Return the indexes by which the statement looks for runs."""
        ((plan,),) = self.execute(f"EXPLAIN (FORMAT JSON) {text}", values)
        return re.findall(r"'Index Name': '(ix_runs_\w+)'", str(plan))

    def opened(self, text: str, values: dict[str, Any]) -> set[str]:
        """Return the partitions that the statement looks into."""
        ((plan,),) = self.execute(f"EXPLAIN (FORMAT JSON) {text}", values)
        named = re.findall(r"'Relation Name': '(events_\w+)'", str(plan))
        return set(named)

    def is_kept(self, text: str, values: dict[str, Any]) -> bool:
        """Say whether Postgres settles on one plan for all executions of the query."""
        self._connection.execute("DEALLOCATE ALL")
        for _ in range(EXECUTIONS):
            self._connection.execute(text.encode(), values, prepare=True)
        ((plans,),) = self.execute("SELECT sum(generic_plans) FROM pg_prepared_statements", {})
        return bool(plans)

    def _whole(self, node: dict[str, Any]) -> Iterator[str]:
        kind, table = node["Node Type"], node.get("Relation Name")
        by_index = "Index Cond" in node or node.get("Index Name") in SMALL_INDEXES
        scans = kind.endswith("Scan") and kind != "Bitmap Heap Scan"  # its index stands below
        if scans and _whole_of(table) in GROWING and not by_index:
            yield f"{kind} of {table} by {node.get('Index Name')}"
        for below in node.get("Plans", ()):
            yield from self._whole(below)


def _whole_of(table: str | None) -> str | None:
    """Return the table that this is, or is a partition of."""
    return "events" if table and table.startswith("events_") else table


class Sqlite:
    """SQLite as the service uses it."""

    dialect: DialectName = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, text: str, values: dict[str, Any]) -> Rows:
        return self._connection.execute(text, values).fetchall()

    def whole_tables(self, text: str, values: dict[str, Any]) -> list[str]:
        steps = [row[3] for row in self.execute(f"EXPLAIN QUERY PLAN {text}", values)]
        return [step for step in steps if self._is_whole(step)]

    def indexes_of_runs(self, text: str, values: dict[str, Any]) -> list[str]:
        """Return the indexes by which the statement looks for runs."""
        steps = [row[3] for row in self.execute(f"EXPLAIN QUERY PLAN {text}", values)]
        return [found[1] for step in steps if (found := re.search(r" INDEX (ix_runs_\w+)", step))]

    def _is_whole(self, step: str) -> bool:
        found = re.match(r"SCAN (\w+)(?:.* INDEX (\w+))?", step)
        known = GROWING | {
            "active",
            "blocked",
            "busy",
            "later",
            "old",
            "old_counters",
            "old_marks",
            "old_rates",
            "other",
        }  # tables by other names
        return found is not None and found[1] in known and found[2] not in SMALL_INDEXES


@pytest.fixture
def postgres(postgres_address: PostgresAddress) -> Iterator[Explainer]:
    """Postgres with a row or two of each kind."""
    with connect(postgres_address.url) as connection:
        for statement in _PRESENT:
            connection.execute(statement.encode())
        yield Postgres(connection)


@pytest.fixture
def sqlite(sqlite_address: SqliteAddress) -> Iterator[Explainer]:
    """SQLite with a row or two of each kind."""
    connection = engine_sqlite.connect(sqlite_address.path)
    for statement in _PRESENT:
        connection.execute(statement)
    yield Sqlite(connection)
    connection.close()


# What is searched for, and the index that holds it, and little else.
FEW: dict[str, tuple[RunFilter, str]] = {
    **{
        status: (RunFilter(status=status), "ix_runs_uncompleted")
        for status in (*schema.ACTIVE, *schema.ENDED)
        if status != "completed"
    },
    "of an agent": (RunFilter(agent="refunds"), "ix_runs_agent"),
    "of a user": (RunFilter(user="ann"), "ix_runs_user"),
    "of a key": (RunFilter(made_by="key_1"), "ix_runs_maker"),
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("few", FEW)
def test_few_runs_are_found_among_many_that_completed_without_reading_those(
    request: pytest.FixtureRequest, kind: str, few: str
) -> None:
    explainer: Explainer = request.getfixturevalue(kind)
    wanted, index = FEW[few]
    for statement in _MANY_COMPLETED:
        explainer.execute(statement, {})

    ((text, values),) = statements_of(explainer, runs.search(TENANT, wanted, Page(20)))

    # What each of them waits for is looked up behind it, by another.
    assert explainer.indexes_of_runs(text, values)[0] == index


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("name", WORKS)
def test_no_table_that_grows_is_read_as_a_whole(
    request: pytest.FixtureRequest, kind: str, name: str
) -> None:
    explainer: Explainer = request.getfixturevalue(kind)

    assert list(read_as_a_whole(explainer, WORKS[name]())) == []


# What is asked for all the time, by id: for each, how often it looks into the log.
ON_THE_LOG: dict[str, tuple[int, Callable[[], Work[Any]]]] = {
    "claim": (3, WORKS["claim"]),
    "append": (1, WORKS["append"]),
    "read": (1, WORKS["read"]),
    "head": (1, WORKS["head"]),
    "heads": (1, lambda: log.heads(["running"])),
    "landed": (1, WORKS["landed"]),
}


@pytest.mark.parametrize("name", ON_THE_LOG)
def test_a_look_into_the_log_opens_one_partition_by_a_plan_that_is_kept(
    postgres: Postgres, name: str
) -> None:
    """A plan that Postgres makes for every execution takes longer than what it is for."""
    times, work = ON_THE_LOG[name]
    looks = []
    for text, values in statements_of(postgres, work()):
        if re.search(r"FROM events", text):
            looks.append(postgres.opened(text, values))
            assert text.startswith("INSERT") or postgres.is_kept(text, values), text

    assert [len(parts) for parts in looks] == [1] * times


def statements_of(explainer: Explainer, work: Work[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Do the work; yield its statements, each before it is done."""
    answers: Any = None
    while True:
        try:
            asked = work.send(answers)
        except StopIteration:
            return
        calls = (asked,) if isinstance(asked, Call) else asked
        found: list[Rows] = []
        for call in calls:
            text, values = call.rendered(explainer.dialect)
            yield text, values
            found.append(explainer.execute(text, values))
        answers = found[0] if isinstance(asked, Call) else found


def read_as_a_whole(explainer: Explainer, work: Work[Any]) -> Iterator[tuple[str, list[str]]]:
    """Do the work; yield its statements that read more than they need, and what they read."""
    for text, values in statements_of(explainer, work):
        if whole := explainer.whole_tables(text, values):
            yield text, whole
