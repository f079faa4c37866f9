// A run's spans as a waterfall.

import { badge, h, put } from "./dom.js";
import { address } from "./routes.js";
import { count, duration, moment, money, value, waterfall } from "./shown.js";

const DEPTH_MAX = 8;

export async function trace(place, { api, route, signal }) {
  document.title = "Trace · Milepost";
  const path = `v1/runs/${encodeURIComponent(route.id)}/trace`;
  const told = await api.get(path, {}, signal);
  const rows = waterfall(told.spans);
  const whole = Math.max(1, ...told.spans.map((span) => span.offset_ms + span.duration_ms));
  put(place,
    h("h1", {}, "Trace ", badge(told.status)),
    h("p", { class: "facts" },
      h("a", { href: address("runs", told.run_id) }, told.agent), ` · ${moment(told.started_at)}`,
      ` · ${duration(told.duration_ms ?? whole)} · ${money(told.usage.cost_nanos)}`,
      ` · ${count(told.usage.input_tokens)} tokens in, ${count(told.usage.output_tokens)} out`),
    h("p", { class: "fine" }, `trace ${told.trace_id}`),
    h("div", { class: "waterfall" }, ...rows.map((each) => row(each, whole))));
}

function row({ span, depth }, whole) {
  const bar = h("span", { class: `bar ${span.kind} ${span.status}` });
  bar.style.left = `${(100 * span.offset_ms) / whole}%`;
  bar.style.width = `${(100 * span.duration_ms) / whole}%`;
  const name = h("span", { class: "name", title: span.name }, span.name);
  name.style.paddingLeft = `${Math.min(depth, DEPTH_MAX)}em`;
  const summary = h("summary", {}, name, h("span", { class: "track" }, bar),
    h("span", { class: "number" }, duration(span.duration_ms)));
  return h("details", {}, summary, h("dl", { class: "attributes" }, ...attributes(span)));
}

function attributes(span) {
  const told = {
    kind: span.kind, status: span.status, error: span.error, model: span.model, tool: span.tool,
    reasoning: span.reasoning, started: span.started_at, event: span.seq, ...span.attributes,
  };
  return Object.entries(told)
    .filter(([, each]) => each !== null && each !== undefined)
    .flatMap(([name, each]) => [h("dt", {}, name), h("dd", {}, value(each))]);
}
