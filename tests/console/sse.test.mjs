// A stream is read the same however its bytes are cut.

import assert from "node:assert/strict";
import { test } from "node:test";

const { Frames } = await import(`${process.env.CONSOLE}/sse.js`);

const bytes = (text) => new TextEncoder().encode(text);
const STREAM = [
  "retry: 1500\nid: 1\nevent: run.queued\ndata: {\"a\": 1}\n\n",
  ": hb\n",
  "id: 1~msg_1:4\r\nevent: message.delta\r\ndata: {\"text\": \"é😀\"}\r\n\r\n",
  "event: tool_call.progress\rdata: one\rdata:two\r\r",
  "id: 2\nevent: run.completed\ndata\n\n",
].join("");
const FRAMES = [
  { id: "1", event: "run.queued", data: '{"a": 1}' },
  { id: "1~msg_1:4", event: "message.delta", data: '{"text": "é😀"}' },
  { id: null, event: "tool_call.progress", data: "one\ntwo" },
  { id: "2", event: "run.completed", data: "" },
];

function read(pieces) {
  const frames = new Frames();
  return pieces.flatMap((piece) => frames.push(piece));
}

test("a stream that comes at once is its frames", () => {
  assert.deepEqual(read([bytes(STREAM)]), FRAMES);
});

test("a stream that is cut at any byte is the same frames", () => {
  const whole = bytes(STREAM);
  for (let at = 0; at <= whole.length; at += 1) {
    assert.deepEqual(read([whole.slice(0, at), whole.slice(at)]), FRAMES, `cut at ${at}`);
  }
});

test("a stream that comes byte by byte is the same frames", () => {
  assert.deepEqual(read([...bytes(STREAM)].map((byte) => Uint8Array.of(byte))), FRAMES);
});

test("a frame that is not whole is none, and a comment is none either", () => {
  assert.deepEqual(read([bytes(": hb\n\nid: 3\nevent: x\ndata: cut off")]), []);
});
