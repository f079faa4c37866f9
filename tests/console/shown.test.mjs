// Money, times and addresses as people read them.

import assert from "node:assert/strict";
import { test } from "node:test";

const {
  count, distance, duration, fileName, isExact, json, money, moment, parsed, plain, size, value,
  waterfall,
} = await import(`${process.env.CONSOLE}/shown.js`);
const { HOME, address, parse } = await import(`${process.env.CONSOLE}/routes.js`);

test("money is told in dollars, and small money does not become nothing", () => {
  const told = [[0, "$0"], [1, "$0.000000001"], [42_100, "$0.000042"], [3_000_000, "$0.003"],
    [123_000_000, "$0.12"], [999_999_999, "$1"], [1_000_000_000, "$1.00"],
    [12_345_678_901, "$12.35"]];
  for (const [nanos, words] of told) assert.equal(money(nanos), words);
});

test("a duration is told in the unit that fits", () => {
  const told = [[null, ""], [0, "0 ms"], [999, "999 ms"], [1500, "1.5 s"], [61_000, "1 min"],
    [7_200_000, "2 h"], [200_000_000, "2 d"]];
  for (const [ms, words] of told) assert.equal(duration(ms), words);
});

test("the size of a file is told in the unit that fits", () => {
  const told = [[null, ""], [0, "0 B"], [999, "999 B"], [1000, "1 kB"], [1536, "1.5 kB"],
    [9_960, "10 kB"], [600_000, "600 kB"], [999_600, "1 MB"], [67_108_864, "67 MB"],
    [2 ** 53, "9007 TB"]];
  for (const [bytes, words] of told) assert.equal(size(bytes), words);
});

test("a file is saved under a name that is no path and hides nothing", () => {
  const told = [["a b.csv", "a b.csv"], ["../../etc/passwd", "passwd"], ["C:\\a\\b.txt", "b.txt"],
    ["invoice\u202Efdp.exe", "invoicefdp.exe"], ["...", "artifact"], ["a/", "artifact"],
    [".profile", "profile"], ["", "artifact"]];
  for (const [name, saved] of told) assert.equal(fileName(name), saved);
  assert.equal(plain("invoice\u202Efdp.exe"), "invoice\\u202efdp.exe");
});

test("a time is told by how far it is away", () => {
  const now = Date.parse("2026-11-21T12:00:00Z");
  assert.equal(distance("2026-11-21T12:00:03Z", now), "now");
  assert.equal(distance("2026-11-21T12:03:00Z", now), "in 3 min");
  assert.equal(distance("2026-11-21T10:00:00Z", now), "2 h ago");
  assert.equal(distance("no time", now), "");
  assert.equal(moment("no time"), "");
});

test("counts have their thousands apart, and values are JSON", () => {
  assert.deepEqual([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
  assert.equal(value({ a: 1 }), '{\n  "a": 1\n}');
  assert.equal(value("<b>"), "<b>");
  assert.equal(value(null), "null");
  assert.equal(value(undefined), "");
});

test("nothing hides in JSON, and it still says the same", () => {
  const hidden = { to: "ann\u202Emoc.elpmaxe@\u200B", emoji: "😀é" };

  assert.ok(json(hidden).includes('"ann\\u202emoc.elpmaxe@\\u200b"'));
  assert.ok(json(hidden).includes("😀é"));
  assert.deepEqual(JSON.parse(json(hidden)), hidden);
});

test("nothing hides in JSON either behind signs that no font draws", () => {
  const signs = ["\u{E0041}", "\u{E0101}", "\u034F", "\u115F", "\u3164", "\uFE0F", "\uFFFA",
    "\u206A", "\u0085"];
  for (const sign of signs) {
    const shown = json({ body: `Hello${sign}` });
    assert.match(shown, /"Hello(\\u[0-9a-f]{4})+"/);
    assert.equal(JSON.parse(shown).body, `Hello${sign}`);
  }
});

test("a number that was rounded is noticed wherever it is", () => {
  for (const exact of [null, 0, 1.5, -7, 2 ** 53 - 1, "9007199254740993", { a: [1, { b: null }] }]) {
    assert.ok(isExact(exact));
  }
  assert.ok(!isExact(JSON.parse("9007199254740993")));
  assert.ok(!isExact(JSON.parse('{"a": [{"account": -9007199254740993}]}')));
});

test("what would be sent as another number than was written is not sent", () => {
  assert.deepEqual(parsed('{"a": [9007199254740991, 0.5, "9007199254740993"]}'),
    { a: [9007199254740991, 0.5, "9007199254740993"] });
  for (const text of ["9007199254740993", '{"to": [-9007199254740993]}', "1e400", "{"]) {
    assert.throws(() => parsed(text), SyntaxError);
  }
});

test("a waterfall has each span once, below its parent, in the order of time", () => {
  const span = (span_id, parent_id, offset_ms, seq = 1) => ({ span_id, parent_id, offset_ms, seq });
  const spans = [span("c", "a", 9), span("b", "a", 2), span("a", null, 0), span("d", "gone", 5)];

  const rows = waterfall(spans).map(({ span: { span_id }, depth }) => `${span_id}${depth}`);

  assert.deepEqual(rows, ["a0", "b1", "c1", "d0"]);
});

test("an address leads to the view that it was made for", () => {
  const places = [["runs", null, {}], ["runs", "run_1", {}], ["traces", "run_1", {}],
    ["approvals", null, { status: "denied", agent: "a b&c=d#?/é" }], ["approvals", "a/b%?", {}],
    ["usage", null, { group_by: "day,model" }], ["start", null, { input: "1 + 1 = ?" }],
    ["schedules", null, { enabled: "false" }]];
  for (const [view, id, query] of places) {
    assert.deepEqual(parse(address(view, id, query)), { view, id, query });
  }
});

test("what is empty stays out of an address, and a strange one leads home", () => {
  assert.equal(address("runs", null, { status: "", agent: null, after: undefined }), "#/runs");
  for (const strange of ["", "#", "#/", "#/nothing", "#/usage/1", "#/traces", "#/runs/a/b",
    "#/constructor", "#/__proto__/x"]) {
    assert.deepEqual(parse(strange), HOME);
  }
  assert.equal(parse("#/runs/%E0%A4%A").id, "%E0%A4%A");
});
