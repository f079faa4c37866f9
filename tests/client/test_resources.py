"""Every resource of the client, against a real service."""

import pytest

from milepost.client import Milepost
from milepost.client.shapes import ScheduledRun
from milepost.core.errors import ApiError

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAIL = "Send an email to ann@example.com saying hello"


async def parked(milepost: Milepost) -> str:
    """Start a run that waits for a person; return its id."""
    run = await milepost.runs.create("demo", MAIL)
    async for _ in milepost.runs.stream(run.id, until_waiting=True):
        pass
    return run.id


async def test_a_run_is_started_waited_for_and_looked_up(milepost: Milepost) -> None:
    run = await milepost.runs.create("demo", "What is 17 + 25?", metadata={"team": "a"})

    ended = await milepost.runs.wait(run.id)

    assert (ended.id, ended.status, ended.text) == (run.id, "completed", "17 + 25 = 42.")
    assert (await milepost.runs.get(run.id)) == ended
    assert [each.id for each in (await milepost.runs.list(metadata={"team": "a"})).items] == [
        run.id
    ]
    assert (await milepost.runs.list(status="failed")).items == ()
    assert {span["kind"] for span in (await milepost.runs.trace(run.id))["spans"]} >= {"chat"}
    assert (await milepost.runs.usage(run.id))["output_tokens"] > 0


async def test_waiting_for_a_run_has_an_end(milepost: Milepost) -> None:
    run_id = await parked(milepost)

    with pytest.raises(TimeoutError):
        await milepost.runs.wait(run_id, timeout_s=0.05)


async def test_a_run_is_cancelled(milepost: Milepost) -> None:
    run_id = await parked(milepost)

    run = await milepost.runs.cancel(run_id, "not needed any more")

    assert run.status == "cancelled"


async def test_something_is_said_to_a_run_that_is_under_way(milepost: Milepost) -> None:
    run_id = await parked(milepost)
    waiting = await milepost.runs.get(run_id)

    message_id = await milepost.runs.steer(run_id, "Make it short.")
    same = await milepost.runs.create(
        "demo", "And hurry.", session_id=waiting.session_id, if_active="steer"
    )
    behind = await milepost.runs.create("demo", "Hello.", session_id=waiting.session_id)
    await milepost.runs.cancel(run_id)
    await milepost.runs.wait(run_id)

    said = [event async for event in milepost.runs.stream(run_id, types=["steer.received"])]
    assert said[0].data["message_id"] == message_id
    assert [event.data["content"] for event in said] == ["Make it short.", "And hurry."]
    assert (same.id, behind.queue_position) == (run_id, 1)


async def test_a_run_is_forked_and_its_log_is_played_again(milepost: Milepost) -> None:
    run = await milepost.runs.wait((await milepost.runs.create("demo", "What is 17 + 25?")).id)

    fork = await milepost.runs.fork(run.id, 1, input="And what is 1 + 2?", metadata={"a": "b"})
    ended = await milepost.runs.wait(fork.id)
    replayed = await milepost.runs.replay(fork.id)

    assert fork.raw["forked_from"] == {"run_id": run.id, "at_seq": 1}
    assert (ended.status, ended.metadata) == ("completed", {"a": "b"})
    assert [each.id for each in (await milepost.runs.list(forked_from=run.id)).items] == [fork.id]
    assert (replayed.identical, replayed.divergence, replayed.agent) == (True, None, "demo")


async def test_what_became_of_a_run_s_tool_calls_is_listed(milepost: Milepost) -> None:
    run = await milepost.runs.create("demo", "What is 17 + 25?")
    await milepost.runs.wait(run.id)

    (call,) = (await milepost.runs.tool_calls(run.id, state="completed", tool="add")).items

    assert (call.call_id, call.result, len(call.attempts)) == ("call_1_0", 42, 1)
    assert await milepost.runs.tool_call(run.id, call.call_id) == call
    assert (await milepost.runs.tool_calls(run.id, state="denied")).items == ()


