// What a run's tools left behind. A content is saved as bytes, whatever its tool says that it is.

import { inTurn } from "./api.js";
import { h, put, trouble } from "./dom.js";
import { table } from "./list.js";
import { count, fileName, plain, size } from "./shown.js";

const NAMES = ["Name", "Kind", "Size", ""];
const NUMBERS = new Set(["Size"]);
const LIMIT = 100;
const BYTES = "application/octet-stream";
const KEPT_MS = 60_000;
const LINKED = new Set(["http:", "https:"]);

/** Return their `element`, `look()` for them, and `notice(id)` for one that was just made. */
export function artifacts(api, path, signal) {
  const known = new Set();
  const rows = h("tbody");
  const failed = h("div");
  const below = h("p", { class: "pages" });
  const element = h("section", { class: "left", hidden: true, "aria-label": "Artifacts" },
    h("h2", {}, "What its tools left behind"), table(NAMES, rows, NUMBERS), below, failed);
  let after = "";
  const look = inTurn(async () => {
    const listed = await api.get(`${path}/artifacts`, { limit: LIMIT, after }, signal);
    for (const artifact of listed.data.filter(({ id }) => !known.has(id))) {
      known.add(artifact.id);
      rows.append(row(artifact));
    }
    element.hidden = !known.size;
    put(below, listed.has_more ? h("button", { onclick: () => more(listed.next_cursor) }, "More")
      : null);
  });
  return { element, look: renew, notice };

  function renew() {
    return look().catch(fail);
  }

  function notice(id) {
    if (!known.has(id)) renew();
  }

  function more(cursor) {
    after = cursor;
    renew();
  }

  function row(artifact) {
    const { id, filename, mime_type: kind, size: bytes, url } = artifact;
    const name = plain(filename ?? id);
    const exact = bytes === null ? null : `${count(bytes)} bytes`;
    return h("tr", {},
      h("td", { class: "name" }, name),
      h("td", {}, plain(kind)),
      h("td", { class: "number", title: exact }, size(bytes)),
      h("td", {}, url === null ? download(artifact, name) : link(url)));
  }

  // A link would go without the key.
  function download(artifact, name) {
    const button = h("button", { "aria-label": `Download ${name}` }, "Download");
    button.addEventListener("click", async () => {
      button.disabled = true;
      put(failed);
      try {
        const path = `v1/artifacts/${encodeURIComponent(artifact.id)}/content`;
        save(await api.blob(path, signal), fileName(artifact.filename ?? artifact.id));
      } catch (error) {
        fail(error);
      }
      button.disabled = false;
    });
    return button;
  }

  function fail(error) {
    if (!signal.aborted) put(failed, trouble(error));
  }
}

// As bytes, so that no browser shows it: a page here would be one of the console's own.
function save(content, name) {
  const url = URL.createObjectURL(content.slice(0, content.size, BYTES));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), KEPT_MS);
}

// A tool wrote it: only what leads to a page is a link.
function link(text) {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (!url || !LINKED.has(url.protocol)) return plain(text);
  return h("a", { href: url.href, target: "_blank", rel: "noopener noreferrer" }, url.href);
}
