// Times, money and values as people read them. It knows no page.

const UNITS = ["B", "kB", "MB", "GB", "TB"];
const UNSEEN = /[\p{Default_Ignorable_Code_Point}\u007f-\u009f\u2028\u2029\ufff9-\ufffb]/gu;

/** Return money: two digits from a dollar on, below that the two that say most. */
export function money(nanos) {
  if (!nanos) return "$0";
  const dollars = nanos / 1e9;
  if (dollars >= 1) return `$${dollars.toFixed(2)}`;
  const places = Math.min(9, 1 - Math.floor(Math.log10(dollars)));
  return `$${dollars.toFixed(places).replace(/0+$/, "").replace(/\.$/, "")}`;
}

/** Return how long something took. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return lasting(Math.round(seconds));
}

/** Return how far a time is from now, as in `in 3 min` and `2 h ago`. */
export function distance(iso, nowMs) {
  const seconds = Math.round((Date.parse(iso) - nowMs) / 1000);
  if (Number.isNaN(seconds)) return "";
  if (Math.abs(seconds) < 5) return "now";
  return seconds > 0 ? `in ${lasting(seconds)}` : `${lasting(-seconds)} ago`;
}

/** Return a time of the reader's own day and place. */
export function moment(iso) {
  const time = new Date(iso);
  return Number.isNaN(time.getTime()) ? "" : time.toLocaleString();
}

/** Return any JSON so that it can be read; a text is itself. */
export function value(any) {
  if (any === undefined) return "";
  return typeof any === "string" ? any : json(any);
}

/** Return JSON in which nothing hides. */
export function json(any) {
  return plain(JSON.stringify(any, null, 2));
}

/** Return a text in which nothing hides: what turns a line around, or has no width, is escaped. */
export function plain(text) {
  return text.replace(UNSEEN, (unseen) =>
    unseen.split("").map((unit) =>
      `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));
}

/** Return a name that a file may be saved under: no path, and nothing in it that hides. */
export function fileName(name) {
  const last = name.split(/[\\/]/).pop().replace(UNSEEN, "");
  return last.replace(/^[. ]+|[. ]+$/g, "") || "artifact";
}

/** Return how large a file is. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  let [amount, unit] = [bytes, 0];
  while (amount >= 999.5 && unit < UNITS.length - 1) [amount, unit] = [amount / 1000, unit + 1];
  const digits = unit && amount < 9.95 ? 1 : 0;
  return `${Number(amount.toFixed(digits))} ${UNITS[unit]}`;
}

/** Return what somebody wrote as JSON. Throws what says why it cannot be sent as it was written. */
export function parsed(text) {
  const any = JSON.parse(text);
  if (isExact(any)) return any;
  throw new SyntaxError("a number is too large for a browser, which would send another one");
}

/** Say whether a browser can tell all the numbers in a value: it rounds integers from 2^53 on. */
export function isExact(any) {
  if (Number.isInteger(any)) return Number.isSafeInteger(any);
  if (typeof any === "number") return Number.isFinite(any);
  return any === null || typeof any !== "object" || Object.values(any).every(isExact);
}

/** Return a number with its thousands apart. */
export function count(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Return the spans in the order of a waterfall, each with how deep it stands below its parents. */
export function waterfall(spans) {
  const known = new Set(spans.map((span) => span.span_id));
  const below = new Map();
  for (const span of spans) {
    const parent = known.has(span.parent_id) ? span.parent_id : null;
    below.set(parent, [...(below.get(parent) ?? []), span]);
  }
  const rows = [];
  const visit = (parent, depth) => {
    const children = below.get(parent) ?? [];
    below.delete(parent);
    for (const span of children.sort((a, b) => a.offset_ms - b.offset_ms || a.seq - b.seq)) {
      rows.push({ span, depth });
      visit(span.span_id, depth + 1);
    }
  };
  visit(null, 0);
  return rows;
}

function lasting(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}
