// What was used, by whom and when.

import { form, h, labelled, put } from "./dom.js";
import { address } from "./routes.js";
import { count, money } from "./shown.js";

const GROUPS = ["day", "agent", "model", "session", "user"];
const BY_DEFAULT = "day,agent,model";
const DAYS = 30;
const DAY_MS = 86_400_000;
const NUMBERS = {
  runs: "Runs", model_calls: "Calls", input_tokens: "Tokens in", output_tokens: "Tokens out",
};

export async function usage(place, { api, route, signal }) {
  document.title = "Usage · Milepost";
  const first = new Date(Date.now() - DAYS * DAY_MS).toISOString().slice(0, 10);
  const { group_by: by = BY_DEFAULT, from = first, to = "" } = route.query;
  const groups = by.split(",").filter((name) => GROUPS.includes(name));
  const sums = h("div", { class: "wide" });
  put(place, h("h1", {}, "Usage"), filters(groups, from, to), sums);
  const asked = { group_by: groups.join(","), from: midnight(from), to: midnight(to) };
  const { data } = await api.get("v1/usage", asked, signal);
  put(sums, data.length ? table(groups, data) : h("p", { class: "fine" }, "Nothing was used."));
}

function filters(groups, from, to) {
  const boxes = GROUPS.map((name) =>
    h("input", { type: "checkbox", value: name, checked: groups.includes(name) }));
  const since = h("input", { type: "date", value: from });
  const until = h("input", { type: "date", value: to });
  const look = () => {
    const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
    location.hash = address("usage", null, {
      group_by: chosen.join(",") || "day", from: since.value, to: until.value,
    });
  };
  return form(look, { class: "filters" },
    h("fieldset", {}, h("legend", {}, "By"), ...boxes.map((box) =>
      h("label", { class: "check" }, box, h("span", {}, box.value)))),
    labelled("From (UTC)", since), labelled("Before", until), h("button", {}, "Add up"));
}

function table(groups, data) {
  const most = Math.max(...data.map((each) => each.cost_nanos), 1);
  const heads = [
    ...groups.map((name) => h("th", { scope: "col" }, name)),
    ...[...Object.values(NUMBERS), "Cost"].map((name) =>
      h("th", { scope: "col", class: "number" }, name)),
    h("td"),
  ];
  const rows = data.map((each) => h("tr", {},
    ...groups.map((name) => h("td", {}, each[name] ?? h("span", { class: "fine" }, "none"))),
    ...Object.keys(NUMBERS).map((name) => h("td", { class: "number" }, count(each[name] ?? 0))),
    h("td", { class: "number", title: `$${each.cost_usd}` }, cost(each)),
    h("td", {}, h("progress", { max: most, value: each.cost_nanos,
      "aria-label": "its part of the largest cost" }))));
  return h("table", {},
    h("thead", {}, h("tr", {}, ...heads)),
    h("tbody", {}, ...rows),
    h("tfoot", {}, total(groups, data)));
}

// A run may have used several models, so that runs do not add up.
function total(groups, data) {
  const sum = (name) => data.reduce((whole, each) => whole + (each[name] ?? 0), 0);
  const added = Object.keys(NUMBERS).map((name) => (name === "runs" ? "" : count(sum(name))));
  const all = { cost_nanos: sum("cost_nanos"), unpriced_calls: sum("unpriced_calls") };
  return h("tr", {},
    h("th", { scope: "row", colspan: groups.length }, "Together"),
    ...added.map((words) => h("td", { class: "number" }, words)),
    h("td", { class: "number" }, cost(all)), h("td"));
}

function cost({ cost_nanos: nanos, unpriced_calls: unpriced }) {
  return unpriced ? `${money(nanos)} + ${count(unpriced)} without a price` : money(nanos);
}

function midnight(day) {
  return day ? `${day}T00:00:00Z` : "";
}
