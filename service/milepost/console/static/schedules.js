// The list of schedules: when each comes, what became of the last time, and a way to pause it.

import { inTurn } from "./api.js";
import { badge, choice, h, put, trouble } from "./dom.js";
import { byAgent, keepFresh, pages, renew, search, table } from "./list.js";
import { address } from "./routes.js";
import { distance, moment, plain } from "./shown.js";

const NAMES = ["Name", "When", "Next", "Last", ""];
const STATES = [["", "any"], ["true", "enabled"], ["false", "paused"]];
const LIMIT = 25;

export async function schedules(place, { api, route, signal, fail }) {
  document.title = "Schedules · Milepost";
  const { enabled = "", agent = "", after = "" } = route.query;
  const here = { enabled, agent };
  const rows = h("tbody");
  const next = h("p", { class: "pages" });
  const told = h("div", { class: "told", role: "status" });
  put(place, h("h1", {}, "Schedules"),
    search("schedules", ["State", choice(STATES, enabled, { name: "enabled" })], byAgent(agent)),
    table(NAMES, rows), next, told);
  const changing = new Set();
  // What is listed behind a change is asked for behind it, too.
  const load = inTurn(async () => {
    const listed = await api.get("v1/schedules", { ...here, after, limit: LIMIT }, signal);
    renew(rows, listed.data, {
      shown, row: (each) => row(each, () => turn(each)), none: "There is no such schedule.",
    });
    put(next, ...pages(listed, after, (more) => address("schedules", null, { ...here, ...more })));
  });
  await load();
  keepFresh(load, next, { signal, fail });

  // The button stays enabled, for it has the focus.
  async function turn(schedule) {
    if (changing.has(schedule.id)) return;
    changing.add(schedule.id);
    try {
      await api.patch(`v1/schedules/${encodeURIComponent(schedule.id)}`,
        { enabled: !schedule.enabled }, `"${schedule.version}"`);
      put(told, `${nameOf(schedule)} ${schedule.enabled ? "is paused" : "goes on"}.`);
    } catch (error) {
      put(told, trouble(error));
    }
    changing.delete(schedule.id);
    await load().catch(fail);
  }
}

function shown(schedule) {
  return JSON.stringify(schedule) + distance(schedule.next_at, Date.now());
}

function row(schedule, turn) {
  const { cron, timezone, run, enabled, next_at: next } = schedule;
  const words = enabled ? "Pause" : "Resume";
  return h("tr", {},
    h("td", { class: "name" }, nameOf(schedule), h("div", { class: "fine" }, `runs ${run.agent}`)),
    h("td", { class: "name" }, h("code", {}, cron), h("div", { class: "fine" }, timezone)),
    h("td", { "data-name": "Next" }, enabled ? coming(next) : badge("paused")),
    h("td", { "data-name": "Last", class: "came" }, became(schedule.last)),
    h("td", {}, h("button", {
      type: "button", "aria-label": `${words} ${nameOf(schedule)}`, onclick: turn,
    }, words)));
}

function coming(next) {
  if (next) return [moment(next), h("div", { class: "fine" }, distance(next, Date.now()))];
  return h("span", { class: "trouble" }, "no more: its zone is not known");
}

function became(last) {
  if (!last) return h("span", { class: "fine" }, "has not come yet");
  const { scheduled_for: time, run_id: run, result, code, detail } = last;
  const when = moment(time);
  return [
    badge(result), " ",
    run ? h("a", { href: address("runs", run), "aria-label": `The run of ${when}` }, when) : when,
    code ? h("p", { class: "trouble" }, `${code}: ${detail}`) : null,
  ];
}

function nameOf({ name, run }) {
  return plain(name ?? run.agent);
}
