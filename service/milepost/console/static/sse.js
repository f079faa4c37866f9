// A stream of server-sent events, read from bytes that may be cut anywhere.

/** Reads frames. `push` takes the next bytes and returns the frames that are whole with them. */
export class Frames {
  #decoder = new TextDecoder("utf-8");
  #rest = "";
  #frame = { id: null, event: "message", lines: [] };

  push(bytes) {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    const frames = [];
    for (let line = this.#line(); line !== null; line = this.#line()) {
      const frame = this.#read(line);
      if (frame) frames.push(frame);
    }
    return frames;
  }

  // A line that ends in CR may have a LF behind it that has not come yet.
  #line() {
    const found = /\r\n|\n|\r(?!$)/.exec(this.#rest);
    if (!found) return null;
    const line = this.#rest.slice(0, found.index);
    this.#rest = this.#rest.slice(found.index + found[0].length);
    return line;
  }

  #read(line) {
    if (line === "") return this.#done();
    const [name, value] = parted(line);
    if (name === "data") this.#frame.lines.push(value);
    else if (name === "event") this.#frame.event = value;
    else if (name === "id") this.#frame.id = value;
    return null;
  }

  #done() {
    const { id, event, lines } = this.#frame;
    this.#frame = { id: null, event: "message", lines: [] };
    return lines.length ? { id, event, data: lines.join("\n") } : null;
  }
}

function parted(line) {
  const colon = line.indexOf(":");
  if (colon < 0) return [line, ""];
  const value = line.slice(colon + 1);
  return [line.slice(0, colon), value.startsWith(" ") ? value.slice(1) : value];
}
