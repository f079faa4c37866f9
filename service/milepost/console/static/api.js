// The public API: asking, refusals, and streams that go on where they were cut. It knows no page.

import { Frames } from "./sse.js";

const SILENCE_MS = 30_000;
const WAITS_MS = [500, 1000, 2000, 5000, 10_000];
const FINAL = new Set(["run_not_found", "session_not_found"]);

/** An answer that is none: what the problem says, or that nobody answered. */
export class Refused extends Error {
  constructor(status, problem, requestId) {
    super(problem.detail ?? problem.title ?? `the server answered ${status}`);
    this.status = status;
    this.problem = problem;
    this.code = problem.code ?? null;
    this.requestId = problem.request_id ?? requestId;
  }
}

/** Asks the server at `base`; `key` returns the reader's key, or null. */
export class Api {
  constructor(base, key, fetch = globalThis.fetch.bind(globalThis)) {
    this.base = base;
    this.key = key;
    this.fetch = fetch;
  }

  get(path, query = {}, signal = undefined) {
    return this.#json("GET", path, { query, signal });
  }

  /** Return a content as it is. */
  async blob(path, signal = undefined) {
    return (await this.#asked("GET", path, { signal })).blob();
  }

  /** Change what is still as it was at this `etag`; it is refused with 412 where it is not. */
  patch(path, body, etag) {
    return this.#json("PATCH", path, { body, headers: { "If-Match": etag } });
  }

  /** A POST that is sent again with the same `once` is done once. */
  post(path, body, once = name()) {
    return this.#json("POST", path, { body, headers: { "Idempotency-Key": once } });
  }

  /**
   * Follow a stream, over as many connections as it takes, until `onEvent` returns true, the server
   * has no more, or the signal says so. `onState` is told "open" and "cut".
   */
  async follow(path, { onEvent, onState = () => {}, signal, silenceMs = SILENCE_MS }) {
    const place = { last: null, tries: 0 };
    while (!signal.aborted) {
      const wait = await this.#listen(path, place, { onEvent, onState, signal, silenceMs });
      if (wait === null || signal.aborted) return;
      onState("cut");
      await pause(wait, signal);
    }
  }

  // Returns how long to wait before the next connection, or null where there is nothing to come.
  async #listen(path, place, { onEvent, onState, signal, silenceMs }) {
    const patience = new Patience(silenceMs, signal);
    try {
      const answer = await this.#stream(path, place.last, patience.signal);
      if (answer?.status === 204) return null;
      if (answer) onState("open");
      const frames = new Frames();
      for await (const bytes of chunks(answer?.body)) {
        patience.again();
        for (const frame of frames.push(bytes)) {
          place.tries = 0;
          const told = JSON.parse(frame.data);
          if (frame.event === "stream.reconnect") return told.data.after_ms;
          if (frame.event === "stream.lagged") return 0;
          if (frame.event === "error") return later(place, new Refused(told.status, told, null));
          if (onEvent(told)) return null;
          if (frame.id !== null) place.last = frame.id;
        }
      }
      return later(place);
    } catch (error) {
      if (error instanceof Refused) return later(place, error);
      throw error;
    } finally {
      patience.end();
    }
  }

  // Nobody who answers is no failure of a stream: it is asked for again.
  async #stream(path, last, signal) {
    const headers = { Accept: "text/event-stream" };
    if (last !== null) headers["Last-Event-ID"] = last;
    try {
      return await this.#asked("GET", path, { headers, signal });
    } catch (error) {
      if (error instanceof Refused) throw error;
      return null;
    }
  }

  async #json(method, path, asked) {
    const answer = await this.#asked(method, path, asked);
    return answer.status === 204 ? null : answer.json();
  }

  async #asked(method, path, { query = {}, body, headers = {}, signal }) {
    const url = new URL(path, this.base);
    for (const [name, value] of Object.entries(query)) {
      if (value !== "" && value != null) url.searchParams.set(name, value);
    }
    const sent = { ...headers };
    if (body !== undefined) sent["Content-Type"] = "application/json";
    const key = this.key();
    if (key) sent.Authorization = `Bearer ${key}`;
    const answer = await this.fetch(url, {
      method, headers: sent, signal, cache: "no-store", credentials: "omit",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (answer.ok) return answer;
    const problem = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, problem, answer.headers.get("x-request-id"));
  }
}

/** Return what posts to `path`: the same again, because an answer was lost, is done once. */
export function posting(api, path) {
  let sent = null;
  return async (body) => {
    const text = JSON.stringify(body);
    if (sent?.text !== text) sent = { text, once: name() };
    const told = await api.post(path, body, sent.once);
    sent = null;
    return told;
  };
}

/** Return what asks, and where it is told to meanwhile, asks once more behind that. */
export function inTurn(ask) {
  let asking = false;
  let again = false;
  return async () => {
    again = true;
    if (asking) return;
    asking = true;
    try {
      while (again) {
        again = false;
        await ask();
      }
    } finally {
      asking = false;
    }
  };
}

/** Return a name for a request that nobody else gives one. */
export function name() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// A stream says something every ten seconds: one that is silent for longer is gone.
class Patience {
  #silent = new AbortController();
  #leave = () => this.#silent.abort();

  constructor(silenceMs, left) {
    this.silenceMs = silenceMs;
    this.left = left;
    left.addEventListener("abort", this.#leave);
    this.again();
  }

  get signal() {
    return this.#silent.signal;
  }

  again() {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.#leave, this.silenceMs);
  }

  // Whoever is done reads nothing more, so the connection goes, too.
  end() {
    clearTimeout(this.timer);
    this.left.removeEventListener("abort", this.#leave);
    this.#silent.abort();
  }
}

function passes(refused) {
  if (FINAL.has(refused.code)) return false;
  return refused.status >= 500 || refused.status === 429;
}

// A connection that breaks ends as one that is closed.
async function* chunks(body) {
  const reader = body?.getReader();
  while (reader) {
    const { done, value } = await reader.read().catch(() => ({ done: true }));
    if (done) return;
    yield value;
  }
}

function later(place, refused = null) {
  if (refused && !passes(refused)) throw refused;
  place.tries += 1;
  return WAITS_MS[Math.min(place.tries, WAITS_MS.length) - 1];
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}
