// Each view has an address behind the `#`. It knows no page.

const VIEWS = {
  runs: ["list", "one"],
  approvals: ["list", "one"],
  traces: ["one"],
  schedules: ["list"],
  usage: ["list"],
  start: ["list"],
};
export const HOME = { view: "runs", id: null, query: {} };

/** Return what an address means; one that means nothing is the list of runs. */
export function parse(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [view, ...rest] = path.split("/");
  const id = rest.length === 1 && rest[0] ? unescaped(rest[0]) : null;
  const wanted = id === null ? "list" : "one";
  if (rest.length > 1 || !Object.hasOwn(VIEWS, view) || !VIEWS[view].includes(wanted)) return HOME;
  return { view, id, query: Object.fromEntries(new URLSearchParams(search)) };
}

/** Return the address of a view. What of `query` is empty stays out of it. */
export function address(view, id = null, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${view}${id === null ? "" : `/${encodeURIComponent(id)}`}${search}`;
}

function unescaped(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
