// A log becomes what a reader sees, whatever is sent twice, and wherever a connection was cut.

import assert from "node:assert/strict";
import { test } from "node:test";

const { begun, hears, isActive, isEnd, tell } = await import(`${process.env.CONSOLE}/story.js`);

const event = (type, data = {}) => ({ type, time: "2026-11-21T04:52:51.875Z", data });
const delta = (offset, text, id = "msg_1") =>
  event("message.delta", { message_id: id, offset, text });

function storyOf(...events) {
  const story = begun();
  for (const each of events) tell(story, each);
  return story;
}

const kinds = (story) => story.entries.map((entry) => entry.kind);
const entry = (story, key) => story.byKey.get(key);

test("a run is told from its input to its end", () => {
  const story = storyOf(
    event("run.queued", { agent: "demo", input: [{ role: "user", content: "17 + 25?" }] }),
    event("run.started", { attempt: 1 }),
    event("step.started", { index: 1 }),
    event("message.started", { message_id: "msg_1", model: "demo/offline" }),
    event("message.completed", { message_id: "msg_1", content: "", model: "demo" }),
    event("tool_call.requested",
      { call_id: "c1", name: "add", arguments: { a: 17, b: 25 }, kind: "server" }),
    event("tool_call.started", { call_id: "c1", attempt: 1, arguments: null }),
    event("tool_call.completed", { call_id: "c1", result: 42, duration_ms: 3 }),
    event("step.completed", { index: 1 }),
    event("run.completed", { output: { text: "42" }, finish_reason: "stop" }),
  );

  assert.deepEqual(kinds(story), ["said", "note", "message", "call", "end"]);
  assert.equal(story.status, "completed");
  assert.equal(story.entries[0].text, "17 + 25?");
  const { name, status, result, arguments: given } = entry(story, "c1");
  assert.deepEqual({ name, status, result, given },
    { name: "add", status: "completed", result: 42, given: { a: 17, b: 25 } });
});

test("pieces are put where they belong, and what is sent again is not said twice", () => {
  const story = storyOf(delta(0, "Hé😀"), delta(0, "Hé😀llo"), delta(3, "llo"), delta(6, " there"));

  assert.equal(entry(story, "msg_1").text, "Hé😀llo there");
});

test("every way to cut and repeat pieces adds up to the text", () => {
  const text = [..."a😀é\u{1F468}\u200D\u{1F469}z"];
  for (let from = 0; from <= text.length; from += 1) {
    for (let to = from; to <= text.length; to += 1) {
      const piece = (a, b) => delta(a, text.slice(a, b).join(""));
      const story = storyOf(piece(0, to), piece(from, text.length));
      assert.equal(entry(story, "msg_1").text, text.join(""));
    }
  }
});

test("a completed message is what the log says, and a late piece changes nothing", () => {
  const story = storyOf(
    delta(0, "Hel"), event("message.completed", { message_id: "msg_1", content: "Hello" }),
    delta(3, "XX"),
  );

  assert.equal(entry(story, "msg_1").text, "Hello");
});

test("a message that was aborted is void, and the next attempt is another", () => {
  const story = storyOf(
    delta(0, "Hel"), event("message.aborted", { message_id: "msg_1", reason: "crash" }),
    delta(0, "Hello", "msg_2"),
  );

  assert.equal(entry(story, "msg_1").aborted, "crash");
  assert.equal(entry(story, "msg_2").text, "Hello");
  assert.equal(entry(story, "msg_2").aborted, null);
});

test("thinking and progress begin anew after a cut, and are not doubled", () => {
  const thought = (offset, text) =>
    event("reasoning.delta", { message_id: "msg_1", offset, text });
  const progress = (offset, text) => event("tool_call.progress", { call_id: "c1", offset, text });
  const story = storyOf(
    thought(0, "Let me"), thought(0, "Let me"), thought(6, " see"),
    progress(0, "10 %"), progress(0, "10 %"), progress(4, ", 20 %"),
  );

  assert.equal(entry(story, "msg_1").reasoning, "Let me see");
  assert.equal(entry(story, "c1").progress, "10 %, 20 %");
});

