// Lists that are searched, keep up by themselves, and leave alone what the reader is at.

import { form, h, labelled, put } from "./dom.js";
import { address } from "./routes.js";

const FRESH_MS = 5000;
const REFUSALS = new Set([401, 403]);
const CONTROLS = "a, button";

/** Return a table; `numbers` are the names of columns of numbers, and buttons stand under none. */
export function table(names, rows, numbers = new Set()) {
  const heads = names.map((name) => (name
    ? h("th", { scope: "col", class: numbers.has(name) ? "number" : null }, name) : h("td")));
  return h("table", { class: "list" }, h("thead", {}, h("tr", {}, ...heads)), rows);
}

/**
 * Return the form that a list is searched by, of these [words, control]; what a control is named is
 * its place in the address.
 */
export function search(view, ...fields) {
  const look = () => {
    const said = fields.map(([, control]) => [control.name, control.value.trim()]);
    location.hash = address(view, null, Object.fromEntries(said));
  };
  for (const [, control] of fields) {
    if (control.matches("select")) control.addEventListener("change", look);
  }
  return form(look, { class: "filters", role: "search" },
    ...fields.map(([words, control]) => labelled(words, control)), h("button", {}, "Search"));
}

/** Return the control for the agent that is searched for. */
export function byAgent(agent) {
  return ["Agent", h("input", { name: "agent", value: agent, placeholder: "any agent" })];
}

/** `load()` anew until the reader leaves; where that fails, `place` says so. */
export function keepFresh(load, place, { signal, fail }) {
  let asking = false;
  const timer = setInterval(async () => {
    if (document.hidden || asking) return;
    asking = true;
    await load().catch(miss);
    asking = false;
  }, FRESH_MS);
  signal.addEventListener("abort", () => clearInterval(timer));

  function miss(error) {
    if (!REFUSALS.has(error.status)) {
      put(place, `This is how it was: ${error.message}`);
      return;
    }
    clearInterval(timer);
    fail(error);
  }
}

/**
 * Put what is listed into `rows`, each as `row(each)`, or `none` where nothing is. What is as it
 * was by `shown(each)` stays, and whatever has the focus keeps it.
 */
export function renew(rows, listed, { shown, row, none }) {
  if (!listed.length) {
    put(rows, h("tr", {}, h("td", { colspan: 9, class: "fine" }, none)));
    return;
  }
  const there = new Map([...rows.children].map((each) => [each.dataset.shown, each]));
  const fresh = listed.map((each) => {
    const said = shown(each);
    const one = there.get(said) ?? row(each);
    Object.assign(one.dataset, { shown: said, id: each.id });
    return one;
  });
  const same = fresh.every((each, at) => rows.children[at] === each);
  if (same && fresh.length === rows.children.length) return;
  const held = focused(rows);
  put(rows, ...fresh);
  const again = fresh.find((each) => each.dataset.id === held?.id);
  again?.querySelectorAll(CONTROLS)[held.at]?.focus();
}

/** Return the ways to other pages of a list. */
export function pages(listed, after, addressOf) {
  return [
    after ? h("a", { href: addressOf({}) }, "Newest") : null,
    listed.has_more ? h("a", { href: addressOf({ after: listed.next_cursor }) }, "Older") : null,
  ];
}

// Which control of which row has the focus.
function focused(rows) {
  const row = [...rows.children].find((each) => each.contains(document.activeElement));
  if (!row) return null;
  const at = [...row.querySelectorAll(CONTROLS)].indexOf(document.activeElement);
  return { id: row.dataset.id, at };
}
