// Starting a run.

import { posting } from "./api.js";
import { form, h, labelled, put, trouble } from "./dom.js";
import { address } from "./routes.js";

const AGENTS_MAX = 100;

export async function start(place, { api, route, signal }) {
  document.title = "Start a run · Milepost";
  const { agent = "", session_id: session = "", input = "" } = route.query;
  const known = h("datalist", { id: "agents" });
  const whose = h("input", { list: "agents", required: true, value: agent, maxlength: 128,
    autocomplete: "off" });
  const said = h("textarea", { rows: 6, required: true }, input);
  const where = h("input", { value: session, placeholder: "a new one", maxlength: 64 });
  const button = h("button", { class: "main" }, "Start");
  const failed = h("div");
  const post = posting(api, "v1/runs");
  const send = async () => {
    button.disabled = true;
    const body = { agent: whose.value.trim(), input: said.value };
    if (where.value.trim()) body.session_id = where.value.trim();
    try {
      const run = await post(body);
      if (!signal.aborted) location.hash = address("runs", run.id);
    } catch (error) {
      put(failed, trouble(error));
    } finally {
      button.disabled = false;
    }
  };
  const asked = form(send, { class: "stack" },
    labelled("Agent", whose), known, labelled("Input", said), labelled("Session", where), button);
  said.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) asked.requestSubmit();
  });
  put(place, h("h1", {}, "Start a run"), asked, failed);
  (agent ? said : whose).focus();
  const agents = await api.get("v1/agents", { limit: AGENTS_MAX }, signal);
  put(known, ...agents.data.map((each) => h("option", { value: each.name })));
  if (!whose.value && agents.data.length === 1) {
    whose.value = agents.data[0].name;
    said.focus();
  }
}
