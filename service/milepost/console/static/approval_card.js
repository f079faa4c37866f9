// One approval: what is asked, and the answer. It sends the digest of the call that it showed.

import { badge, form, h, hold, labelled, put, trouble } from "./dom.js";
import { address } from "./routes.js";
import { distance, isExact, json, moment, parsed } from "./shown.js";

const ANSWERS = {
  call: [["approve", "Approve"], ["deny", "Deny"]],
  outcome: [
    ["happened", "It happened"],
    ["not_happened", "It did not: call again"],
    ["stop", "End the run"],
  ],
};
const CONFLICT = 409;

/** Return a card: its `element`, and `renew(approval)`, for what has become of it since. */
export function card(api, approval) {
  const facts = h("div");
  const moved = h("div");
  const failed = h("div");
  const comment = h("input", { maxlength: 10_000, autocomplete: "off" });
  const written = h("textarea", { rows: 8, spellcheck: "false" });
  const edited = h("div", { hidden: true });
  const edit = h("button", { type: "button", "aria-expanded": "false" });
  const buttons = ANSWERS[approval.kind].map(([decision, words], at) =>
    h("button", { value: decision, class: at ? "" : "main" }, words));
  const answer = form((event) => decide(event.submitter.value), { class: "stack" },
    edited, labelled("Comment", comment), h("p", { class: "buttons" }, ...buttons, edit));
  const element = h("article", { class: "card", "aria-label": `Approval of ${approval.tool}` },
    facts, moved, answer, failed);
  put(edited, labelled(words(approval), written));
  put(edit, approval.kind === "call" ? "Edit the arguments" : "Say what it brought");
  edit.addEventListener("click", () => {
    if (edited.hidden && !written.value) written.value = draft(approval);
    edited.hidden = !edited.hidden;
    edit.setAttribute("aria-expanded", String(!edited.hidden));
    if (!edited.hidden) written.focus();
  });
  // It would press the first button: a yes, whatever the comment says.
  comment.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault();
  });
  renew(approval);
  return { element, renew };

  function renew(now) {
    if (now.version < approval.version) return;
    // Whoever is about to press a button below presses that one.
    if (approval.status === "pending" && now.status !== "pending") hold(element);
    const other = now.digest !== approval.digest && now.status === "pending";
    approval = { ...approval, ...now };
    put(facts, ...told(approval));
    put(moved, other ? lookAgain() : null);
    answer.hidden = other || approval.status !== "pending";
    // An edit would send what was rounded.
    edit.hidden = approval.kind === "call" && !isExact(approval.arguments);
  }

  // Nobody says yes to a call that took the place of another one under the pointer.
  function lookAgain() {
    const look = () => {
      put(moved);
      edited.hidden = true;
      written.value = "";
      answer.hidden = false;
    };
    return h("p", { class: "trouble", role: "alert" }, "Somebody has edited the call. ",
      h("button", { type: "button", onclick: look }, "I have looked at it"));
  }

  async function decide(decision) {
    const path = `v1/approvals/${encodeURIComponent(approval.id)}`;
    put(failed);
    try {
      const body = { decision, digest: approval.digest, ...own(decision) };
      const now = await api.post(`${path}/decision`, body);
      approval = { ...approval, digest: now.digest };
      renew(now);
    } catch (error) {
      await recover(path, error);
    }
  }

  // What the reader wrote, if it matters to this answer.
  function own(decision) {
    const said = comment.value.trim() ? { comment: comment.value.trim() } : {};
    if (edited.hidden) return said;
    if (decision === "approve") return { ...said, arguments: parsed(written.value) };
    return decision === "happened" ? { ...said, result: parsed(written.value) } : said;
  }

  // Somebody else was first, or changed the call: what holds now is shown beside the refusal.
  async function recover(path, error) {
    if (error instanceof SyntaxError) {
      put(failed, h("p", { class: "trouble", role: "alert" },
        `This JSON cannot be sent: ${error.message}`));
      return;
    }
    if (error.status === CONFLICT) {
      const now = error.problem.approval ?? await api.get(path).catch(() => null);
      if (now) renew(now);
    }
    put(failed, trouble(error));
  }
}

function told(approval) {
  return [
    h("h2", {}, h("a", { href: address("approvals", approval.id) }, approval.tool), " ",
      badge(approval.status)),
    h("pre", {}, approval.preview),
    h("dl", { class: "facts" }, ...facts(approval).flatMap(([name, ...said]) =>
      [h("dt", {}, name), h("dd", {}, ...said)])),
    h("h3", {}, "Arguments"),
    h("pre", {}, json(approval.arguments)),
    isExact(approval.arguments) ? null : h("p", { class: "trouble" },
      "A number here is too large for a browser, and rounded: the line above has it as it is."),
    ...(approval.diff ?? []).map((change) => h("p", { class: "fine" },
      `edited ${change.path}: ${json(change.from)} became ${json(change.to)}`)),
    context(approval.context),
  ];
}

function facts(approval) {
  const run = h("a", { href: address("runs", approval.run_id) }, approval.agent);
  const until = `${moment(approval.expires_at)} (${distance(approval.expires_at, Date.now())})`;
  const known = [
    ["Asked by", run, approval.user ? ` for ${approval.user}` : ""],
    ["Why", approval.reason],
  ];
  if (approval.kind === "outcome") known.push(["Asked", "what came of a call that was cut off"]);
  if (approval.status === "pending") known.push(["Until", until]);
  if (approval.required > 1) known.push(["Needs", `${approval.required} who say yes`]);
  for (const vote of approval.votes ?? []) {
    const counts = vote.counts ? "" : " (about the call as it was before)";
    known.push(["Vote", `${vote.decision} by ${vote.by_name}${counts}`, said(vote.comment)]);
  }
  if (approval.decided_at) {
    const who = approval.decided_by_name ?? approval.decided_by ?? "nobody";
    known.push(["Decided", `${approval.decision ?? approval.status} by ${who}, `,
      moment(approval.decided_at), said(approval.comment)]);
  }
  return known;
}

function context(messages) {
  if (!messages?.length) return null;
  return h("details", {}, h("summary", {}, "What was said before"),
    ...messages.map(({ role, text }) => h("div", {}, h("strong", {}, role), h("pre", {}, text))));
}

function said(comment) {
  return comment ? `: ${comment}` : "";
}

function words({ kind }) {
  return kind === "call" ? "Arguments as they should be (JSON)" : "What it brought (JSON)";
}

function draft({ kind, arguments: given }) {
  return kind === "call" ? json(given) : "null";
}
