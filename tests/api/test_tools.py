"""`/v1/tools`: what agents may be given."""

import httpx2

from tests.api.serving import KeyedService


async def test_tools_are_listed_by_name_with_all_that_is_told_of_them(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.get("/v1/tools")

    body = answer.json()
    assert [tool["name"] for tool in body["data"]] == [
        "add", "current_time", "multiply", "send_email",
    ]  # fmt: skip
    assert body["has_more"] is False
    mail = body["data"][3]
    assert mail["requires_approval"] is True
    assert mail["effect"] == "once"
    assert set(mail["parameters"]["properties"]) == {"to", "subject", "body"}


async def test_the_list_of_tools_comes_in_pages(client: httpx2.AsyncClient) -> None:
    first = (await client.get("/v1/tools?limit=3")).json()

    rest = (await client.get(f"/v1/tools?limit=3&after={first['next_cursor']}")).json()

    assert (first["has_more"], first["next_cursor"]) == (True, "multiply")
    assert [tool["name"] for tool in rest["data"]] == ["send_email"]
    assert (rest["has_more"], rest["next_cursor"]) == (False, None)


async def test_the_list_of_tools_comes_backwards_too(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/tools?order=desc&after=multiply")

    assert [tool["name"] for tool in answer.json()["data"]] == ["current_time", "add"]


async def test_a_tool_is_found_by_its_name(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/tools/add")

    assert answer.json()["description"] == "Add two numbers."


async def test_a_tool_that_is_not_there_is_a_404(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/tools/launch_rocket")

    assert (answer.status_code, answer.json()["code"]) == (404, "tool_not_found")


async def test_statistics_tell_how_the_latest_calls_of_a_tool_went(
    keyed: KeyedService,
) -> None:
    acme, body = keyed.acme, {"arguments": {"a": 20, "b": 22}}
    for _ in range(3):
        await acme.post("/v1/tools/add/call", json=body)
    await acme.post("/v1/tools/current_time/call", json={"arguments": {"timezone": "Mars"}})
    await acme.put("/v1/tools/permissions", json={"permissions": {"add": []}})
    denied = await acme.post("/v1/tools/add/call", json=body)

    add = (await acme.get("/v1/tools/add?statistics=true")).json()["statistics"]
    listed = (await acme.get("/v1/tools?statistics=true")).json()["data"]
    theirs = (await keyed.globex.get("/v1/tools/add?statistics=true")).json()["statistics"]

    assert denied.json()["status"] == "denied"
    assert (add["calls"], add["failures"], add["denied"]) == (3, 0, 1)
    assert 0 <= add["p50_ms"] <= add["p95_ms"]
    assert (add["result_chars_mean"], add["result_tokens_mean"]) == (2, 1)
    clock = next(tool for tool in listed if tool["name"] == "current_time")["statistics"]
    assert (clock["calls"], clock["failures"], clock["result_chars_mean"]) == (1, 1, None)
    assert (theirs["calls"], theirs["denied"], theirs["p50_ms"]) == (0, 0, None)


async def test_statistics_are_told_only_to_who_asks(client: httpx2.AsyncClient) -> None:
    assert "statistics" not in (await client.get("/v1/tools/add")).json()
    wrong = await client.get("/v1/tools?statistics=yes")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_query")