async def test_calls_that_are_the_client_s_own_are_answered_by_it(milepost: Milepost) -> None:
    said = 'call look {"at": "the left"}\ncall look {"at": "the right"}'
    run = await milepost.runs.create("parrot", said)
    asked = [
        event.data["call_id"]
        async for event in milepost.runs.stream(run.id, until_waiting=True)
        if event.type == "tool_call.requested" and event.data["kind"] == "client"
    ]

    answered = await milepost.runs.tool_results(
        run.id, {asked[0]: {"seen": "a cat"}}, errors={asked[1]: "the window is closed"}
    )
    again = await milepost.runs.tool_results(run.id, {asked[0]: {"seen": "a cat"}})
    with pytest.raises(ApiError) as caught:
        await milepost.runs.tool_results(run.id, {asked[0]: None})

    assert answered.id == again.id == run.id
    assert caught.value.code == "call_answered"
    said = (await milepost.runs.wait(run.id)).text or ""
    assert said.startswith('said: {"seen":"a cat"} ')
    assert said.strip().endswith("the window is closed")


async def test_a_schedule_is_made_found_changed_and_forgotten(milepost: Milepost) -> None:
    run: ScheduledRun = {"agent": "demo", "input": "What is 17 + 25?", "metadata": {"a": "b"}}
    schedule = await milepost.schedules.create(
        "59 23 31 12 *", run, timezone="Asia/Kolkata", name="sums", metadata={"test": "schedules"}
    )

    found = await milepost.schedules.list(metadata={"test": "schedules"}, enabled=True)
    paused = await milepost.schedules.update(schedule.id, if_still=1, enabled=False)
    with pytest.raises(ApiError) as changed:
        await milepost.schedules.update(schedule.id, if_still=1, cron="0 9 * * *")
    with pytest.raises(ApiError) as kept:
        await milepost.schedules.delete(schedule.id, if_still=1)

    assert found.items == (schedule,)
    assert (schedule.cron, schedule.name, schedule.last) == ("59 23 31 12 *", "sums", None)
    assert schedule.next_at == schedule.upcoming[0]
    assert schedule.upcoming[0].endswith("-12-31T18:29:00.000Z")
    assert (paused.enabled, paused.next_at, paused.version) == (False, None, 2)
    assert changed.value.status == kept.value.status == 412
    assert await milepost.schedules.get(schedule.id) == paused
    await milepost.schedules.delete(schedule.id)
    with pytest.raises(ApiError, match="no schedule"):
        await milepost.schedules.get(schedule.id)


async def test_a_schedules_run_is_read_and_set_again_with_something_else_in_it(
    milepost: Milepost,
) -> None:
    run: ScheduledRun = {"agent": "demo", "input": "What is 17 + 25?", "user": "ann"}
    schedule = await milepost.schedules.create("59 23 31 12 *", run, enabled=False, overlap="allow")

    other: ScheduledRun = {**schedule.run, "input": "What is 1 + 1?"}
    changed = await milepost.schedules.update(schedule.id, run=other, late_max_s=60)

    assert changed.run == {**schedule.run, "input": "What is 1 + 1?"}
    assert (changed.run["user"], changed.overlap, changed.late_max_s) == ("ann", "allow", 60)
    assert (await milepost.schedules.list(user="ann", enabled=False)).items == (changed,)
    assert (await milepost.schedules.list(agent="parrot")).items == ()


async def test_a_question_is_found_and_answered_once(milepost: Milepost) -> None:
    run_id = await parked(milepost)

    (question,) = (await milepost.approvals.list(status="pending", run_id=run_id)).items
    answered = await milepost.approvals.decide(question.id, "deny", comment="not today")

    assert (question.tool, question.arguments["to"]) == ("send_email", "ann@example.com")
    assert (answered.status, answered.comment) == ("denied", "not today")
    assert (await milepost.approvals.get(question.id)).decision == "deny"
    with pytest.raises(ApiError) as caught:
        await milepost.approvals.decide(question.id, "approve")
    assert (caught.value.status, caught.value.code) == (409, "approval_decided")
    assert (await milepost.runs.wait(run_id)).status == "completed"


