"""`/v1/batches`: made of many items, run so many at a time, and told in the items' order."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from milepost.api import batch_items, batch_stream, bodies, uploads
from milepost.api.batch_stream import BatchTail
from milepost.live.hub import batch_bell
from milepost.store import batches
from tests.api.making import MAIL, an_agent, an_ended_batch, made, over, refusal
from tests.api.serving import KeyedService, Service
from tests.contract import CONTRACT
from tests.store.making import NOW_MS
from tests.store.making_batches import a_batch, chunk

ROOT = Path(__file__).parents[2]
LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture
async def clerk(client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """A client of a service with an agent that adds and sends mails."""
    await made(client, "/v1/agents", an_agent())
    return client


def sums(count: int) -> list[str]:
    return [f"What is {n} + 1?" for n in range(count)]


def a_body(inputs: list[str], **changes: Any) -> dict[str, Any]:
    return {"agent": "clerk", "items": [{"input": each} for each in inputs], **changes}


def lines_of(*items: Any) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


async def uploaded(
    client: httpx2.AsyncClient, content: bytes, key: str | None = None, **query: Any
) -> httpx2.Response:
    headers = {**LINES, "idempotency-key": key} if key else LINES
    return await client.post(
        "/v1/batches", params={"agent": "clerk", **query}, content=content, headers=headers
    )


async def status_of_a_part(service: Service, agent: str) -> int:
    """Send the beginning of an upload, and return how that is answered."""
    host, port = service.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST /v1/batches?agent={agent} HTTP/1.1",
        f"Host: {host}:{port}",
        "Content-Type: application/x-ndjson",
        "Content-Length: 1000000",
    )
    writer.write("\r\n".join((*head, "", "")).encode() + lines_of({"input": "hello"}))
    answer = await reader.readline()
    writer.close()
    return int(answer.split()[1])


async def results(client: httpx2.AsyncClient, batch_id: str, query: str = "") -> list[Any]:
    """Return all results, page by page."""
    found: list[Any] = []
    after = ""
    while True:
        path = f"/v1/batches/{batch_id}/results?limit=3{query}{after}"
        page = (await client.get(path)).json()
        found += page["data"]
        if not page["has_more"]:
            return found
        after = f"&after={page['next_cursor']}"


async def frames(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield what a stream carries, having checked that ids and types stand on the frames, too."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
            continue
        frame = json.loads(fields["data"])
        assert (fields["event"], fields.get("id")) == (frame["type"], str(frame["seq"]))
        yield frame
        fields = {}


async def followed(client: httpx2.AsyncClient, batch_id: str) -> list[dict[str, Any]]:
    async with client.stream("GET", f"/v1/batches/{batch_id}/events") as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        return [frame async for frame in frames(response)]


async def a_waiting_batch(client: httpx2.AsyncClient, inputs: list[str], **changes: Any) -> str:
    """Make a batch and wait until as many of its runs wait as there are mails to be sent."""
    batch = await made(client, "/v1/batches", a_body(inputs, **changes))
    mails = min(inputs.count(MAIL), changes.get("concurrency", len(inputs)))
    async with client.stream("GET", f"/v1/batches/{batch['id']}/events") as response:
        async for frame in frames(response):
            if frame["data"]["counts"]["waiting"] >= mails:
                return str(batch["id"])
    raise AssertionError("the batch ended before its mails were asked about")


# --- Making one ---


async def test_a_batch_is_kept_at_once_and_shown_with_its_counts(clerk: httpx2.AsyncClient) -> None:
    body = a_body(sums(3), concurrency=2, metadata={"team": "a"}, user="ann", deadline_s=30)

    answer = await clerk.post("/v1/batches", json=body)

    batch = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/batches/{batch['id']}"
    assert (batch["status"], batch["agent"], batch["agent_version"]) == ("running", "clerk", 1)
    assert (batch["concurrency"], batch["priority"], batch["user"]) == (2, -10, "ann")
    assert (batch["metadata"], batch["deadline_s"], batch["ended_at"]) == ({"team": "a"}, 30, None)
    assert {name: count for name, count in batch["counts"].items() if count} == {
        "total": 3,
        "queued": 3,
    }


async def test_each_item_is_a_run_of_its_own(clerk: httpx2.AsyncClient) -> None:
    batch = await an_ended_batch(clerk, sums(4), user="ann", priority=5, deadline_s=60)

    runs = (await clerk.get("/v1/runs")).json()["data"]
    assert len({run["session_id"] for run in runs}) == 4
    assert {run["id"] for run in runs} == {r["run_id"] for r in await results(clerk, batch["id"])}
    assert {(run["user"], run["priority"], run["agent_id"]) for run in runs} == {
        ("ann", 5, batch["agent_id"])
    }
    assert all(run["deadline_at"] for run in runs)


async def test_results_come_in_the_order_of_the_items(clerk: httpx2.AsyncClient) -> None:
    batch = await an_ended_batch(clerk, sums(10), concurrency=4)

    found = await results(clerk, batch["id"])

    assert [each["index"] for each in found] == list(range(10))
    assert [each["output"]["text"] for each in found] == [f"{n} + 1 = {n + 1}." for n in range(10)]
    assert {each["status"] for each in found} == {"completed"}
    assert (batch["counts"]["completed"], batch["done"]) == (10, 10)


async def test_usage_is_summed_over_the_runs(clerk: httpx2.AsyncClient) -> None:
    batch = await an_ended_batch(clerk, sums(3))

    each = [result["usage"] for result in await results(clerk, batch["id"])]

    for name in ("input_tokens", "output_tokens", "model_calls"):
        assert batch["usage"][name] == sum(usage[name] for usage in each) > 0


async def test_an_item_that_comes_to_nothing_touches_no_other(clerk: httpx2.AsyncClient) -> None:
    await made(clerk, "/v1/agents", an_agent(name="brief", limits={"max_steps": 1}))

    batch = await an_ended_batch(clerk, ["hello", "What is 2 + 3?", "hello"], agent="brief")

    statuses = [each["status"] for each in await results(clerk, batch["id"])]
    assert statuses == ["completed", "incomplete", "completed"]
    assert (batch["status"], batch["counts"]["incomplete"]) == ("completed", 1)


async def test_an_item_brings_its_own_name_and_labels(clerk: httpx2.AsyncClient) -> None:
    items = [
        {"input": "hello", "custom_id": "a", "metadata": {"row": "1", "team": "b"}},
        {"input": [{"role": "user", "content": "hello"}]},
    ]
    batch = await made(
        clerk, "/v1/batches", {"agent": "clerk", "items": items, "metadata": {"team": "a"}}
    )
    await over(clerk, batch["id"])

    first, second = await results(clerk, batch["id"])
    labels = [
        (await clerk.get(f"/v1/runs/{each['run_id']}")).json()["metadata"]
        for each in (first, second)
    ]

    assert (first["custom_id"], second["custom_id"]) == ("a", None)
    assert labels == [{"team": "b", "row": "1"}, {"team": "a"}]


async def test_runs_are_given_what_the_batch_says_of_their_answers(
    clerk: httpx2.AsyncClient,
) -> None:
    schema = {"type": "object", "required": ["sum"]}
    batch = await made(
        clerk,
        "/v1/batches",
        a_body(["hello"] * 2, response_format={"schema": schema}, cache=False),
    )
    await over(clerk, batch["id"])

    form = {"accept": "application/json"}
    for each in await results(clerk, batch["id"]):
        log = await clerk.get(f"/v1/runs/{each['run_id']}/events", headers=form)
        queued = log.json()["data"][0]["data"]
        assert queued["response_format"]["schema"] == schema
        assert queued["cache"] is False
        assert queued["input"][0]["content"] == "hello"


async def test_runs_have_the_version_that_the_agent_had_then(clerk: httpx2.AsyncClient) -> None:
    batch_id = await a_waiting_batch(clerk, [MAIL, "hello"], concurrency=1)
    await clerk.patch("/v1/agents/clerk", json={"instructions": "Be brief."})
    await clerk.post(f"/v1/batches/{batch_id}/cancel")

    await over(clerk, batch_id)

    runs = (await clerk.get("/v1/runs")).json()["data"]
    assert {run["agent_version"] for run in runs} == {1}


async def test_single_runs_go_before_those_of_a_batch(clerk: httpx2.AsyncClient) -> None:
    batch = await made(clerk, "/v1/batches", a_body(["hello"]))
    single = await made(clerk, "/v1/runs", {"agent": "clerk", "input": "hello"})

    assert batch["priority"] < single["priority"]


async def test_an_unknown_agent_is_refused_and_nothing_made(clerk: httpx2.AsyncClient) -> None:
    as_json = await clerk.post("/v1/batches", json=a_body(["hello"], agent="nobody"))
    as_lines = await uploaded(clerk, lines_of({"input": "hello"}), agent="nobody")

    assert refusal(as_json) == refusal(as_lines) == (404, "agent_not_found")
    assert (await clerk.get("/v1/batches")).json()["data"] == []


async def test_an_upload_for_an_unknown_agent_is_refused_before_it_is_sent(
    service: Service,
) -> None:
    assert await status_of_a_part(service, "nobody") == 404


@pytest.mark.parametrize("form", ["json", "lines"])
async def test_items_that_do_not_fit_are_named_and_nothing_is_made(
    clerk: httpx2.AsyncClient, form: str
) -> None:
    items = [{"input": "hello"}, {"input": 5}, {"input": "x", "colour": "red"}, {"custom_id": "a"}]
    if form == "json":
        answer = await clerk.post("/v1/batches", json={"agent": "clerk", "items": items})
    else:
        answer = await uploaded(clerk, lines_of(*items))

    assert refusal(answer) == (422, "invalid_request")
    assert {error["pointer"] for error in answer.json()["errors"]} == {
        "/items/1/input",
        "/items/2/colour",
        "/items/3/input",
    }
    assert (await clerk.get("/v1/batches")).json()["data"] == []


async def test_a_line_that_is_no_json_is_named(clerk: httpx2.AsyncClient) -> None:
    content = lines_of({"input": "hello"}) + b"\n{nonsense\n" + lines_of({"input": "a\x00b"})

    answer = await uploaded(clerk, content)

    errors = answer.json()["errors"]
    assert refusal(answer) == (422, "invalid_request")
    assert [error["pointer"] for error in errors] == ["/items/1", "/items/2"]


async def test_of_many_mistakes_the_first_are_told_and_all_counted(
    clerk: httpx2.AsyncClient,
) -> None:
    answer = await uploaded(clerk, lines_of(*[{}] * 300))

    assert len(answer.json()["errors"]) == bodies.FIELD_ERRORS_MAX
    assert "and 299 more" in answer.json()["detail"]


@pytest.mark.parametrize("content", [b"", b"\n\n"])
async def test_a_batch_has_one_item_at_least(clerk: httpx2.AsyncClient, content: bytes) -> None:
    as_lines = await uploaded(clerk, content)
    as_json = await clerk.post("/v1/batches", json=a_body([]))

    assert refusal(as_lines) == refusal(as_json) == (422, "invalid_request")


async def test_a_batch_has_so_many_items_at_most(
    clerk: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_items, "ITEMS_MAX", 2)

    as_lines = await uploaded(clerk, lines_of(*[{"input": "hello"}] * 3))
    as_json = await clerk.post("/v1/batches", json=a_body(["hello"] * 10_001))

    assert refusal(as_lines) == refusal(as_json) == (422, "invalid_request")
    assert "at most 2 items" in as_lines.json()["detail"]


async def test_no_two_items_have_the_same_name(clerk: httpx2.AsyncClient) -> None:
    twins = [{"input": "hello", "custom_id": "a"}] * 2

    answer = await clerk.post("/v1/batches", json={"agent": "clerk", "items": twins})

    assert refusal(answer) == (422, "duplicate_custom_id")
    assert answer.json()["errors"][0]["pointer"] == "/items/1/custom_id"


async def test_an_items_labels_have_to_fit_beside_the_batchs(clerk: httpx2.AsyncClient) -> None:
    items = [{"input": "hello", "metadata": {f"i{n}": "" for n in range(20)}}]
    body = {"agent": "clerk", "items": items, "metadata": {f"b{n}": "" for n in range(20)}}

    answer = await clerk.post("/v1/batches", json=body)

    assert answer.json()["errors"][0]["pointer"] == "/items/0/metadata"


@pytest.mark.parametrize(
    "change",
    [{"concurrency": 0}, {"concurrency": 1_001}, {"session_id": "ses_0"}, {"stream": True}],
)
async def test_options_that_do_not_fit_are_refused(
    clerk: httpx2.AsyncClient, change: dict[str, Any]
) -> None:
    answer = await clerk.post("/v1/batches", json=a_body(["hello"], **change))

    assert refusal(answer) == (422, "invalid_request")


async def test_only_json_and_lines_are_taken(clerk: httpx2.AsyncClient) -> None:
    answer = await clerk.post("/v1/batches", content=b"a,b", headers={"content-type": "text/csv"})

    assert refusal(answer) == (415, "unsupported_media_type")


async def test_who_may_not_act_for_others_may_not_with_a_batch_either(
    keyed: KeyedService,
) -> None:
    await made(keyed.acme, "/v1/agents", an_agent())
    writer = await keyed.holding("runs:write", subject="ann")

    as_json = await writer.post("/v1/batches", json=a_body(["hello"], user="bob"))
    as_lines = await uploaded(writer, lines_of({"input": "hello"}), user="bob")
    own = await writer.post("/v1/batches", json=a_body(["hello"]))

    assert refusal(as_json) == refusal(as_lines) == (403, "missing_scope")
    assert own.json()["user"] == "ann"


async def test_a_tenant_may_have_only_so_many_batches_under_way(
    clerk: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_waiting_batch(clerk, [MAIL])
    monkeypatch.setattr(batches, "OPEN_MAX", 1)

    answer = await clerk.post("/v1/batches", json=a_body(["hello"]))

    assert refusal(answer) == (503, "queue_full")
    assert answer.headers["retry-after"] == "60"


# --- Uploads ---


async def test_an_upload_is_run_like_any_other(clerk: httpx2.AsyncClient) -> None:
    items = [{"input": text, "custom_id": f"c{n}"} for n, text in enumerate(sums(5))]

    answer = await uploaded(
        clerk,
        lines_of(*items),
        concurrency=2,
        priority=-3,
        deadline_s=60,
        cache="false",
        **{"metadata[a]": "b"},
    )

    batch = answer.json()
    assert answer.status_code == 202
    assert (batch["concurrency"], batch["priority"], batch["metadata"]) == (2, -3, {"a": "b"})
    await over(clerk, batch["id"])
    found = await results(clerk, batch["id"])
    assert [each["custom_id"] for each in found] == [f"c{n}" for n in range(5)]
    assert found[4]["output"]["text"] == "4 + 1 = 5."


async def test_ten_thousand_items_are_kept_within_seconds(clerk: httpx2.AsyncClient) -> None:
    content = lines_of(*({"input": f"What is {n} + 1?"} for n in range(10_000)))

    async with asyncio.timeout(5):
        answer = await uploaded(clerk, content, concurrency=1)

    assert answer.json()["counts"]["total"] == 10_000
    await clerk.post(f"/v1/batches/{answer.json()['id']}/cancel")
    cancelled = await over(clerk, answer.json()["id"])
    assert cancelled["done"] == 10_000


async def test_an_upload_may_be_larger_than_other_bodies(clerk: httpx2.AsyncClient) -> None:
    items = [{"input": f"{n} " + "x" * 4_000} for n in range(400)]
    content = lines_of(*items)
    assert len(content) > bodies.BODY_BYTES_MAX

    answer = await uploaded(clerk, content)

    assert answer.status_code == 202
    assert answer.json()["counts"]["total"] == 400
    await clerk.post(f"/v1/batches/{answer.json()['id']}/cancel")
    await over(clerk, answer.json()["id"])


@pytest.mark.parametrize("sized", [True, False])
async def test_an_upload_is_bounded(
    clerk: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, sized: bool
) -> None:
    monkeypatch.setattr(uploads, "UPLOAD_BYTES_MAX", 10_000)
    content = lines_of(*[{"input": "x" * 100}] * 200)

    async def pieces() -> AsyncIterator[bytes]:
        yield content

    sent = content if sized else pieces()
    answer = await clerk.post("/v1/batches?agent=clerk", content=sent, headers=LINES)

    assert refusal(answer) == (413, "body_too_large")


async def test_a_line_is_bounded_by_itself(
    clerk: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "LINE_BYTES_MAX", 1_000)

    answer = await uploaded(clerk, lines_of({"input": "x" * 2_000}))

    assert refusal(answer) == (413, "body_too_large")
    assert "a line" in answer.json()["detail"]


async def test_an_upload_that_comes_too_slowly_is_given_up(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "UPLOAD_S_MAX", 0.05)

    assert await status_of_a_part(service, "demo") == 408


async def test_uploads_that_are_in_memory_are_bounded_together(
    clerk: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "UPLOADS_BYTES_MAX", 1_000)
    small, large = lines_of({"input": "hello"}), lines_of({"input": "x" * 2_000})

    refused = await uploaded(clerk, large)
    taken = [await uploaded(clerk, small * 20) for _ in range(3)]

    assert refusal(refused) == (503, "queue_full")
    assert {answer.status_code for answer in taken} == {202}


@pytest.mark.parametrize(
    "query",
    [
        {"concurrency": "many"}, {"colour": "red"}, {"deadline_s": "-1"}, {"priority": "101"},
        {"user": "a\0b"}, {"agent": "a\0b"}, {"metadata[a]": "\0"},
    ],
)  # fmt: skip
async def test_a_query_that_does_not_fit_is_refused(
    clerk: httpx2.AsyncClient, query: dict[str, str]
) -> None:
    answer = await uploaded(clerk, lines_of({"input": "hello"}), **query)

    assert refusal(answer) == (400, "bad_query")


async def test_options_in_the_query_are_for_uploads_alone(clerk: httpx2.AsyncClient) -> None:
    answer = await clerk.post("/v1/batches?concurrency=2", json=a_body(["hello"]))

    assert refusal(answer) == (400, "bad_query")


# --- Repeating ---


async def test_a_repeated_request_makes_no_second_batch(clerk: httpx2.AsyncClient) -> None:
    key, body = {"idempotency-key": "k"}, a_body(["hello"])

    first = await clerk.post("/v1/batches", json=body, headers=key)
    await clerk.delete("/v1/agents/clerk")
    again = await clerk.post("/v1/batches", json=body, headers=key)
    other = await clerk.post("/v1/batches", json=a_body(["bye"]), headers=key)

    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert refusal(other) == (422, "idempotency_key_reused")


async def test_a_repeated_upload_makes_no_second_batch(clerk: httpx2.AsyncClient) -> None:
    content = lines_of({"input": "hello"})

    first = await uploaded(clerk, content, "k")
    again = await uploaded(clerk, content, "k")
    otherwise = await uploaded(clerk, content, "k", concurrency=3)

    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"
    assert refusal(otherwise) == (422, "idempotency_key_reused")


async def test_requests_at_the_same_time_with_one_key_make_one_batch(
    clerk: httpx2.AsyncClient,
) -> None:
    key, body = {"idempotency-key": "k"}, a_body(sums(50))

    answers = await asyncio.gather(
        *(clerk.post("/v1/batches", json=body, headers=key) for _ in range(3))
    )

    assert Counter(answer.status_code for answer in answers) == {202: 3}
    assert len({answer.json()["id"] for answer in answers}) == 1


# --- Looking ---


async def test_a_batch_that_is_not_there_is_a_404(client: httpx2.AsyncClient) -> None:
    for path in ("", "/results", "/events"):
        assert refusal(await client.get(f"/v1/batches/bat_0{path}")) == (404, "batch_not_found")
    cancelled = await client.post("/v1/batches/bat_0/cancel")
    assert refusal(cancelled) == (404, "batch_not_found")


async def test_batches_are_listed_newest_first_and_by_what_they_are(
    clerk: httpx2.AsyncClient,
) -> None:
    first = await an_ended_batch(clerk, ["hello"], metadata={"team": "a"}, user="ann")
    second = await a_waiting_batch(clerk, [MAIL])

    async def found(query: str) -> list[str]:
        answer = await clerk.get(f"/v1/batches?{query}")
        return [batch["id"] for batch in answer.json()["data"]]

    assert await found("") == [second, first["id"]]
    assert await found("limit=1&order=asc") == await found("status=completed") == [first["id"]]
    assert await found("user=ann") == await found("metadata[team]=a") == [first["id"]]
    assert await found("agent=clerk&status=running") == [second]
    assert refusal(await clerk.get("/v1/batches?status=done")) == (400, "bad_query")


async def test_items_that_are_not_over_are_listed_with_their_status_or_left_out(
    clerk: httpx2.AsyncClient,
) -> None:
    batch_id = await a_waiting_batch(clerk, ["hello", MAIL], concurrency=1)

    everything = await results(clerk, batch_id)
    done = await results(clerk, batch_id, "&done=true")

    assert [each["status"] for each in everything] == ["completed", "waiting"]
    assert everything[1] | {"output": None, "usage": None, "error": None} == everything[1]
    assert done == everything[:1]


async def test_an_item_without_a_run_is_queued_for_one(clerk: httpx2.AsyncClient) -> None:
    batch = await made(clerk, "/v1/batches", a_body(["hello"] * 30, concurrency=1))

    last = (await results(clerk, batch["id"], "&after=28"))[0]

    assert (last["status"], last["run_id"]) == ("queued", None)
    await over(clerk, batch["id"])


async def test_results_come_a_line_each_from_the_cursor_to_the_end(
    clerk: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.api.batches.LIMIT_MAX", 2)
    batch = await an_ended_batch(clerk, sums(5))
    headers = {"accept": "application/x-ndjson"}
    path = f"/v1/batches/{batch['id']}/results"

    whole = await clerk.get(path, headers=headers)
    rest = await clerk.get(f"{path}?after=2", headers=headers)

    assert whole.headers["content-type"].startswith("application/x-ndjson")
    found = [json.loads(line) for line in whole.text.splitlines()]
    assert found == await results(clerk, batch["id"])
    assert [json.loads(line)["index"] for line in rest.text.splitlines()] == [3, 4]


@pytest.mark.parametrize("after", ["-1", "x", "bat_1"])
async def test_a_cursor_that_is_no_index_is_refused(clerk: httpx2.AsyncClient, after: str) -> None:
    batch = await an_ended_batch(clerk, ["hello"])

    answer = await clerk.get(f"/v1/batches/{batch['id']}/results?after={after}")

    assert refusal(answer) == (400, "bad_cursor")


# --- Following ---


async def test_a_stream_tells_how_far_the_batch_is_until_it_is_over(
    clerk: httpx2.AsyncClient,
) -> None:
    batch = await made(clerk, "/v1/batches", a_body(sums(20), concurrency=3))

    seen = await followed(clerk, batch["id"])

    assert [frame["type"] for frame in seen] == [
        *["batch.progress"] * (len(seen) - 1),
        "batch.completed",
    ]
    numbers = [(frame["seq"], frame["data"]["done"]) for frame in seen]
    assert numbers == sorted(numbers)
    assert len({seq for seq, _ in numbers}) == len(seen)
    assert (seen[-1]["data"]["done"], seen[-1]["data"]["counts"]["total"]) == (20, 20)
    shown = (await clerk.get(f"/v1/batches/{batch['id']}")).json()
    assert {name: shown[name] for name in seen[-1]["data"]} == seen[-1]["data"]


async def test_what_a_stream_carries_is_what_the_contract_says(clerk: httpx2.AsyncClient) -> None:
    registry: Registry[Any] = Registry().with_resource(
        "urn:contract", DRAFT202012.create_resource(CONTRACT)
    )
    schema = {"$ref": "urn:contract#/components/schemas/BatchEvent"}
    batch = await made(clerk, "/v1/batches", a_body(sums(3)))

    for frame in await followed(clerk, batch["id"]):
        Draft202012Validator(schema, registry=registry).validate(frame)


async def test_many_changes_are_told_together(clerk: httpx2.AsyncClient) -> None:
    batch = await made(clerk, "/v1/batches", a_body(["hello"] * 150, concurrency=5))
    began = asyncio.get_running_loop().time()

    seen = await followed(clerk, batch["id"])

    lasted = asyncio.get_running_loop().time() - began
    assert len(seen) <= lasted / batch_stream.PACE_S + 2


async def test_a_counts_sum_is_the_total_at_every_moment(clerk: httpx2.AsyncClient) -> None:
    batch = await made(clerk, "/v1/batches", a_body(sums(20), concurrency=7))

    for frame in await followed(clerk, batch["id"]):
        counts = frame["data"]["counts"]
        total = counts.pop("total")
        assert sum(counts.values()) == total
        assert counts["queued"] + counts["running"] <= 20


async def test_who_comes_back_is_told_how_far_it_is_now(clerk: httpx2.AsyncClient) -> None:
    batch = await an_ended_batch(clerk, sums(3))
    path = f"/v1/batches/{batch['id']}/events"

    late = await followed(clerk, batch["id"])
    seen_all = await clerk.get(path, headers={"last-event-id": str(late[-1]["seq"])})
    ahead = await clerk.get(f"{path}?after={late[-1]['seq'] + 1}")
    nonsense = await clerk.get(path, headers={"last-event-id": "1~msg_1:4"})

    assert [frame["type"] for frame in late] == ["batch.completed"]
    assert (seen_all.status_code, seen_all.text) == (204, "")
    assert refusal(ahead) == (400, "cursor_ahead")
    assert refusal(nonsense) == (400, "bad_cursor")


async def test_who_has_seen_the_present_state_waits_for_the_next(
    clerk: httpx2.AsyncClient,
) -> None:
    batch_id = await a_waiting_batch(clerk, [MAIL])
    async with clerk.stream("GET", f"/v1/batches/{batch_id}/events") as response:
        now = await anext(frames(response))

    headers = {"last-event-id": str(now["seq"])}
    async with clerk.stream("GET", f"/v1/batches/{batch_id}/events", headers=headers) as response:
        await clerk.post(f"/v1/batches/{batch_id}/cancel")
        following = [frame async for frame in frames(response)]

    assert min(frame["seq"] for frame in following) > now["seq"]
    assert following[-1]["type"] == "batch.cancelled"


async def test_events_come_as_a_stream_only(clerk: httpx2.AsyncClient) -> None:
    batch = await an_ended_batch(clerk, ["hello"])
    path = f"/v1/batches/{batch['id']}/events"

    refused = await clerk.get(path, headers={"accept": "application/json"})
    head = await clerk.head(path)

    assert refusal(refused) == (406, "not_acceptable")
    assert (head.status_code, head.text) == (200, "")


async def test_a_draining_server_tells_who_follows_to_come_back(service: Service) -> None:
    async with service.client() as client:
        await made(client, "/v1/agents", an_agent())
        batch_id = await a_waiting_batch(client, [MAIL])
        async with client.stream("GET", f"/v1/batches/{batch_id}/events") as response:
            lines = response.aiter_lines()
            while await anext(lines) != "":
                pass
            service.process.streams.drain()
            farewell = [line async for line in lines]

    assert farewell[0] == "event: stream.reconnect"
    told = json.loads(farewell[1].removeprefix("data: "))
    assert (told["batch_id"], told["data"]["after_ms"]) == (batch_id, 500)


async def test_a_stream_of_a_batch_that_is_erased_says_so(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, hub = service.process.app._parts.ports.store, service.process.app._parts.ports.hub
    new = a_batch(1, tenant="default", created_ms=NOW_MS, agent="nobody", queued_event='{"x":1}')
    monkeypatch.setattr("milepost.worker.pump.Pump._turns", _no_turns)
    row = await store.write(batches.create(new, [chunk(0, 1)]))
    async with (
        service.client() as client,
        client.stream("GET", f"/v1/batches/{row.id}/events") as response,
    ):
        lines = response.aiter_lines()
        while await anext(lines) != "":
            pass
        await store.write(_erase(row.id))
        hub.ring(batch_bell(row.id))
        rest = [line async for line in lines]

    assert rest[0] == "event: error"
    assert json.loads(rest[1].removeprefix("data: "))["data"]["code"] == "batch_not_found"


async def _no_turns(*_: Any) -> int:
    return 0


def _erase(batch_id: str) -> Any:
    yield batches._DELETE(tenant="default", batch_id=batch_id)


async def test_a_quiet_stream_has_a_heartbeat(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_stream, "POLL_S", 0.01)
    async with service.client() as client:
        await made(client, "/v1/agents", an_agent())
        batch_id = await a_waiting_batch(client, [MAIL])
    ports = service.process.app._parts.ports
    row = await ports.store.read(batches.find("default", batch_id))
    tail = BatchTail(ports.store, ports.hub, row, row.seq)
    tail.heartbeat_s = 0.02

    assert await anext(tail.pieces()) == b": hb\n"


# --- Stopping ---


async def test_a_cancelled_batch_begins_nothing_more_and_stops_what_is_under_way(
    clerk: httpx2.AsyncClient,
) -> None:
    batch_id = await a_waiting_batch(clerk, ["hello", MAIL, MAIL], concurrency=2)

    answer = await clerk.post(f"/v1/batches/{batch_id}/cancel", json={"reason": "enough"})
    batch = await over(clerk, batch_id)

    assert answer.json()["status"] == "cancelling"
    assert (batch["status"], batch["cancel_reason"]) == ("cancelled", "enough")
    assert (batch["counts"]["completed"], batch["counts"]["cancelled"]) == (1, 2)
    found = await results(clerk, batch_id, "&done=true")
    assert [each["status"] for each in found] == ["completed", "cancelled", "cancelled"]
    assert (await clerk.get("/v1/approvals?status=pending")).json()["data"] == []


async def test_items_that_had_not_begun_never_do(clerk: httpx2.AsyncClient) -> None:
    batch = await made(clerk, "/v1/batches", a_body(["hello"] * 100, concurrency=1))

    await clerk.post(f"/v1/batches/{batch['id']}/cancel")
    ended = await over(clerk, batch["id"])

    found = await results(clerk, batch["id"])
    runs = (await clerk.get("/v1/runs?limit=100")).json()["data"]
    assert len(runs) == sum(each["run_id"] is not None for each in found) < 100
    assert ended["counts"]["cancelled"] >= 100 - len(runs)


async def test_cancelling_is_done_once_however_often_it_is_asked(
    clerk: httpx2.AsyncClient,
) -> None:
    batch_id = await a_waiting_batch(clerk, [MAIL])
    path, key = f"/v1/batches/{batch_id}/cancel", {"idempotency-key": "k"}

    first = await clerk.post(path, headers=key)
    replayed = await clerk.post(path, headers=key)
    await over(clerk, batch_id)
    late = await clerk.post(path, json={"reason": "again"})

    assert (first.status_code, replayed.headers["idempotency-replayed"]) == (200, "true")
    assert (late.status_code, late.json()["status"]) == (200, "cancelled")
    assert late.json()["cancel_reason"] is None


async def test_cancelling_a_completed_batch_changes_nothing(clerk: httpx2.AsyncClient) -> None:
    batch = await an_ended_batch(clerk, ["hello"])

    answer = await clerk.post(f"/v1/batches/{batch['id']}/cancel")

    assert answer.json() == batch


# --- Erasing ---


async def test_a_batch_that_is_over_is_erased_and_its_runs_stay(clerk: httpx2.AsyncClient) -> None:
    batch = await an_ended_batch(clerk, ["hello"])
    [result] = await results(clerk, batch["id"])

    answer = await clerk.delete(f"/v1/batches/{batch['id']}")

    assert answer.status_code == 204
    assert refusal(await clerk.get(f"/v1/batches/{batch['id']}")) == (404, "batch_not_found")
    assert (await clerk.get(f"/v1/runs/{result['run_id']}")).status_code == 200


async def test_a_batch_that_is_not_over_is_not_erased(clerk: httpx2.AsyncClient) -> None:
    batch_id = await a_waiting_batch(clerk, [MAIL])

    assert refusal(await clerk.delete(f"/v1/batches/{batch_id}")) == (409, "batch_busy")


async def test_of_an_erased_run_a_batch_keeps_the_status_alone(clerk: httpx2.AsyncClient) -> None:
    batch = await an_ended_batch(clerk, ["hello"])
    [before] = await results(clerk, batch["id"])
    run = (await clerk.get(f"/v1/runs/{before['run_id']}")).json()

    await clerk.delete(f"/v1/sessions/{run['session_id']}")

    [after] = await results(clerk, batch["id"])
    nothing = {"output": None, "usage": None, "finish_reason": None}
    assert after == {**before, **nothing}


async def test_what_is_done_to_batches_is_written_down(clerk: httpx2.AsyncClient) -> None:
    batch_id = await a_waiting_batch(clerk, [MAIL])
    for _ in range(2):
        await clerk.post(f"/v1/batches/{batch_id}/cancel", json={"reason": "enough"})
    await over(clerk, batch_id)
    await clerk.delete(f"/v1/batches/{batch_id}")

    acts = (await clerk.get(f"/v1/audit?target={batch_id}&order=asc")).json()["data"]

    assert [act["action"] for act in acts] == ["batch.created", "batch.cancelled", "batch.deleted"]
    assert acts[0]["details"] == {"agent": "clerk", "agent_version": 1, "total": 1}
    assert acts[1]["details"] == {"reason": "enough", "begun": 1, "total": 1}
