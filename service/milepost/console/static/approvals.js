// The inbox, which fills by itself, and approvals that are over.

import { card } from "./approval_card.js";
import { choice, h, put } from "./dom.js";
import { byAgent, search } from "./list.js";
import { address } from "./routes.js";

const STATUSES = ["pending", "approved", "denied", "answered", "expired", "withdrawn",
  "superseded"];
const LIMIT = 20;

export async function approvals(place, context) {
  document.title = "Approvals · Milepost";
  const { status = "pending", agent = "" } = context.route.query;
  const cards = h("div", { class: "cards" });
  const below = h("p", { class: "pages", role: "status" });
  put(place, h("h1", {}, "Approvals"),
    search("approvals", ["Status", choice(STATUSES, status, { name: "status" })], byAgent(agent)),
    cards, below);
  const shown = status === "pending" ? inbox : listed;
  await shown({ cards, below, status, agent, ...context });
}

export async function oneApproval(place, { api, route, signal }) {
  document.title = "Approval · Milepost";
  const approval = await api.get(`v1/approvals/${encodeURIComponent(route.id)}`, {}, signal);
  put(place, h("h1", {}, "Approval"), card(api, approval).element);
}

// What is answered stays in sight until the reader goes elsewhere.
async function inbox({ cards, below, agent, api, signal }) {
  const known = new Map();
  let looked = false;
  let more = false;
  const query = agent ? `?${new URLSearchParams({ agent })}` : "";
  const take = (approval) => {
    if (known.has(approval.id)) known.get(approval.id).renew(approval);
    else if (approval.status === "pending") {
      const one = card(api, approval);
      known.set(approval.id, one);
      cards.append(one.element);  // Above others it would move their buttons.
    }
  };
  const onEvent = ({ type, data }) => {
    if (type === "snapshot") [...data.approvals].reverse().forEach(take);
    else take(data);
    more ||= type === "snapshot" && data.has_more;
    looked = true;
    put(below, standing(known.size, more));
  };
  const onState = (state) => {
    if (state === "cut") put(below, "The connection was cut; trying again …");
    else put(below, looked ? standing(known.size, more) : "Looking …");
  };
  await api.follow(`v1/approvals/events${query}`, { onEvent, onState, signal });
}

function standing(known, more) {
  if (more) return "These are the newest of those that wait; others are found by their agent.";
  return known ? "" : "Nothing waits for an answer. What comes will show up here.";
}

async function listed({ cards, below, status, agent, api, route, signal }) {
  const asked = { status, agent, after: route.query.after, limit: LIMIT };
  const page = await api.get("v1/approvals", asked, signal);
  put(cards, ...page.data.map((approval) => card(api, approval).element));
  if (!page.data.length) put(below, "There is no such approval.");
  if (page.has_more) {
    const older = address("approvals", null, { status, agent, after: page.next_cursor });
    put(below, h("a", { href: older }, "Older"));
  }
}