async def test_several_questions_are_answered_together_or_none_is(milepost: Milepost) -> None:
    run_ids = [await parked(milepost) for _ in range(3)]
    first, second, third = [
        (await milepost.approvals.list(run_id=run_id, mine=True)).items[0] for run_id in run_ids
    ]

    withdrawn = await milepost.approvals.withdraw(third.id, reason="settled")
    named = [{"approval_id": each.id, "decision": "deny"} for each in (first, second)]
    late = {"approval_id": third.id, "decision": "approve"}
    with pytest.raises(ApiError) as caught:
        await milepost.approvals.decide_all([*named, late])
    denied = await milepost.approvals.decide_all(named)

    assert (withdrawn.status, withdrawn.comment) == ("withdrawn", "settled")
    assert caught.value.code == "none_decided"
    assert [each.status for each in denied] == ["denied", "denied"]


async def test_an_agent_is_defined_changed_and_taken_away(milepost: Milepost) -> None:
    agent = await milepost.agents.create(name="adder", model="demo/offline", tools=["add"])

    changed = await milepost.agents.update(agent.id, if_still=1, tools=["add", "multiply"])
    with pytest.raises(ApiError) as stale:
        await milepost.agents.update(agent.id, if_still=1, tools=[])
    versions = await milepost.agents.versions("adder")
    await milepost.agents.delete("adder")

    assert (agent.version, changed.version) == (1, 2)
    assert stale.value.status == 412
    assert [list(each.tools) for each in versions.items] == [["add", "multiply"], ["add"]]
    assert "adder" not in {each.name for each in (await milepost.agents.list()).items}
    with pytest.raises(ApiError):
        await milepost.agents.get("adder")


async def test_a_conversation_is_kept_and_erased(milepost: Milepost) -> None:
    session = await milepost.sessions.create(title="sums", metadata={"team": "a"})
    run = await milepost.runs.create("demo", "What is 1 + 1?", session_id=session.id)
    await milepost.runs.wait(run.id)

    changed = await milepost.sessions.update(session.id, if_still=session.version, title="one sum")
    messages = await milepost.sessions.messages(session.id)

    assert changed.title == (await milepost.sessions.get(session.id)).title == "one sum"
    assert messages.items[0]["content"] == "What is 1 + 1?"
    latest = await milepost.sessions.messages(session.id, order="desc", limit=1)
    assert (latest.items[0]["content"], latest.has_more) == ("1 + 1 = 2.", True)
    assert [each.id for each in (await milepost.sessions.runs(session.id)).items] == [run.id]
    assert session.id in {each.id for each in (await milepost.sessions.list()).items}
    archived = await milepost.sessions.update(session.id, archived=True, ttl_s=3_600)
    assert (archived.archived, archived.ttl_s, archived.keep_s) == (True, 3_600, None)
    found = await milepost.sessions.list(title="one sum", archived=True)
    assert [each.id for each in found.items] == [session.id]
    fork = await milepost.sessions.fork(session.id, at="1.0", title="another sum")
    assert fork.forked_from == {"session_id": session.id, "at": "1.0"}
    await milepost.sessions.delete(fork.id)
    imported = await milepost.sessions.import_(await milepost.sessions.export(session.id))
    assert (imported.title, imported.runs_ended) == ("one sum", 1)
    told = [
        event.type
        async for event in milepost.sessions.stream(session.id, types=["run.*"], until_idle=True)
    ]
    assert (told[0], told[-1]) == ("run.queued", "run.completed")
    of_run = await milepost.sessions.messages(session.id, run_id=run.id)
    assert of_run.items == messages.items
    await milepost.sessions.delete(session.id)
    with pytest.raises(ApiError):
        await milepost.sessions.get(session.id)


async def test_what_was_rolled_back_is_shown_to_whoever_asks(milepost: Milepost) -> None:
    run = await milepost.runs.get(await parked(milepost))
    other = await milepost.runs.create(
        "demo", "What is 1 + 1?", session_id=run.session_id, if_active="rollback"
    )
    await milepost.runs.wait(other.id)

    left = await milepost.sessions.messages(run.session_id)
    whole = await milepost.sessions.messages(run.session_id, rolled_back=True)

    assert left.items[0]["content"] == "What is 1 + 1?"
    assert whole.items[0]["content"] == MAIL


