"""The events that a stream of a run or of a session is asked for, by their types."""

import httpx2
import pytest
from starlette.requests import Request

from milepost.api.event_types import TYPES, wanted_types
from milepost.core.errors import InvalidError
from tests.api.making import an_agent, an_ended_run, made, refusal

AS_JSON = {"accept": "application/json"}


def asking(types: str) -> Request:
    """Return a request for these types."""
    query = f"types={types}".encode()
    return Request({"type": "http", "method": "GET", "query_string": query, "headers": []})


def test_globs_are_parted_by_commas() -> None:
    assert wanted_types(asking("run.*, tool_call.completed,")) == ("run.*", "tool_call.completed")
    assert wanted_types(asking("")) == ()


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_each_type_that_there_is_can_be_asked_for(kind: str) -> None:
    assert wanted_types(asking(kind)) == (kind,)


@pytest.mark.parametrize(
    "glob", ["*", "stream.*", "message.*", "*.delta", "output.*", "[rs]*", "run.?ueued", "custom"]
)
def test_a_glob_may_fit_any_of_them(glob: str) -> None:
    assert wanted_types(asking(glob)) == (glob,)


@pytest.mark.parametrize("types", ["foo.*", "run", "run.*,steps.*", "RUN.*", "message"])
def test_a_glob_that_fits_nothing_is_refused_and_told_what_there_is(types: str) -> None:
    with pytest.raises(InvalidError, match=r"fits no type of event.*run\.\*") as refused:
        wanted_types(asking(types))

    assert refused.value.code == "bad_query"


async def test_neither_a_run_s_nor_a_session_s_log_is_read_for_nothing(
    client: httpx2.AsyncClient,
) -> None:
    await made(client, "/v1/agents", an_agent())
    run = await an_ended_run(client)

    for path in (f"/v1/runs/{run['id']}/events", f"/v1/sessions/{run['session_id']}/events"):
        for headers in ({}, AS_JSON, {"accept": "application/x-ndjson"}):
            answer = await client.get(f"{path}?types=foo.*", headers=headers)
            assert refusal(answer) == (400, "bad_query"), (path, headers)
        assert (await client.get(f"{path}?types=run.*", headers=AS_JSON)).status_code == 200


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=ten", "deltas=1", "until=ever"])
async def test_what_says_nothing_of_a_log_is_refused_in_every_form(
    client: httpx2.AsyncClient, query: str
) -> None:
    await made(client, "/v1/agents", an_agent())
    run = await an_ended_run(client)

    for path in (f"/v1/runs/{run['id']}/events", f"/v1/sessions/{run['session_id']}/events"):
        for headers in ({}, AS_JSON, {"accept": "application/x-ndjson"}):
            answer = await client.get(f"{path}?{query}", headers=headers)
            assert refusal(answer) == (400, "bad_query"), (path, headers)
