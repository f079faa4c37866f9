"""`/v1/channels`: chats, what waits in them for a yes, and what becomes of an answer."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from milepost.core.pending import IGNORED_S
from milepost.live.frames import rfc3339
from milepost.runtime.clock import now_ms
from tests.api.asking import events
from tests.api.chatting import AGENT, Chat, chatting, shop
from tests.api.making import made, refusal
from tests.api.serving import KeyedService
from tests.contract import CONTRACT
from tests.stubs.directed_model import directed_model

LONG_AGO_MS = 1_000
PENDING = '"kind":"pending_confirmation"'


@pytest.fixture
async def chat(database_url: str, tmp_path: Path) -> AsyncIterator[Chat]:
    """A user who talks to a shop, on each database."""
    async with chatting(database_url, tmp_path) as chat:
        yield chat


async def test_dc1_nothing_is_executed_when_an_action_is_put_off(chat: Chat) -> None:
    shown = await chat.call("refund", order="A1")

    assert (shown["outcome"], chat.done) == ("started", [])
    assert PENDING in shown["reply"]
    pending = shown["pending"]
    assert (pending["kind"], pending["preview"]) == ("refund", "Refund 100 cents of A1")
    assert pending["user_prompt"].startswith("Refund 100 cents of A1\nReply yes to confirm")
    assert pending == await chat.waiting()


async def test_dc1_outside_a_chat_there_is_nobody_to_ask(chat: Chat) -> None:
    body = {"agent": "clerk", "input": 'call refund {"order": "A1"}', "user": chat.user}

    run = await made(chat.client, "/v1/runs?wait=20", body)

    assert run["output"]["text"] == "said: at once A1 "
    assert await chat.waiting() is None


@pytest.mark.parametrize("tool", ["from_context", "isolated"])
async def test_dc1_an_action_is_put_off_through_the_context_and_from_another_process(
    chat: Chat, tool: str
) -> None:
    shown = await chat.call(tool, order="A1")
    confirmed = await chat.say("sim")

    assert PENDING in shown["reply"]
    assert confirmed["reply"] == f"refunded {1 if tool == 'from_context' else 7} of A1"


async def test_dc2_a_yes_executes_exactly_the_preview_and_asks_no_model(chat: Chat) -> None:
    first = await chat.call("refund", order="A1")
    asked = chat.asked

    shown = await chat.say("Yes!")

    assert (shown["outcome"], shown["reply"]) == ("confirmed", "refunded 100 of A1")
    assert (chat.done, chat.asked) == (["refunded 100 of A1"], asked)
    assert (shown["pending"], shown["session_id"]) == (None, first["session_id"])
    log = await events(chat.client, shown["run_id"])
    (began,) = [each["data"] for each in log if each["type"] == "tool_call.requested"]
    assert (began["name"], began["arguments"]) == ("do_refund", {"order": "A1", "cents": 100})


async def test_dc2_who_confirmed_what_brings_nothing_is_told_that_it_was_done(chat: Chat) -> None:
    await chat.call("put_off", kind="quiet")

    shown = await chat.say("yes")

    assert chat.done == ["done quietly"]
    assert (shown["outcome"], shown["reply"]) == ("confirmed", "Done: Do quiet")


async def test_dc2_a_no_drops_what_waits_and_says_so(chat: Chat) -> None:
    await chat.call("refund", order="A1")
    asked = chat.asked

    shown = await chat.say("não, obrigado")
    late = await chat.say("yes")

    assert (shown["outcome"], shown["reply"]) == ("cancelled", "Cancelled: Refund 100 cents of A1")
    assert (shown["run_id"], shown["pending"]) == (None, None)
    assert late["outcome"] == "started"  # There is nothing to say yes to: the model answers.
    assert (chat.done, chat.asked) == ([], asked + 1)


async def test_dc2_anything_else_drops_what_waits_and_is_answered(chat: Chat) -> None:
    first = await chat.call("refund", order="A1")

    shown = await chat.say("yes, but refund the other one")

    assert (shown["outcome"], shown["pending"]) == ("superseded", None)
    assert shown["reply"] == "said: yes, but refund the other one "
    assert shown["session_id"] == first["session_id"]
    assert (await chat.record(first["pending"]["id"])).status == "superseded"
    assert chat.done == []


async def test_dc3_the_record_says_who_confirmed_what_when_and_what_read_it(chat: Chat) -> None:
    first = await chat.call("refund", order="A1")
    shown = await chat.say("yes")

    row = await chat.record(first["pending"]["id"])

    assert (row.channel, row.conversation, row.user) == ("whatsapp", "c1", "+5511999")
    assert (row.status, row.executed_by) == ("confirmed", shown["run_id"])
    assert row.answered_by == "channel:whatsapp:+5511999"
    assert row.parser == "whole-message-v2:pt-en-es"
    assert row.digest.startswith("sha256:")
    audit = (await chat.client.get("/v1/audit?action=pending_action.confirmed")).json()["data"]
    assert [act["details"]["args"] for act in audit] == [{"order": "A1", "cents": 100}]


@pytest.mark.parametrize(
    ("kind", "answer", "action"),
    [
        ("refund", "yes", "pending_action.confirmed"),
        ("refund", "no", "pending_action.cancelled"),
        ("refund", "what is the weather?", "pending_action.superseded"),
        ("fly", "yes", "pending_action.consumed"),
    ],
)
async def test_dc3_the_contract_names_what_the_audit_trail_has_of_an_answer(
    chat: Chat, kind: str, answer: str, action: str
) -> None:
    await chat.call("put_off", kind=kind, args={"order": "A1", "cents": 1})
    await chat.say(answer)

    acts = (await chat.client.get("/v1/audit")).json()["data"]

    schema = {"$ref": "urn:contract#/components/schemas/Act"}
    registry: Registry[Any] = Registry().with_resource(
        "urn:contract", DRAFT202012.create_resource(CONTRACT)
    )
    assert action in {act["action"] for act in acts}
    for act in acts:
        Draft202012Validator(schema, registry=registry).validate(act)


async def test_dc4_an_answer_has_sixty_seconds_unless_the_tool_says_otherwise(chat: Chat) -> None:
    first = await chat.call("refund", order="A1")
    await chat.say("no")
    second = await chat.call("refund", order="A2", ttl_s=120)

    usual = await chat.record(first["pending"]["id"])
    longer = await chat.record(second["pending"]["id"])

    assert usual.expires_ms - usual.requested_ms == 60_000
    assert longer.expires_ms - longer.requested_ms == 120_000


async def test_dc6_a_yes_counts_in_its_own_conversation_channel_and_for_its_own_user(
    chat: Chat,
) -> None:
    await chat.call("refund", order="A1")

    others = [
        replace(chat, conversation="c2"),
        replace(chat, user="+5511888"),
        replace(chat, channel="telegram"),
    ]
    outcomes = [(await other.press("confirm", message_id="x"))["outcome"] for other in others]

    assert (outcomes, chat.done) == (["nothing_pending"] * 3, [])
    assert (await chat.press("confirm"))["outcome"] == "confirmed"


async def test_dc6_a_yes_that_comes_too_late_does_nothing_and_is_told_so(chat: Chat) -> None:
    first = await chat.call("refund", order="A1")
    await chat.change(first["pending"]["id"], expires_ms=LONG_AGO_MS)
    asked = chat.asked

    shown = await chat.say("yes")

    assert (shown["outcome"], shown["run_id"], chat.done) == ("expired", None, [])
    assert "too late" in shown["reply"]
    assert (await chat.record(first["pending"]["id"])).status == "expired"
    assert chat.asked == asked


async def test_dc7_one_message_that_is_delivered_twenty_times_at_once_acts_once(
    chat: Chat,
) -> None:
    await chat.call("refund", order="A1")

    answers = await asyncio.gather(*(chat.post(text="yes", message_id="yes") for _ in range(20)))

    shown = [answer.json() for answer in answers]
    assert chat.done == ["refunded 100 of A1"]
    assert [each["reply"] for each in shown] == ["refunded 100 of A1"] * 20
    assert len({each["run_id"] for each in shown}) == 1
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 19


async def test_dc7_twenty_messages_at_once_that_say_yes_act_once(chat: Chat) -> None:
    await chat.call("refund", order="A1")

    answers = await asyncio.gather(*(chat.press("confirm") for _ in range(20)))

    outcomes = sorted(each["outcome"] for each in answers)
    assert chat.done == ["refunded 100 of A1"]
    assert outcomes == ["confirmed", *["nothing_pending"] * 19]


async def test_dc7_a_message_that_starts_a_run_starts_one(chat: Chat) -> None:
    answers = await asyncio.gather(*(chat.post(text="hello", message_id="m") for _ in range(5)))
    other = await chat.post(text="goodbye", message_id="m")

    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert {answer.json()["reply"] for answer in answers} == {"said: hello "}
    assert chat.asked == 1
    assert refusal(other) == (409, "message_id_reused")


async def test_a_message_id_counts_within_its_conversation(chat: Chat) -> None:
    first = await chat.say("hello", message_id="1")
    second = await replace(chat, conversation="c2").say("goodbye", message_id="1")

    assert (first["reply"], second["reply"]) == ("said: hello ", "said: goodbye ")
    assert first["session_id"] != second["session_id"]


async def test_dc8_there_is_one_action_at_a_time_and_the_model_sees_why(chat: Chat) -> None:
    both = await chat.say('call refund {"order": "A1"}\ncall refund {"order": "A2"}')
    twice = await replace(chat, conversation="c2").call("twice")

    first = both["pending"]
    assert first["preview"] in {"Refund 100 cents of A1", "Refund 100 cents of A2"}
    assert f"another action waits for the user's answer: {first['preview']}" in both["reply"]
    assert "PendingActionExistsError" not in twice["reply"]  # said in words, not by its name
    assert "another action waits for the user's answer: the first" in twice["reply"]
    assert twice["pending"] is None  # A call that failed has put nothing off.


async def test_dc8_a_later_call_of_the_same_run_stops_where_it_puts_off_a_second_action(
    chat: Chat,
) -> None:
    await made(chat.client, "/v1/agents", {**AGENT, "name": "slow", "parallel_tools": False})

    shown = await chat.say(
        'call prepare {"order": "A1"}\ncall prepare {"order": "A2"}', agent="slow"
    )

    assert chat.done == ["prepared A1"]
    assert shown["pending"]["preview"] == "Refund A1"
    assert "another action waits for the user's answer: Refund A1" in shown["reply"]


async def test_a_call_that_fails_has_put_nothing_off(chat: Chat) -> None:
    shown = await chat.call("then_fail")

    assert shown["pending"] is None
    assert "it cannot be refunded" in shown["reply"]


async def test_dc9_dc10_what_waits_outlives_the_process_and_is_executed_by_another(
    database_url: str, tmp_path: Path
) -> None:
    async with directed_model() as model:
        async with shop(database_url, tmp_path, model) as service, service.client() as client:
            await made(client, "/v1/agents", AGENT)
            before = Chat(client, service.app._parts.ports.store, model, tmp_path)
            first = await before.call("refund", order="A1")
        async with shop(database_url, tmp_path, model) as service, service.client() as client:
            after = replace(before, client=client, store=service.app._parts.ports.store)
            waiting = await after.waiting()
            shown = await after.say("yes")

    assert waiting == first["pending"]
    assert (shown["outcome"], after.done) == ("confirmed", ["refunded 100 of A1"])


async def test_dc11_what_nothing_here_executes_is_used_up_and_told(chat: Chat) -> None:
    first = await chat.call("put_off", kind="fly")

    shown = await chat.say("yes")
    again = await chat.press("confirm")

    assert (shown["outcome"], shown["run_id"]) == ("no_executor", None)
    assert (await chat.record(first["pending"]["id"])).status == "consumed"
    assert again["outcome"] == "nothing_pending"


async def test_dc12_an_intent_is_read_by_no_parser_and_starts_nothing(chat: Chat) -> None:
    nothing = await chat.press("confirm")
    await chat.call("refund", order="A1")
    asked = chat.asked

    shown = await chat.press("  CONFIRM ")

    assert (nothing["outcome"], nothing["session_id"]) == ("nothing_pending", None)
    assert (shown["outcome"], chat.done) == ("confirmed", ["refunded 100 of A1"])
    assert chat.asked == asked


async def test_dc12_a_cancel_drops_what_waits(chat: Chat) -> None:
    await chat.call("refund", order="A1")

    shown = await chat.press("cancel")

    assert (shown["outcome"], shown["pending"], chat.done) == ("cancelled", None, [])


@pytest.mark.parametrize("intent", ["confirm", "cancel", "ignore"])
async def test_dc13_an_answer_to_something_else_leaves_what_waits_alone(
    chat: Chat, intent: str
) -> None:
    first = await chat.call("refund", order="A1")

    kind = await chat.press(intent, expected_kind="payment")
    named = await chat.press(intent, expected_id="pnd_0")

    assert (kind["outcome"], named["outcome"]) == ("kind_mismatch", "kind_mismatch")
    assert kind["pending"] == named["pending"] == first["pending"]
    fitting = await chat.press(
        "confirm", expected_kind="refund", expected_id=first["pending"]["id"]
    )
    assert fitting["outcome"] == "confirmed"


async def test_dc14_arguments_that_changed_since_are_never_executed(chat: Chat) -> None:
    first = await chat.call("refund", order="A1")
    await chat.change(first["pending"]["id"], args='{"order": "A1", "cents": 1000000}')

    shown = await chat.say("yes")
    again = await chat.press("confirm")

    assert (shown["outcome"], shown["pending"], chat.done) == ("digest_mismatch", None, [])
    assert again["outcome"] == "nothing_pending"


async def test_dc14_an_action_that_is_another_than_was_shown_is_not_executed(chat: Chat) -> None:
    first = await chat.call("refund", order="A1")
    other = "sha256:" + "0" * 64
    await chat.change(first["pending"]["id"], args='{"order": "B"}', digest=other)

    assert (await chat.say("yes"))["outcome"] == "digest_mismatch"
    assert chat.done == []


async def test_a_yes_to_what_was_never_shown_is_none_and_shows_it(chat: Chat) -> None:
    chat.wait_s = 0
    started = await chat.call("charge", order="A1")
    while (waiting := await chat.waiting()) is None:
        pass
    chat.wait_s = 20

    unseen = await chat.say("yes")
    seen = await chat.say("yes")

    assert (started["outcome"], started["pending"]) == ("started", None)
    assert (unseen["outcome"], unseen["pending"]["id"]) == ("kind_mismatch", waiting["id"])
    assert (seen["outcome"], chat.done) == ("confirmed", ["charged A1"])


@pytest.mark.parametrize("intent", ["ignore", "explode"])
async def test_dc15_what_is_ignored_leaves_the_action_ten_seconds(chat: Chat, intent: str) -> None:
    first = await chat.call("refund", order="A1")

    shown = await chat.press(intent)

    assert shown["outcome"] == "ignored"
    assert shown["pending"]["id"] == first["pending"]["id"]
    assert shown["pending"]["expires_at"] <= rfc3339(now_ms() + round(IGNORED_S * 1000))
    assert (await chat.say("yes"))["outcome"] == "confirmed"


@pytest.mark.parametrize("tool", ["refund", "charge"])
async def test_who_is_shown_again_what_waits_is_told_the_time_that_is_left(
    chat: Chat, tool: str
) -> None:
    shown = await chat.call(tool, order="A1")

    again = await chat.press("ignore")

    assert shown["pending"]["user_prompt"].endswith("within 60 seconds.")
    told = re.search(r"within (\d+) seconds\.$", again["pending"]["user_prompt"])
    assert told is not None
    assert int(told[1]) <= IGNORED_S
    assert (await chat.waiting() or {})["user_prompt"] != shown["pending"]["user_prompt"]


async def test_a_time_of_weeks_is_told_in_plain_digits(chat: Chat) -> None:
    await made(chat.client, "/v1/agents", asking(ttl_s=1_209_600))

    shown = await chat.say('call charge {"order": "A1"}', agent="strict")

    assert shown["pending"]["user_prompt"].endswith("within 1209600 seconds.")


async def test_dc17_of_an_executor_that_fails_only_the_kind_of_error_is_told(chat: Chat) -> None:
    first = await chat.call("put_off", kind="broken")

    shown = await chat.say("yes")
    again = await chat.press("confirm")

    assert (shown["outcome"], shown["reply"]) == ("failed", "do_broken failed: ValueError")
    assert "Zanzibar" not in str(await events(chat.client, shown["run_id"]))
    assert (await chat.record(first["pending"]["id"])).status == "confirmed"
    assert again["outcome"] == "nothing_pending"


async def test_permissions_hold_for_what_was_confirmed(chat: Chat) -> None:
    await chat.call("put_off", kind="gated")

    shown = await chat.say("yes")

    assert (shown["outcome"], chat.done) == ("failed", [])


async def test_arguments_that_the_executor_does_not_take_are_a_failure(chat: Chat) -> None:
    await chat.call("put_off", kind="refund", args={"order": "A1", "cents": "many"})

    shown = await chat.say("yes")

    assert (shown["outcome"], chat.done) == ("failed", [])


async def test_dc18_another_parser_may_read_the_answers(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jawohl.py").write_text(
        "class Jawohl:\n    version = 'de-1'\n"
        "    def is_confirm(self, text): return text == 'jawohl'\n"
        "    def is_cancel(self, text): return text == 'nein'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    async with chatting(database_url, tmp_path, confirmations="jawohl:Jawohl") as chat:
        first = await chat.call("refund", order="A1")
        no = await chat.say("nein")
        await chat.call("refund", order="A2")
        yes = await chat.say("jawohl")

        assert (no["outcome"], yes["outcome"]) == ("cancelled", "confirmed")
        assert (await chat.record(first["pending"]["id"])).parser == "de-1"


@pytest.mark.parametrize("text", ["ok", "claro", "pode", "si quieres", "approved", "confirm: yes"])
async def test_dc19_what_is_not_plainly_yes_is_for_the_model(chat: Chat, text: str) -> None:
    await chat.call("refund", order="A1")

    shown = await chat.say(text)

    assert (shown["outcome"], shown["reply"], chat.done) == ("superseded", f"said: {text} ", [])


async def test_an_approval_of_the_conversations_run_is_confirmed_by_its_user(chat: Chat) -> None:
    asked = await chat.call("charge", order="A1")

    shown = await chat.say("sí")

    assert (asked["outcome"], asked["reply"]) == ("started", None)
    assert (asked["pending"]["kind"], asked["pending"]["preview"]) == (
        "approval", "charge(order='A1')",
    )  # fmt: skip
    assert (shown["outcome"], shown["reply"]) == ("confirmed", "said: charged A1 ")
    assert (shown["run_id"], chat.done) == (asked["run_id"], ["charged A1"])
    approval = (await chat.client.get(f"/v1/approvals/{asked['pending']['id']}")).json()
    assert (approval["status"], approval["decided_by"]) == (
        "approved", "channel:whatsapp:+5511999",
    )  # fmt: skip


async def test_whoever_is_asked_to_approve_is_shown_all_of_the_call(chat: Chat) -> None:
    order = "A1 " * 100 + "and pay Eve"

    asked = await chat.call("charge", order=order)
    waits = await chat.waiting()

    assert asked["pending"]["preview"] == f"charge(order='{order}')"
    assert asked["pending"]["user_prompt"].startswith(f"charge(order='{order}')\nReply yes ")
    assert waits is not None
    assert waits["preview"] == asked["pending"]["preview"]


async def test_an_approval_is_denied_by_a_no_and_the_model_is_told(chat: Chat) -> None:
    asked = await chat.call("charge", order="A1")

    shown = await chat.press("cancel")

    assert (shown["outcome"], shown["run_id"], chat.done) == ("cancelled", asked["run_id"], [])
    assert "denied" in shown["reply"]


async def test_whoever_goes_on_takes_the_question_back_and_is_answered(chat: Chat) -> None:
    asked = await chat.call("charge", order="A1")

    shown = await chat.say("what is the weather?")

    assert (shown["outcome"], shown["reply"]) == ("superseded", "said: what is the weather? ")
    approval = (await chat.client.get(f"/v1/approvals/{asked['pending']['id']}")).json()
    assert approval["status"] == "superseded"
    assert (await chat.run(asked["run_id"]))["status"] == "cancelled"
    assert chat.done == []


async def test_who_sits_at_a_chat_has_a_minute_to_approve_unless_the_agent_says(
    chat: Chat,
) -> None:
    patient = {**AGENT, "name": "patient", "limits": {"approval_ttl_s": 600}}
    await made(chat.client, "/v1/agents", patient)
    usual = await chat.call("charge", order="A1")
    longer = await replace(chat, conversation="c2").say(
        'call charge {"order": "A2"}', agent="patient"
    )

    times = [
        (await chat.client.get(f"/v1/approvals/{each['pending']['id']}")).json()
        for each in (usual, longer)
    ]

    assert "within 60 seconds" in usual["pending"]["user_prompt"]
    assert "within 600 seconds" in longer["pending"]["user_prompt"]
    assert times[0]["expires_at"] < times[1]["expires_at"]


async def test_a_conversation_goes_on_with_the_agent_and_the_session_that_it_had(
    chat: Chat,
) -> None:
    first = await chat.say("hello")
    second = await chat.say("again", agent=None)

    assert first["session_id"] == second["session_id"]
    said = [turn["content"] for turn in chat.model.requests[-1]["messages"]]
    assert said[-3:] == ["hello", "said: hello ", "again"]


async def test_a_conversation_whose_session_was_erased_begins_anew(chat: Chat) -> None:
    first = await chat.say("hello")
    erased = await chat.client.delete(f"/v1/sessions/{first['session_id']}")

    second = await chat.say("again")

    assert erased.is_success, erased.text
    assert second["reply"] == "said: again "
    assert second["session_id"] != first["session_id"]


async def test_a_message_without_anybody_to_answer_is_refused_and_may_come_again(
    chat: Chat,
) -> None:
    nobody = await chat.post(text="hello", agent=None, message_id="m")
    unknown = await chat.post(text="hello", agent="none", message_id="m")
    both = await chat.post(text="hello", intent="confirm")
    shouting = await replace(chat, channel="SMS").post(text="hello")

    assert refusal(nobody) == (422, "agent_required")
    assert refusal(unknown) == (404, "agent_not_found")
    assert refusal(both)[0] == 422
    assert refusal(shouting) == (422, "bad_channel")
    assert (await chat.say("hello", message_id="m"))["reply"] == "said: hello "


async def test_no_agent_is_given_what_executes_and_nobody_calls_it(chat: Chat) -> None:
    agent = await chat.client.post(
        "/v1/agents", json={**AGENT, "name": "bold", "tools": ["do_refund"]}
    )
    called = await chat.client.post("/v1/tools/do_refund/call", json={"arguments": {}})
    shown = (await chat.client.get("/v1/tools/do_refund")).json()

    assert refusal(agent) == (422, "executor_tool")
    assert refusal(called) == (409, "executor_call")
    assert shown["executes"] == "refund"


async def test_another_tenants_conversation_of_the_same_name_is_another(
    keyed: KeyedService,
) -> None:
    path = "/v1/channels/sms/messages"
    body = {"user": "ann", "conversation": "c1", "message_id": "m1", "intent": "cancel"}

    ours = await keyed.acme.post(path, json=body)
    theirs = await keyed.globex.post(path, json={**body, "intent": "confirm"})

    assert ours.json()["outcome"] == theirs.json()["outcome"] == "nothing_pending"
    assert "idempotency-replayed" not in theirs.headers


async def test_whoever_speaks_for_others_needs_the_right_to(keyed: KeyedService) -> None:
    own = await keyed.holding("runs:write", "runs:read", subject="ann")
    body = {"conversation": "c1", "message_id": "m1", "intent": "cancel"}

    hers = await own.post("/v1/channels/sms/messages", json=body)
    bobs = await own.post("/v1/channels/sms/messages", json={**body, "user": "bob"})
    seen = await own.get("/v1/channels/sms/conversations/c1/pending?user=bob")

    assert hers.json()["outcome"] == "nothing_pending"
    assert refusal(bobs) == refusal(seen) == (403, "missing_scope")


async def test_a_request_key_counts_for_one_body(chat: Chat) -> None:
    key = {"idempotency-key": "k1"}
    path, body = "/v1/channels/sms/messages?wait=20", {"agent": "clerk", "text": "hello"}
    said = {**body, "user": "ann", "conversation": "c/1", "message_id": "m1"}

    first, again = [await chat.client.post(path, json=said, headers=key) for _ in range(2)]
    other = await chat.client.post(path, json={**said, "text": "bye"}, headers=key)

    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert refusal(other) == (422, "idempotency_key_reused")
    assert await _pending_of(chat.client, "c/1") is None


async def test_a_conversation_that_cannot_be_is_refused_by_its_whole_name(chat: Chat) -> None:
    path = "/v1/channels/sms/conversations/c%2F1%0A%2Fpending%0A/pending"
    answer = await chat.client.get(path, params={"user": "ann"})

    assert refusal(answer) == (422, "invalid_request")


async def _pending_of(client: httpx2.AsyncClient, conversation: str) -> object:
    answer = await client.get(
        f"/v1/channels/sms/conversations/{conversation}/pending", params={"user": "ann"}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["pending"]


def asking(**terms: object) -> dict[str, object]:
    """Return the agent with a policy that asks for charges on these terms."""
    ask = [{"tool": "charge", **terms}]
    return {**AGENT, "name": "strict", "policy": {"ask": ask, "allow": ["*"]}}


@pytest.mark.parametrize(
    "terms", [{"approvers": ["user:+5511999"]}, {"self_approval": False}], ids=str
)
async def test_an_approval_that_is_not_the_users_to_give_is_not_offered_and_not_given(
    chat: Chat, terms: dict[str, object]
) -> None:
    await made(chat.client, "/v1/agents", asking(**terms))
    shown = await chat.say('call charge {"order": "A1"}', agent="strict")

    pressed = await chat.press("confirm")

    assert (shown["pending"], pressed["outcome"]) == (None, "nothing_pending")
    assert (await chat.run(shown["run_id"]))["status"] == "waiting"
    assert chat.done == []


async def test_an_approval_that_names_the_user_of_the_chat_is_theirs_to_give(chat: Chat) -> None:
    await made(chat.client, "/v1/agents", asking(approvers=["channel:whatsapp:+5511999"]))

    shown = await chat.say('call charge {"order": "A1"}', agent="strict")
    confirmed = await chat.say("yes")

    assert shown["pending"]["kind"] == "approval"
    assert (confirmed["outcome"], chat.done) == ("confirmed", ["charged A1"])


async def shown_and_then_edited(chat: Chat) -> tuple[str, str]:
    """Have a call shown that is edited afterwards; return its id, and the digest it had."""
    await made(chat.client, "/v1/agents", asking(required=2))
    shown = await chat.say('call charge {"order": "A1"}', agent="strict")
    approval_id, digest = shown["pending"]["id"], shown["pending"]["digest"]
    edit = {"decision": "approve", "digest": digest, "arguments": {"order": "B2"}}
    await made(chat.client, f"/v1/approvals/{approval_id}/decision", edit)
    return approval_id, digest


async def test_dc14_an_approval_that_was_edited_is_shown_anew_before_a_yes_counts(
    chat: Chat,
) -> None:
    approval_id, _ = await shown_and_then_edited(chat)

    stale = await chat.say("yes")
    fresh = await chat.say("yes")

    assert (stale["outcome"], stale["pending"]["id"]) == ("digest_mismatch", approval_id)
    assert stale["pending"]["preview"] == "charge(order='B2')"
    assert (fresh["outcome"], chat.done) == ("confirmed", ["charged B2"])


async def test_dc14_a_button_under_the_call_as_it_was_is_no_yes_to_what_it_was_edited_to(
    chat: Chat,
) -> None:
    """Also not when it is pressed twice, of which the first has the edited call shown."""
    approval_id, digest = await shown_and_then_edited(chat)
    old = {"expected_id": approval_id, "expected_digest": digest}

    pressed = await chat.press("confirm", **old)
    again = await chat.press("confirm", **old)
    new = await chat.press("confirm", **{**old, "expected_digest": again["pending"]["digest"]})

    assert (pressed["outcome"], again["outcome"]) == ("digest_mismatch", "digest_mismatch")
    assert again["pending"]["preview"] == "charge(order='B2')"
    assert (new["outcome"], chat.done) == ("confirmed", ["charged B2"])


async def test_one_of_several_votes_at_a_chat_is_written_down_as_one(chat: Chat) -> None:
    await made(chat.client, "/v1/agents", asking(required=2))
    shown = await chat.say('call charge {"order": "A1"}', agent="strict")
    chat.wait_s = 0
    approval_id = shown["pending"]["id"]

    voted, again = await chat.say("yes"), await chat.say("yes")

    assert (voted["outcome"], again["outcome"]) == ("confirmed", "confirmed")
    answer = await chat.client.get(f"/v1/audit?target={approval_id}")
    assert [act["action"] for act in answer.json()["data"]] == ["approval.voted"]


async def test_a_vote_that_others_must_follow_is_answered_at_once(chat: Chat) -> None:
    """Who waited for the run would wait for the others, and the bridge with them."""
    await made(chat.client, "/v1/agents", asking(required=2))
    await chat.say('call charge {"order": "A1"}', agent="strict")
    chat.wait_s = 120  # Far more than the client has.

    voted = await chat.say("yes")

    assert (voted["outcome"], voted["reply"]) == ("confirmed", None)
    assert (await chat.run(voted["run_id"]))["status"] == "waiting"


async def test_a_deny_of_the_agent_that_put_it_off_still_wins_over_a_yes(chat: Chat) -> None:
    policy = {"deny": ["do_refund"], "allow": ["refund"]}
    await made(chat.client, "/v1/agents", {**AGENT, "name": "strict", "policy": policy})
    await chat.say('call refund {"order": "A1"}', agent="strict")

    shown = await chat.say("yes")

    assert (shown["outcome"], chat.done) == ("failed", [])
    assert "deny do_refund" in shown["reply"]


async def test_a_policy_that_does_not_name_the_executor_asks_no_second_time(chat: Chat) -> None:
    policy = {"allow": ["refund"]}
    await made(chat.client, "/v1/agents", {**AGENT, "name": "strict", "policy": policy})
    await chat.say('call refund {"order": "A1"}', agent="strict")

    shown = await chat.say("yes")

    assert (shown["outcome"], chat.done) == ("confirmed", ["refunded 100 of A1"])


async def test_what_a_child_run_asks_for_is_asked_in_the_chat(chat: Chat) -> None:
    lead = {"name": "lead", "model": "openai/directed", "tools": ["agent:clerk"]}
    await made(chat.client, "/v1/agents", lead)
    told = {"input": 'call charge {"order": "A1"}'}
    shown = await chat.say(f"call agent:clerk {json.dumps(told)}", agent="lead")

    confirmed = await chat.say("yes")

    assert shown["pending"]["preview"] == "charge(order='A1')"
    assert (confirmed["outcome"], confirmed["run_id"]) == ("confirmed", shown["run_id"])
    assert chat.done == ["charged A1"]


async def test_a_vote_on_what_a_child_run_asks_that_others_must_follow_is_answered_at_once(
    chat: Chat,
) -> None:
    """The run that it was started by waits on, and tells of nothing."""
    lead = {"name": "lead", "model": "openai/directed", "tools": ["agent:strict"]}
    await made(chat.client, "/v1/agents", asking(required=2))
    await made(chat.client, "/v1/agents", lead)
    told = {"input": 'call charge {"order": "A1"}'}
    shown = await chat.say(f"call agent:strict {json.dumps(told)}", agent="lead")
    chat.wait_s = 120  # Far more than the client has.

    voted = await chat.say("yes")

    assert (voted["outcome"], voted["run_id"]) == ("confirmed", shown["run_id"])
    assert voted["pending"]["id"] == shown["pending"]["id"]
    assert chat.done == []
