// A run: how it stands, what happens in it while it happens, and what can be done about it.

import { inTurn } from "./api.js";
import { artifacts } from "./artifacts.js";
import { cancel } from "./cancel.js";
import { badge, h, put } from "./dom.js";
import { drawing } from "./entries.js";
import { retry } from "./retry.js";
import { address } from "./routes.js";
import { count, moment, money } from "./shown.js";
import { steering } from "./steering.js";
import { begun, isActive, isEnd, tell } from "./story.js";

const CLOSE_PX = 80;

export async function oneRun(place, { api, route, signal, fail }) {
  document.title = "Run · Milepost";
  const path = `v1/runs/${encodeURIComponent(route.id)}`;
  const head = h("div");
  const line = h("p", { class: "fine", role: "status" });
  const entries = h("div", { class: "story" });
  let run = null;
  // Of two answers the one to the later question holds; and a long log has changes by the hundred.
  const renew = inTurn(async () => {
    run = await api.get(path, {}, signal);
    put(head, ...told(run));
    for (const part of parts) part.renew(run);
  });
  const look = () => renew().catch(fail);
  const story = begun();
  const sendOn = retry(api, path, look);
  const stop = cancel(api, path);
  const say = steering(api, path, story);
  const parts = [sendOn, stop, say];
  const left = artifacts(api, path, signal);
  put(place, head, sendOn.element, stop.element, entries, line, left.element, say.element);

  await renew();
  left.look();
  const keepsUp = isActive(run);
  const draw = drawing({ api, place: entries, keepsUp, closePx: CLOSE_PX });
  await api.follow(`${path}/events`, {
    signal,
    onState: (state) => put(line, state === "cut" ? "The connection was cut; trying again …" : ""),
    onEvent(event) {
      const before = story.status;
      draw(tell(story, event));
      if (story.status !== before) look();
      if (event.type === "artifact.created") left.notice(event.data.artifact_id);
      return isEnd(event.type);
    },
  });
  put(line, "The run is over.");
}

function told(run) {
  const { usage } = run;
  const facts = [
    ["Run", h("code", {}, run.id)],
    ["Created", moment(run.created_at)],
    run.ended_at ? ["Ended", moment(run.ended_at)] : null,
    run.user ? ["User", run.user] : null,
    // A line that came and went would move what is asked below.
    isActive(run) ? ["Waits for", run.waiting_for?.for ?? "nothing"] : null,
    run.queued_reason ? ["Queued", run.queued_reason] : null,
    run.parent_run_id
      ? ["Started by", h("a", { href: address("runs", run.parent_run_id) }, run.parent_run_id)]
      : null,
    usage ? ["Used", `${money(usage.cost_nanos)}, ${count(usage.input_tokens)} tokens in, `
      + `${count(usage.output_tokens)} out`] : null,
    ...Object.entries(run.metadata).map(([name, value]) => [name, value]),
  ];
  const session = { session_id: run.session_id };
  return [
    h("h1", {}, run.agent, h("span", { class: "fine" }, ` v${run.agent_version} `),
      badge(run.status)),
    h("dl", { class: "facts" }, ...facts.filter(Boolean).flatMap(([name, said]) =>
      [h("dt", {}, name), h("dd", {}, said)])),
    h("p", { class: "links" },
      h("a", { href: address("traces", run.id) }, "Trace"),
      h("a", { href: address("runs", null, session) }, "Runs of this session"),
      h("a", { href: address("start", null, { agent: run.agent, ...session }) }, "Go on with it")),
  ];
}
