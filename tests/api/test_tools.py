"""`/v1/tools`: what agents may be given."""

import httpx2


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
