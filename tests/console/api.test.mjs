// Streams over a real socket that is cut, silent, refused and drained.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import { test } from "node:test";

const { Api, Refused, inTurn, name, posting } = await import(`${process.env.CONSOLE}/api.js`);

const SSE = { "content-type": "text/event-stream" };
const frame = (id, type, data = {}) =>
  `id: ${id}\nevent: ${type}\ndata: ${JSON.stringify({ type, data })}\n\n`;

// Serves one answer after the other; `asked` are the requests.
async function served(answers, does) {
  const asked = [];
  const server = createServer((request, response) => {
    asked.push(request);
    answers[asked.length - 1](response, request);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const api = new Api(`http://127.0.0.1:${server.address().port}/`, () => "mp_1");
  try {
    return await does(api, asked);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

async function followed(api, options = {}) {
  const told = [];
  const leave = new AbortController();
  await api.follow("v1/runs/run_1/events", {
    signal: leave.signal,
    onEvent(event) {
      told.push(event.type);
      return event.type === "run.completed";
    },
    ...options,
  });
  return told;
}

const ends = (response) => {
  response.writeHead(200, SSE);
  response.end(frame(3, "run.completed"));
};

test("a stream that is cut goes on behind the last whole frame", async () => {
  const cut = (response) => {
    response.writeHead(200, SSE);
    response.write(frame(1, "run.queued") + frame("1~msg_1:2", "message.delta") + "id: 2\nev",
      () => response.destroy());
  };
  await served([cut, ends], async (api, asked) => {
    const states = [];
    const told = await followed(api, { onState: (state) => states.push(state) });

    assert.deepEqual(told, ["run.queued", "message.delta", "run.completed"]);
    assert.deepEqual(asked.map((each) => each.headers["last-event-id"]), [undefined, "1~msg_1:2"]);
    assert.equal(asked[1].headers.authorization, "Bearer mp_1");
    assert.deepEqual(states, ["open", "cut", "open"]);
  });
});

test("a server that drains is asked again when it said, and one that is busy, too", async () => {
  const drains = (response) => {
    response.writeHead(200, SSE);
    response.end(`event: stream.reconnect\ndata: {"data": {"after_ms": 1}}\n\n`);
  };
  const lags = (response) => {
    response.writeHead(200, SSE);
    response.end(`event: stream.lagged\ndata: {"data": {"resume_after": 1}}\n\n`);
  };
  const busy = (response) => {
    response.writeHead(503, { "content-type": "application/problem+json" });
    response.end('{"code": "unavailable"}');
  };
  await served([drains, lags, busy, ends], async (api, asked) => {
    assert.deepEqual(await followed(api), ["run.completed"]);
    assert.equal(asked.length, 4);
  });
});

test("a stream that says nothing for long is asked for again", async () => {
  const silent = (response) => {
    response.writeHead(200, SSE);
    response.write(frame(1, "run.queued"));
  };
  await served([silent, ends], async (api) => {
    assert.deepEqual(await followed(api, { silenceMs: 50 }), ["run.queued", "run.completed"]);
  });
});

test("a refusal ends a stream with what the problem says", async () => {
  const refused = (response) => {
    response.writeHead(404, { "content-type": "application/problem+json" });
    response.end('{"code": "run_not_found", "detail": "there is no run", "request_id": "req_1"}');
  };
  await served([refused], async (api) => {
    await assert.rejects(followed(api), (error) => {
      assert.ok(error instanceof Refused);
      const { message, status, code, requestId } = error;
      assert.deepEqual([message, status, code, requestId],
        ["there is no run", 404, "run_not_found", "req_1"]);
      return true;
    });
  });
});

test("an error within a stream ends it where it is final, and is tried again where not", async () => {
  const error = (code, status) => (response) => {
    response.writeHead(200, SSE);
    response.end(`event: error\ndata: ${JSON.stringify({ code, status, detail: code })}\n\n`);
  };
  const answers = [error("database_unavailable", 503), error("run_not_found", 404)];
  await served(answers, async (api, asked) => {
    await assert.rejects(followed(api), { message: "run_not_found" });
    assert.equal(asked.length, 2);
  });
});

test("a stream that has no more is over, and so is one that its reader leaves", async () => {
  const over = (response) => {
    response.writeHead(204);
    response.end();
  };
  await served([over], async (api) => assert.deepEqual(await followed(api), []));

  const leave = new AbortController();
  const open = (response) => {
    response.writeHead(200, SSE);
    response.write(frame(1, "run.queued"));
  };
  await served([open], async (api) => {
    await api.follow("x", { signal: leave.signal, onEvent: () => leave.abort() });
  });
});

test("a mistake of a reader is no cut of the stream", async () => {
  await served([ends], async (api) => {
    const onEvent = () => {
      throw new TypeError("ours");
    };
    await assert.rejects(followed(api, { onEvent }), { message: "ours" });
  });
});

test("a POST has a name, a body and a key, and a query has only what was given", async () => {
  const answer = (response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end("{}");
  };
  await served([answer, answer], async (api, asked) => {
    await api.post("v1/runs", { agent: "demo" }, "once");
    await api.get("v1/runs", { status: "", agent: "a b", after: null, limit: 5 });

    assert.equal(asked[0].headers["idempotency-key"], "once");
    assert.equal(asked[0].headers["content-type"], "application/json");
    assert.equal(asked[1].url, "/v1/runs?agent=a+b&limit=5");
    assert.match(name(), /^[0-9a-f]{32}$/);
  });
});

test("what is posted again because its answer was lost has the same name, and all else another",
  async () => {
    const lost = (response) => response.destroy();
    const refused = (response) => {
      response.writeHead(503, { "content-type": "application/problem+json" });
      response.end("{}");
    };
    const done = (response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end("{}");
    };
    await served([lost, refused, done, done, lost, done], async (api, asked) => {
      const post = posting(api, "v1/runs/run_1/messages");
      const hello = { content: "Hello" };

      await assert.rejects(post(hello));
      await assert.rejects(post(hello), { status: 503 });
      await post(hello);
      await post(hello);
      await assert.rejects(post(hello));
      await post({ content: "Bye" });

      const names = asked.map((each) => each.headers["idempotency-key"]);
      assert.deepEqual(names.map((each) => names.indexOf(each)), [0, 0, 0, 3, 4, 5]);
    });
  });

test("a change is of what is still as it was", async () => {
  const answer = (response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end("{}");
  };
  await served([answer], async (api, asked) => {
    await api.patch("v1/schedules/sch_1", { enabled: false }, '"3"');

    assert.deepEqual([asked[0].method, asked[0].headers["if-match"]], ["PATCH", '"3"']);
  });
});

test("nobody who answers is told as such", async () => {
  const api = new Api("http://127.0.0.1:1/", () => null);

  await assert.rejects(api.get("v1/runs"), (error) => !(error instanceof Refused));
});

test("what is asked for anew while an answer is under way is asked for once more", async () => {
  const answers = [];
  const ask = inTurn(() => new Promise((answer) => { answers.push(answer); }));

  const asked = ask();
  for (let change = 0; change < 100; change += 1) ask();
  assert.equal(answers.length, 1);
  answers[0]();
  await Promise.resolve();
  assert.equal(answers.length, 2);
  answers[1]();
  await asked;

  ask();
  assert.equal(answers.length, 3);
});

test("where an answer is refused, the next question is put all the same", async () => {
  let asked = 0;
  const ask = inTurn(async () => {
    asked += 1;
    throw new Error("no");
  });

  await assert.rejects(ask(), { message: "no" });
  await assert.rejects(ask(), { message: "no" });
  assert.equal(asked, 2);
});