async def test_a_sessions_window_is_looked_after(milepost: Milepost) -> None:
    memory = {"window": {"messages": 2}}
    await milepost.agents.create(name="brief", model="demo/milepost-demo", memory=memory)
    session = await milepost.sessions.create()
    for said in ("One.", "Two.", "Three."):
        run = await milepost.runs.create("brief", said, session_id=session.id)
        await milepost.runs.wait(run.id)

    await milepost.sessions.pin(session.id, "1.0")
    assert await milepost.sessions.pins(session.id) == ("1.0",)
    await milepost.sessions.unpin(session.id, "1.0")
    assert await milepost.sessions.pins(session.id) == ()
    [summary] = (await milepost.sessions.summaries(session.id)).items
    assert (summary["first"], summary["reverted_at"]) == ("1.0", None)
    await milepost.sessions.revert(session.id, summary["id"])
    [reverted] = (await milepost.sessions.summaries(session.id, limit=1)).items
    assert reverted["reverted_at"] is not None


async def test_memories_are_kept_found_corrected_and_forgotten(milepost: Milepost) -> None:
    kept = await milepost.memories.create(
        scope="user", owner="mia", kind="fact", content="Mia likes chess."
    )
    entity = await milepost.memories.create(
        scope="user", owner="mia", kind="entity", subject="Mia", attributes={"is": "a person"}
    )

    assert await milepost.memories.get(kept.id) == kept
    assert (kept.source["origin"], entity.attributes) == ("client", {"is": "a person"})
    assert [each.id for each in (await milepost.memories.list(q="chess")).items] == [kept.id]
    changed = await milepost.memories.put(kept.id, if_still=1, content="Mia likes go.")
    assert (changed.content, changed.version) == ("Mia likes go.", 2)
    with pytest.raises(ApiError, match="If-Match"):
        await milepost.memories.delete(kept.id, if_still=1)
    await milepost.memories.delete(entity.id)
    assert [each.id async for each in milepost.memories.of_user("mia")] == [kept.id]
    assert await milepost.memories.erase("mia") == 1
    assert (await milepost.memories.list(user="mia")).items == ()


async def test_a_budget_is_made_watched_changed_and_taken_away(milepost: Milepost) -> None:
    mark = {"test": "budgets"}
    budget = await milepost.budgets.create(
        scope="user", scope_value="eve", period="day", limits={"model_calls": 5}, metadata=mark
    )
    run = await milepost.runs.create("demo", "hello", user="eve")
    await milepost.runs.wait(run.id)

    (counter,) = (await milepost.budgets.counters(budget.id, scope_value="eve")).items
    changed = await milepost.budgets.update(budget.id, if_still=1, limits={"model_calls": 1})
    with pytest.raises(ApiError) as stale:
        await milepost.budgets.delete(budget.id, if_still=1)

    assert (counter.scope_value, counter.spent) == ("eve", {"model_calls": 1})
    assert counter.remaining == {"model_calls": 4}
    assert (changed.version, changed.limits["model_calls"]) == (2, 1)
    assert stale.value.status == 412
    assert (await milepost.budgets.get(budget.id)).limits == changed.limits
    assert (await milepost.budgets.list(scope="user", metadata=mark)).items == (changed,)
    await milepost.budgets.delete(budget.id)
    assert (await milepost.budgets.list(metadata=mark)).items == ()


async def test_a_sessions_rules_are_changed_asked_and_taken_away(milepost: Milepost) -> None:
    session = await milepost.sessions.create(title="rules")
    call = ("demo", "add", {"a": "1", "b": 2})
    before = await milepost.policies.check(*call, session_id=session.id)

    kept = await milepost.policies.put({"deny": [{"tool": "add", "reason": "no"}]}, session.id)
    after = await milepost.policies.check(*call, session_id=session.id)
    with pytest.raises(ApiError) as stale:
        await milepost.policies.put({}, session.id, if_still=0)
    read = await milepost.policies.get(session.id)
    await milepost.policies.delete(session.id, if_still=kept.version)

    assert (before.verdict, before.arguments) == ("allow", {"a": 1, "b": 2})
    assert (after.verdict, after.reason) == ("deny", "session's policy: deny add: no")
    assert stale.value.status == 412
    assert read == kept
    assert (await milepost.policies.get(session.id)).policy is None
    assert (await milepost.policies.get()).scope == "tenant"


