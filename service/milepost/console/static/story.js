// A run's log as a story: what a reader sees of it, event after event. It knows no page.

const ENDS = {
  "run.completed": "completed",
  "run.incomplete": "incomplete",
  "run.failed": "failed",
  "run.cancelled": "cancelled",
  "run.expired": "expired",
};
const ACTIVE = new Set(["queued", "running", "waiting"]);
// What a reader learns from the entries themselves.
const UNTOLD = new Set([
  "step.started", "step.completed", "session.loaded", "input.screening", "tool_call.screening",
  "tool_call.counting", "tool_call.counted",
]);

/** Say whether a run is under way, or will be. */
export function isActive({ status }) {
  return ACTIVE.has(status);
}

/** Say whether a run whose story this is reads what is said to it now. */
export function hears(story, run) {
  return isActive(run) && story.ended === null && !story.stopping;
}

/** Say whether nothing can come behind an event of this type. */
export function isEnd(type) {
  return Object.hasOwn(ENDS, type);
}

/** Return a story in which nothing has happened. */
export function begun() {
  return {
    status: "queued", agent: null, entries: [], byKey: new Map(), stopping: false, ended: null,
  };
}

/** Tell an event. Returns the entries that are other than they were, the new ones included. */
export function tell(story, event) {
  const { type, data } = event;
  if (isEnd(type)) return [end(story, event)];
  if (Object.hasOwn(STEPS, type)) return STEPS[type](story, data, event);
  return UNTOLD.has(type) ? [] : [note(story, event)];
}

const STEPS = {
  "run.queued"(story, data) {
    story.agent = data.agent;
    return (data.input ?? []).map((said) => add(story, "said", null, {
      role: said.role ?? "user", text: textOf(said.content), images: said.images?.length ?? 0,
    }));
  },
  "run.started": (story, data, event) => turn(story, "running", event),
  "run.resumed": (story, data, event) => turn(story, "running", event),
  "run.retried": (story, data, event) => turn(story, "queued", event),
  "run.retrying": (story, data, event) => turn(story, "queued", event),
  "run.waiting": (story, data, event) => turn(story, "waiting", event),
  "run.cancelling": (story, data, event) => stop(story, "cancelling", event),
  "run.failing": (story, data, event) => stop(story, "failing", event),

  "message.started": (story, data) => [message(story, data.message_id, data)],
  "message.delta": (story, data) => grown(message(story, data.message_id), "text", data),
  "message.completed"(story, data) {
    const entry = message(story, data.message_id, data);
    entry.text = data.content;
    entry.done = true;
    return [entry];
  },
  "message.aborted"(story, data) {
    const entry = message(story, data.message_id);
    entry.aborted = data.error?.message ?? data.reason;
    return [entry];
  },
  "reasoning.delta": (story, data) => grown(message(story, data.message_id), "reasoning", data),
  "reasoning.completed"(story, data) {
    const entry = message(story, data.message_id);
    entry.reasoning = data.content;
    return [entry];
  },

  "tool_call.requested"(story, data) {
    const { name, arguments: given, kind: runner, malformed } = data;
    return [call(story, data, { name, arguments: given, runner, malformed })];
  },
  "tool_call.started"(story, data) {
    const given = data.arguments ? { arguments: data.arguments } : {};
    const begun = { status: "started", attempt: data.attempt, progress: "", known: {} };
    return [call(story, data, { ...begun, ...given })];
  },
  "tool_call.progress": (story, data) => grown(call(story, data, {}), "progress", data),
  "tool_call.completed"(story, data) {
    const { result, duration_ms, cached } = data;
    return [call(story, data, { status: "completed", result, duration_ms, cached })];
  },
  "tool_call.failed"(story, data) {
    const { error, duration_ms } = data;
    return [call(story, data, { status: "failed", error, duration_ms })];
  },
  "tool_call.denied"(story, data) {
    return [call(story, data, { status: "denied", by: data.by, reason: data.reason })];
  },
  "tool_call.interrupted": (story, data) => [call(story, data, { status: "interrupted" })],
  "child_run.started": (story, data) => [call(story, data, { childRun: data.run_id })],

  "approval.requested"(story, data) {
    return [call(story, data, { status: "asked", approval: data.approval_id })];
  },
  "approval.decided"(story, data, event) {
    const given = data.arguments ? { arguments: data.arguments } : {};
    return [call(story, data, { status: data.decision, ...given }), note(story, event)];
  },
  "approval.expired": (story, data, event) => unasked(story, data, "expired", event),
  "approval.withdrawn": (story, data, event) => unasked(story, data, "withdrawn", event),
  "steer.received": (story, data) => [add(story, "said", null, {
    role: "user", text: data.content, images: data.images?.length ?? 0, blocked: data.blocked,
  })],
};

function end(story, event) {
  story.status = ENDS[event.type];
  story.ended = { type: event.type, ...event.data };
  return add(story, "end", null, { status: story.status, ...event.data });
}

function turn(story, status, event) {
  story.status = status;
  return [note(story, event)];
}

function stop(story, status, event) {
  story.stopping = true;
  return turn(story, status, event);
}

function note(story, event) {
  return add(story, "note", null, { type: event.type, time: event.time, data: event.data });
}

function message(story, id, data = {}) {
  const entry = story.byKey.get(id)
    ?? add(story, "message", id, { text: "", reasoning: "", model: null, aborted: null });
  if (data.model) entry.model = data.answered_by ?? data.model;
  return entry;
}

function call(story, { call_id: id }, told) {
  const entry = story.byKey.get(id)
    ?? add(story, "call", id, { name: id, status: "requested", progress: "" });
  return Object.assign(entry, told);
}

// Where nobody can answer any more, the call may have come to something before that was said.
function unasked(story, data, status, event) {
  const entry = call(story, data, {});
  if (entry.status === "asked") entry.status = status;
  return [entry, note(story, event)];
}

function add(story, kind, key, told) {
  const entry = { kind, at: story.entries.length, known: {}, ...told };
  story.entries.push(entry);
  if (key) story.byKey.set(key, entry);
  return entry;
}

// A piece says where it belongs, in code points. What is known of it already is not said twice.
function grown(entry, field, { offset, text }) {
  if (entry.done) return [entry];
  const points = [...text];
  const known = entry.known[field] ?? 0;
  entry[field] += points.slice(Math.max(0, known - offset)).join("");
  entry.known[field] = Math.max(known, offset + points.length);
  return [entry];
}

function textOf(content) {
  if (typeof content === "string") return content;
  return JSON.stringify(content, null, 2);
}
