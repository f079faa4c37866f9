// The list of runs.

import { badge, choice, form, h, labelled, put } from "./dom.js";
import { address } from "./routes.js";
import { distance, duration, moment, money } from "./shown.js";

const STATUSES = ["queued", "running", "waiting", "completed", "incomplete", "failed", "cancelled",
  "expired"];
const NUMBERS = new Set(["Took", "Cost"]);
const REFUSALS = new Set([401, 403]);
const LIMIT = 25;
const SAID_MAX = 140;
const FRESH_MS = 5000;

export async function runs(place, { api, route, signal, fail }) {
  document.title = "Runs · Milepost";
  const { status = "", agent = "", session_id = "", after = "" } = route.query;
  const rows = h("tbody");
  const next = h("p", { class: "pages" });
  put(place, h("h1", {}, "Runs"), filters(status, agent, session_id), table(rows), next);
  const asked = { status, agent, session_id, after, limit: LIMIT };
  await load();
  let asking = false;
  const timer = setInterval(async () => {
    if (document.hidden || asking) return;
    asking = true;
    await load().catch(miss);
    asking = false;
  }, FRESH_MS);
  signal.addEventListener("abort", () => clearInterval(timer));

  async function load() {
    const listed = await api.get("v1/runs", asked, signal);
    renew(rows, listed.data);
    const here = { status, agent, session_id };
    put(next,
      after ? h("a", { href: address("runs", null, here) }, "Newest") : null,
      listed.has_more
        ? h("a", { href: address("runs", null, { ...here, after: listed.next_cursor }) }, "Older")
        : null);
  }

  function miss(error) {
    if (!REFUSALS.has(error.status)) {
      put(next, `This is how it was: ${error.message}`);
      return;
    }
    clearInterval(timer);
    fail(error);
  }
}

function filters(status, agent, session) {
  const by = choice([["", "any status"], ...STATUSES], status, { name: "status" });
  const whose = h("input", { name: "agent", value: agent, placeholder: "any agent" });
  const where = h("input", { name: "session_id", value: session, placeholder: "any session" });
  const look = () => {
    location.hash = address("runs", null, {
      status: by.value, agent: whose.value.trim(), session_id: where.value.trim(),
    });
  };
  by.addEventListener("change", look);
  return form(look, { class: "filters", role: "search" },
    labelled("Status", by), labelled("Agent", whose), labelled("Session", where),
    h("button", {}, "Search"));
}

function table(rows) {
  const names = ["Status", "Agent", "What came of it", "Took", "Cost", "Created"];
  const heads = names.map((name) =>
    h("th", { scope: "col", class: NUMBERS.has(name) ? "number" : null }, name));
  return h("table", { class: "list" }, h("thead", {}, h("tr", {}, ...heads)), rows);
}

// What is as it was stays, and with it whatever has the focus.
function renew(rows, listed) {
  if (!listed.length) {
    put(rows, h("tr", {}, h("td", { colspan: 6, class: "fine" }, "There is no such run.")));
    return;
  }
  const there = new Map([...rows.children].map((row) => [row.dataset.shown, row]));
  const fresh = listed.map((run) => {
    const shown = JSON.stringify(run) + distance(run.created_at, Date.now());
    return there.get(shown) ?? row(run, shown);
  });
  if (fresh.some((each, at) => rows.children[at] !== each) || fresh.length < rows.children.length) {
    const held = document.activeElement?.getAttribute("href");
    put(rows, ...fresh);
    if (held?.startsWith("#/runs/")) rows.querySelector(`a[href="${CSS.escape(held)}"]`)?.focus();
  }
}

function row(run, shown) {
  const took = run.ended_at ? Date.parse(run.ended_at) - Date.parse(run.created_at) : null;
  const cost = run.usage ? h("span", { title: `$${run.usage.cost_usd}` },
    money(run.usage.cost_nanos)) : "";
  return h("tr", { "data-shown": shown },
    h("td", {}, badge(run.status)),
    h("td", {}, h("a", { href: address("runs", run.id), title: run.id }, run.agent)),
    h("td", { class: "said" }, brought(run)),
    h("td", { class: "number" }, duration(took)),
    h("td", { class: "number" }, cost),
    h("td", { title: moment(run.created_at) }, distance(run.created_at, Date.now())));
}

function brought(run) {
  const said = run.error?.message ?? run.output?.text
    ?? (run.waiting_for ? `waits for ${run.waiting_for.for}` : run.queued_reason) ?? "";
  return said.length > SAID_MAX ? `${said.slice(0, SAID_MAX)}…` : said;
}
