// The list of runs.

import { badge, choice, h, put } from "./dom.js";
import { byAgent, keepFresh, pages, renew, search, table } from "./list.js";
import { address } from "./routes.js";
import { distance, duration, moment, money } from "./shown.js";

const STATUSES = ["queued", "running", "waiting", "completed", "incomplete", "failed", "cancelled",
  "expired"];
const NAMES = ["Status", "Agent", "What came of it", "Took", "Cost", "Created"];
const NUMBERS = new Set(["Took", "Cost"]);
const LIMIT = 25;
const SAID_MAX = 140;

export async function runs(place, { api, route, signal, fail }) {
  document.title = "Runs · Milepost";
  const { status = "", agent = "", session_id = "", after = "" } = route.query;
  const here = { status, agent, session_id };
  const rows = h("tbody");
  const next = h("p", { class: "pages" });
  put(place, h("h1", {}, "Runs"), filters(status, agent, session_id),
    table(NAMES, rows, NUMBERS), next);
  const load = async () => {
    const listed = await api.get("v1/runs", { ...here, after, limit: LIMIT }, signal);
    renew(rows, listed.data, { shown, row, none: "There is no such run." });
    put(next, ...pages(listed, after, (more) => address("runs", null, { ...here, ...more })));
  };
  await load();
  keepFresh(load, next, { signal, fail });
}

function filters(status, agent, session) {
  const where = h("input", { name: "session_id", value: session, placeholder: "any session" });
  return search("runs",
    ["Status", choice([["", "any status"], ...STATUSES], status, { name: "status" })],
    byAgent(agent), ["Session", where]);
}

function shown(run) {
  return JSON.stringify(run) + distance(run.created_at, Date.now());
}

function row(run) {
  const took = run.ended_at ? Date.parse(run.ended_at) - Date.parse(run.created_at) : null;
  const cost = run.usage ? h("span", { title: `$${run.usage.cost_usd}` },
    money(run.usage.cost_nanos)) : "";
  return h("tr", {},
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
