// The console: which view the address asks for, and the reader's key.

import { Api } from "./api.js";
import { approvals, oneApproval } from "./approvals.js";
import { form, h, labelled, put, trouble } from "./dom.js";
import { parse } from "./routes.js";
import { oneRun } from "./run.js";
import { runs } from "./runs.js";
import { schedules } from "./schedules.js";
import { start } from "./start.js";
import { trace } from "./trace.js";
import { usage } from "./usage.js";

const KEY = "milepost.key";
const VIEWS = {
  runs: { list: runs, one: oneRun },
  approvals: { list: approvals, one: oneApproval },
  traces: { one: trace },
  schedules: { list: schedules },
  usage: { list: usage },
  start: { list: start },
};

const page = document.querySelector("main");
const forget = document.querySelector("#forget");
const api = new Api(document.baseURI, () => sessionStorage.getItem(KEY));
let leaving = new AbortController();

async function open() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const route = parse(location.hash);
  const view = VIEWS[route.view][route.id === null ? "list" : "one"];
  mark(route.view === "traces" ? "runs" : route.view);
  const place = h("div", { class: "view" });
  put(page, place);
  try {
    await view(place, { api, route, signal, fail: (error) => fail(place, error, signal) });
  } catch (error) {
    fail(place, error, signal);
  }
}

function fail(place, error, signal) {
  if (signal.aborted) return;
  if (error.status === 401) {
    leaving.abort();
    ask(place, error);
  } else {
    place.append(trouble(error));
  }
}

function ask(place, error) {
  const field = h("input", { type: "password", required: true, autocomplete: "off",
    placeholder: "mp_…" });
  const keep = () => {
    sessionStorage.setItem(KEY, field.value.trim());
    show();
  };
  put(place,
    h("h1", {}, "Which key?"),
    form(keep, { class: "stack" },
      labelled("API key", field),
      h("p", { class: "fine" }, "It is kept in this tab, and gone when the tab is closed."),
      h("button", { class: "main" }, "Use this key")),
    sessionStorage.getItem(KEY) ? trouble(error) : null);
  field.focus();
}

function mark(view) {
  for (const link of document.querySelectorAll("header a[data-view]")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function show() {
  forget.hidden = !sessionStorage.getItem(KEY);
  open();
}

forget.addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  show();
});
addEventListener("hashchange", () => {
  scrollTo(0, 0);
  page.focus();
  open();
});
show();
