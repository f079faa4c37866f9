// The entries of a story as elements. What grows is written into the text that is there already.

import { card } from "./approval_card.js";
import { badge, h, hold, put, trouble } from "./dom.js";
import { address } from "./routes.js";
import { duration, json, moment, value } from "./shown.js";

/**
 * Return how entries are drawn into `place`: all that changed between two pictures at once. Where
 * `keepsUp`, a reader who is at the end of them stays there.
 */
export function drawing({ api, place, keepsUp, closePx }) {
  const drawn = new Map();
  const changed = new Set();
  let planned = false;

  return (entries) => {
    for (const entry of entries) changed.add(entry);
    if (planned || !changed.size) return;
    planned = true;
    requestAnimationFrame(paint);
  };

  function paint() {
    planned = false;
    // What is asked stays where it is, under the pointer.
    const follows = keepsUp && !questions(place).length;
    const atEnd = follows && place.getBoundingClientRect().bottom <= innerHeight + closePx;
    for (const entry of changed) {
      if (!drawn.has(entry)) {
        const one = KINDS[entry.kind](entry, api);
        drawn.set(entry, one);
        place.append(one.element);
      }
      drawn.get(entry).renew();
    }
    changed.clear();
    if (atEnd) scrollTo(0, document.documentElement.scrollHeight);
  }
}

const KINDS = { said, message, call, note, end };

function said(entry) {
  const images = entry.images ? h("p", { class: "fine" }, `and ${entry.images} images`) : null;
  const element = h("article", { class: "said" }, h("h2", {}, entry.role),
    h("div", { class: "text" }, entry.text), images,
    entry.blocked ? h("p", { class: "trouble" }, `Nobody reads it: ${entry.blocked}`) : null);
  return { element, renew() {} };
}

function message(entry) {
  const text = h("div", { class: "text" });
  const thought = h("div", { class: "text fine" });
  const thinking = h("details", { hidden: true }, h("summary", {}, "Thinking"), thought);
  const model = h("span", { class: "fine" });
  const aborted = h("p", { class: "trouble", hidden: true });
  const element = h("article", { class: "message" }, h("h2", {}, "assistant ", model),
    thinking, text, aborted);
  return {
    element,
    renew() {
      text.textContent = entry.text;
      thought.textContent = entry.reasoning;
      model.textContent = entry.model ?? "";
      thinking.hidden = !entry.reasoning;
      element.hidden = Boolean(entry.done) && !entry.text && !entry.reasoning;
      element.classList.toggle("writing", !entry.done && entry.aborted === null);
      element.classList.toggle("void", entry.aborted !== null);
      aborted.hidden = entry.aborted === null;
      aborted.textContent = `Void: ${entry.aborted}`;
    },
  };
}

function call(entry, api) {
  const head = h("h2");
  const given = h("pre");
  const body = h("div");
  const asked = h("div");
  const element = h("article", { class: "call" }, head, given, body, asked);
  let question = null;
  return {
    element,
    renew() {
      const answered = question && entry.status !== "asked";
      if (answered && asksBelow(element)) hold(element);
      put(head, h("code", {}, entry.name), " ", badge(entry.status),
        h("span", { class: "fine" }, entry.runner === "client" ? " run by the client " : " ",
          duration(entry.duration_ms)));
      given.hidden = entry.status === "asked";
      given.textContent = entry.malformed ?? json(entry.arguments ?? {});
      put(body, ...outcome(entry));
      if (entry.approval && question !== entry.approval && entry.status === "asked") {
        question = entry.approval;
        ask(api, question, asked);
      } else if (answered) {
        question = null;
        put(asked);
      }
    },
  };
}

// The forms of what waits for an answer here.
function questions(place) {
  return [...place.querySelectorAll("article.card form:not([hidden])")];
}

function asksBelow(element) {
  return questions(element.parentElement).some((each) => !element.contains(each)
    && element.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING);
}

async function ask(api, id, place) {
  try {
    const approval = await api.get(`v1/approvals/${encodeURIComponent(id)}`);
    if (approval.status === "pending") put(place, card(api, approval).element);
  } catch (error) {
    put(place, trouble(error));
  }
}

function outcome(entry) {
  const { progress, result, error, by, reason, childRun } = entry;
  return [
    childRun ? h("p", {}, h("a", { href: address("runs", childRun) }, "its own run")) : null,
    progress && result === undefined ? h("pre", { class: "progress" }, progress) : null,
    result === undefined ? null : h("pre", { class: "result" }, value(result)),
    error ? h("p", { class: "trouble" }, `${error.code}: ${error.message}`) : null,
    by ? h("p", { class: "trouble" }, `denied by ${by}: ${reason}`) : null,
  ];
}

function note(entry) {
  const words = [h("code", {}, entry.type), ` ${moment(entry.time)}`];
  const empty = !entry.data || !Object.keys(entry.data).length;
  const element = empty
    ? h("p", { class: "note" }, ...words)
    : h("details", { class: "note" }, h("summary", {}, ...words), h("pre", {}, value(entry.data)));
  return { element, renew() {} };
}

function end(entry) {
  const why = entry.error?.message ?? entry.reason ?? entry.limit ?? entry.finish_reason ?? "";
  const parsed = entry.output?.parsed;
  const element = h("article", { class: `end ${entry.status}` },
    h("h2", {}, badge(entry.status), h("span", { class: "fine" }, ` ${why}`)),
    parsed === null || parsed === undefined ? null : h("pre", {}, value(parsed)));
  return { element, renew() {} };
}
