"""What a run may say for itself: pictures, the form of its answer, and no cache."""

import json
from typing import Any

import httpx2
import pytest
from jsonschema import ValidationError

from milepost.tools.ready import UNJUDGED
from tests.api.asking import ended, events, started
from tests.api.making import refusal
from tests.contract import CONTRACT, require_fits

PICTURE = "data:image/png;base64,iVBORw0KGgo="
FORMAT = {"schema": {"type": "object", "required": ["answer"]}, "retries": 0}


async def queued(client: httpx2.AsyncClient, run_id: str) -> dict[str, Any]:
    """Return what the run was asked."""
    asked: dict[str, Any] = (await events(client, run_id))[0]["data"]
    return asked


async def test_pictures_are_kept_beside_the_text(client: httpx2.AsyncClient) -> None:
    content = [
        {"type": "text", "text": "What is"},
        {"type": "image", "url": PICTURE},
        {"type": "text", "text": "this?"},
        {"type": "image", "url": "https://example.com/cat.png"},
    ]

    run_id = await started(client, "", input=[{"role": "user", "content": content}])

    assert (await queued(client, run_id))["input"] == [
        {
            "role": "user",
            "content": "What is\nthis?",
            "images": [{"url": PICTURE}, {"url": "https://example.com/cat.png"}],
        }
    ]


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        (
            {"role": "user", "content": [{"type": "image", "url": "http://example.com/cat.png"}]},
            "/input/0/content/0/url",
        ),
        (
            {"role": "user", "content": [{"type": "image", "url": "data:text/html;base64,PGI+"}]},
            "/input/0/content/0/url",
        ),
        ({"role": "user", "content": [{"type": "sound", "url": PICTURE}]}, "/input/0/content/0"),
        ({"role": "user", "content": []}, "/input/0/content"),
        (
            {"role": "system", "content": [{"type": "image", "url": PICTURE}]},
            "/input/0/content/0/type",
        ),
    ],
)
async def test_what_is_no_picture_for_a_model_is_refused(
    client: httpx2.AsyncClient, message: dict[str, Any], pointer: str
) -> None:
    answer = await client.post("/v1/runs", json={"agent": "demo", "input": [message]})

    assert answer.status_code == 422
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]


async def test_a_run_says_in_which_form_it_wants_its_answer(client: httpx2.AsyncClient) -> None:
    run_id = await started(client, "Hello!", response_format=FORMAT)

    run = await ended(client, run_id)

    assert (run["status"], run["finish_reason"]) == ("incomplete", "structured_output")
    asked = await queued(client, run_id)
    assert asked["response_format"] == {
        "schema": FORMAT["schema"], "name": "answer", "retries": 0, "mode": "auto",
    }  # fmt: skip


async def test_a_form_that_could_not_be_judged_is_refused(client: httpx2.AsyncClient) -> None:
    body = {"agent": "demo", "input": "hi", "response_format": {"schema": {"type": "thing"}}}

    answer = await client.post("/v1/runs", json=body)

    assert refusal(answer) == (422, "invalid_request")
    [error] = answer.json()["errors"]
    assert error["pointer"] == "/response_format/schema"
    assert "has the type 'thing'" in error["detail"]


@pytest.mark.parametrize("keyword", sorted(UNJUDGED))
async def test_a_keyword_that_is_not_judged_is_refused_as_the_contract_says(
    client: httpx2.AsyncClient, keyword: str
) -> None:
    form = {"schema": {"type": "object", keyword: {}}}

    answer = await client.post(
        "/v1/runs", json={"agent": "demo", "input": "hi", "response_format": form}
    )

    assert refusal(answer) == (422, "invalid_request")
    assert f"uses {keyword}, which Milepost does not judge" in answer.json()["detail"]
    with pytest.raises(ValidationError):
        require_fits("ResponseFormat", form)
    require_fits("ResponseFormat", {"schema": {"type": "object", "minProperties": 1}})


def test_the_contract_refuses_no_keyword_that_is_judged() -> None:
    judged = CONTRACT["components"]["schemas"]["JudgedSchema"]

    assert set(judged["propertyNames"]["not"]["enum"]) == UNJUDGED


async def test_a_run_may_do_without_the_cache(client: httpx2.AsyncClient) -> None:
    agent = {"name": "echo", "model": "demo/offline", "cache": {"ttl_s": 60.0}}
    assert (await client.post("/v1/agents", json=agent)).status_code == 201

    hits = []
    for cache in (True, True, False):
        run_id = await started(client, "Hello!", agent="echo", cache=cache)
        await ended(client, run_id)
        types = [event["type"] for event in await events(client, run_id)]
        hits.append("cache.hit" in types)

    assert hits == [False, True, False]


# --- The log, in other forms than a stream ---


@pytest.mark.parametrize("media", ["application/json", "application/x-ndjson"])
async def test_only_the_types_that_are_asked_for_are_told(
    client: httpx2.AsyncClient, media: str
) -> None:
    run_id = await started(client, "Hello!")
    await ended(client, run_id)

    answer = await client.get(
        f"/v1/runs/{run_id}/events?types=step.*,run.completed", headers={"accept": media}
    )

    told = answer.json()["data"] if media == "application/json" else _lines(answer.text)
    assert [event["type"] for event in told] == ["step.started", "step.completed", "run.completed"]


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