test("a call that is made again shows its progress from the beginning", () => {
  const started = (attempt) => event("tool_call.started", { call_id: "c1", attempt });
  const progress = (offset, text) => event("tool_call.progress", { call_id: "c1", offset, text });
  const story = storyOf(
    started(1), progress(0, "page 1, "), progress(8, "page 2"),
    started(2), progress(0, "page 1 again"), progress(12, "!"),
  );

  assert.equal(entry(story, "c1").progress, "page 1 again!");
});

test("a call that is asked about names its approval, and runs as it was edited", () => {
  const asked = storyOf(event("approval.requested", { call_id: "c1", approval_id: "apr_1" }));
  assert.equal(entry(asked, "c1").status, "asked");
  assert.equal(entry(asked, "c1").approval, "apr_1");

  tell(asked, event("approval.decided",
    { call_id: "c1", decision: "approve", arguments: { to: "b@example.com" } }));
  assert.deepEqual(entry(asked, "c1").arguments, { to: "b@example.com" });
  tell(asked, event("tool_call.denied", { call_id: "c1", by: "ann", reason: "no" }));
  assert.equal(entry(asked, "c1").status, "denied");
});

test("a question that fell away is asked no more, and hides nothing that the call came to", () => {
  for (const status of ["expired", "withdrawn"]) {
    const asked = event("approval.requested", { call_id: "c1", approval_id: "apr_1" });
    const fell = event(`approval.${status}`, { call_id: "c1", approval_id: "apr_1" });
    const failed = event("tool_call.failed", { call_id: "c1", error: { code: "cancelled" } });

    assert.equal(entry(storyOf(asked, fell), "c1").status, status);
    assert.equal(entry(storyOf(asked, failed, fell), "c1").status, "failed");
  }
});

test("an event that nobody knows yet is noted, and changes nothing else", () => {
  const story = storyOf(event("moon.risen", { phase: "full" }));

  assert.deepEqual(kinds(story), ["note"]);
  assert.deepEqual(story.entries[0].data, { phase: "full" });
});

test("each end is one", () => {
  for (const type of ["completed", "incomplete", "failed", "cancelled", "expired"]) {
    assert.ok(isEnd(`run.${type}`));
    assert.equal(storyOf(event(`run.${type}`, {})).status, type);
  }
  assert.ok(!isEnd("run.cancelling"));
  assert.ok(!isEnd("toString"));
});

test("what a tool or a model calls itself is no name of ours", () => {
  const story = storyOf(
    event("tool_call.requested", { call_id: "constructor", name: "__proto__", arguments: {} }),
    event("toString"), event("constructor"),
  );

  assert.equal(entry(story, "constructor").name, "__proto__");
  assert.deepEqual(kinds(story), ["call", "note", "note"]);
});

test("a run that an operator sends on is queued until a worker takes it", () => {
  const story = storyOf(
    event("run.started", { attempt: 3 }),
    event("run.waiting", { for: "operator", pending: [] }),
    event("run.retried", { by: "ann" }),
  );

  assert.equal(story.status, "queued");
  assert.ok(isActive(story));
  tell(story, event("run.completed"));
  assert.ok(!isActive(story));
});

test("a run hears what is said to it until it is told to stop, cannot go on, or is over", () => {
  const running = { status: "running" };
  const story = storyOf(event("run.started", { attempt: 1 }));
  assert.ok(hears(story, running));
  assert.ok(hears(story, { status: "waiting" }));
  assert.ok(!hears(story, { status: "completed" }));

  for (const type of ["run.cancelling", "run.failing", "run.completed"]) {
    assert.ok(!hears(storyOf(event(type)), running), type);
  }
});

test("what was said meanwhile is told, and why nobody reads it", () => {
  const said = { message_id: "ste_1", content: "", images: [], blocked: "guardrail topics" };
  const story = storyOf(event("steer.received", said));

  const [{ kind, text, blocked }] = story.entries;
  assert.deepEqual([kind, text, blocked], ["said", "", "guardrail topics"]);
});