async def test_grants_are_listed_and_those_that_are_not_there_are_named(
    milepost: Milepost,
) -> None:
    session = await milepost.sessions.create(title="grants")

    page = await milepost.grants.list(session_id=session.id, tool="add", active=True, limit=5)

    assert (page.items, page.has_more) == ((), False)
    for ask in (milepost.grants.get, milepost.grants.revoke):
        with pytest.raises(ApiError) as missing:
            await ask("gra_x")
        assert (missing.value.status, missing.value.code) == (404, "grant_not_found")


async def test_pages_are_turned_by_their_cursor(milepost: Milepost) -> None:
    mark = {"test": "pages"}
    runs = [await milepost.runs.create("demo", "hello", metadata=mark) for _ in range(3)]

    first = await milepost.runs.list(metadata=mark, limit=2)
    second = await milepost.runs.list(metadata=mark, limit=2, after=first.next_cursor)

    assert first.has_more
    assert not second.has_more
    assert [run.id for run in (*first.items, *second.items)] == [run.id for run in reversed(runs)]


async def test_a_chat_waits_for_its_users_yes_and_acts_on_it_once(milepost: Milepost) -> None:
    asked = await milepost.channels.send("sms", "c/1", "m1", text=MAIL, user="ann", agent="demo")
    waiting = await milepost.channels.pending("sms", "c/1", user="ann")

    yes = [
        await milepost.channels.send("sms", "c/1", "m2", intent="confirm", user="ann", wait_s=20)
        for _ in range(2)
    ]

    assert (asked.outcome, asked.pending) == ("started", waiting)
    assert waiting is not None
    assert waiting.kind == "approval"
    assert yes[0] == yes[1]
    assert (yes[0].outcome, yes[0].run_id, yes[0].pending) == ("confirmed", asked.run_id, None)


async def test_how_long_things_are_kept_is_said_and_changed(milepost: Milepost) -> None:
    kept = await milepost.users.keep(traces_s=86_400)

    read = await milepost.users.retention()

    assert (kept.runs_s, kept.traces_s) == (None, 86_400)
    assert read == kept
    changed = await milepost.users.keep(if_still=kept.version, traces_s=90_000)
    with pytest.raises(ApiError) as stale:
        await milepost.users.keep(if_still=kept.version, traces_s=100_000)
    assert (changed.version, stale.value.status) == (kept.version + 1, 412)
    assert "runs" in {table["name"] for table in (await milepost.users.storage())["tables"]}


async def test_all_that_there_is_of_a_user_is_exported_line_by_line(milepost: Milepost) -> None:
    said = "What is 17 + 25?\u2028And\x85 so on."
    run = await milepost.runs.create("demo", said, user="a/b bob")
    await milepost.runs.wait(run.id)

    things = [each async for each in milepost.users.export("a/b bob")]

    kinds = [each["kind"] for each in things]
    assert kinds[:2] == ["session", "run"]
    assert set(kinds[2:]) == {"event"}
    assert things[1]["data"]["id"] == run.id
    assert things[2]["data"]["data"]["input"][0]["content"] == said
    assert [each async for each in milepost.users.export("nobody")] == []


async def test_a_user_is_erased_and_waited_for(milepost: Milepost) -> None:
    run = await milepost.runs.create("demo", "What is 17 + 25?", user="a/b ann")
    await milepost.runs.wait(run.id)

    erasure = await milepost.users.erase("a/b ann", timeout_s=60)

    assert (erasure.status, erasure.user, erasure.erased["runs"]) == ("completed", None, 1)
    assert [each.id for each in (await milepost.users.erasures()).items] == [erasure.id]
    assert await milepost.users.erasure(erasure.id) == erasure
    with pytest.raises(ApiError, match="no run"):
        await milepost.runs.get(run.id)
