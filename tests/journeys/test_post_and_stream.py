"""The first journey: a client posts a run and streams it, whatever the connection does."""

from tests.journeys.processes import Event, Installation, assert_sound, frames, types
from tests.journeys.proxy import proxied
from tests.stubs.directed_model import DirectedModel


def said(events: list[Event]) -> str:
    """Return what a client that only concatenates has read."""
    return "".join(event.data["data"]["text"] for event in events if event.type == "message.delta")


async def test_a_run_is_posted_and_streamed_in_one_request(installation: Installation) -> None:
    server = await installation.start()

    async with server.http.stream(
        "POST",
        "/v1/runs",
        json={"agent": "clerk", "input": 'call look_up {"order": 7}', "stream": True},
    ) as response:
        events = [event async for event in frames(response)]

    assert_sound(events)
    assert types(events) == [
        "run.queued", "run.started",
        "step.started", "message.started", "message.completed",
        "tool_call.requested", "tool_call.started", "tool_call.completed", "step.completed",
        "step.started", "message.started", "message.completed", "step.completed",
        "run.completed",
    ]  # fmt: skip
    assert said(events) == "said: order 7 is blue "


async def test_several_tools_run_at_once_and_answer_in_the_order_they_were_asked(
    installation: Installation, model: DirectedModel
) -> None:
    server = await installation.start()

    run = await server.create('call charge {"amount": 5}\ncall look_up {"order": 9}')
    events = await server.whole(run["id"])

    assert types(events).count("tool_call.completed") == 2
    results = [turn["content"] for turn in model.requests[-1]["messages"] if turn["role"] == "tool"]
    assert results == ["charge done: 5", "order 9 is blue"]


async def test_a_dropped_connection_cancels_nothing_and_resumes_inside_of_a_message(
    installation: Installation,
) -> None:
    server = await installation.start()
    run = await server.create("slowly 20\none two three four five six seven eight nine ten")
    first: list[Event] = []
    async for event in server.events(run["id"]):
        first.append(event)
        if said(first).count(" ") > 4:
            break

    rest = [event async for event in server.events(run["id"], after=first[-1].id)]

    whole = await server.whole(run["id"])
    assert said(first) + said(rest) == said(whole)
    assert said(whole) == "said: slowly 20 one two three four five six seven eight nine ten "
    assert_sound(whole)


async def test_a_client_that_is_content_with_waiting_gets_the_answer(
    installation: Installation,
) -> None:
    server = await installation.start()

    response = await server.http.post(
        "/v1/runs",
        json={"agent": "clerk", "input": "hello"},
        headers={"Prefer": "wait=20", "Idempotency-Key": "one"},
    )
    again = await server.http.post(
        "/v1/runs",
        json={"agent": "clerk", "input": "hello"},
        headers={"Prefer": "wait=20", "Idempotency-Key": "one"},
    )

    assert response.status_code == 200
    assert response.json()["output"]["text"] == "said: hello "
    assert again.json()["id"] == response.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"


async def test_the_next_run_of_a_session_starts_when_the_one_before_it_ends(
    installation: Installation, model: DirectedModel
) -> None:
    server = await installation.start()
    model.gate.clear()
    first = await server.create("my name is Ann")

    second = await server.create("what is my name", session_id=first["session_id"])
    model.gate.set()
    events = await server.whole(second["id"])

    assert (second["status"], second["queued_reason"]) == ("queued", "blocked")
    assert_sound(events)
    turns = [(turn["role"], turn["content"]) for turn in model.requests[-1]["messages"]]
    assert turns == [
        ("system", "Do as you are told."),
        ("user", "my name is Ann"),
        ("assistant", "said: my name is Ann "),
        ("user", "what is my name"),
    ]


async def test_a_failing_vendor_fails_the_run_with_an_error_object(
    installation: Installation,
) -> None:
    server = await installation.start(OPENAI_BASE_URL="http://127.0.0.1:9/v1")

    run = await server.create("hello", agent="clerk")
    events = await server.until(run["id"], "model.retried")
    await server.http.post(f"/v1/runs/{run['id']}/cancel")
    events = await server.whole(run["id"])

    assert_sound(events)
    aborted = next(event for event in events if event.type == "message.aborted")
    assert aborted.data["data"]["error"]["code"] == "provider_unreachable"


async def test_one_process_serves_what_another_drives(
    postgres_installation: Installation, redis_url: str
) -> None:
    """The API has no slots, the worker no API; live text crosses between them through Redis."""
    server = await postgres_installation.start(MILEPOST_SLOTS="0", MILEPOST_REDIS_URL=redis_url)
    await postgres_installation.start_worker(MILEPOST_REDIS_URL=redis_url)

    run = await server.create("slowly 30\none two three four five six seven eight")
    events = await server.whole(run["id"])

    assert_sound(events)
    deltas = [event for event in events if event.type == "message.delta"]
    assert len(deltas) > 2
    assert said(events) == "said: slowly 30 one two three four five six seven eight "


async def test_a_missing_redis_costs_nothing_but_the_typing(
    postgres_installation: Installation,
) -> None:
    gone = "redis://127.0.0.1:9/0"
    server = await postgres_installation.start(MILEPOST_SLOTS="0", MILEPOST_REDIS_URL=gone)
    await postgres_installation.start_worker(MILEPOST_REDIS_URL=gone)

    run = await server.create("hello there")
    events = await server.whole(run["id"])

    assert_sound(events)
    assert said(events) == "said: hello there "


async def test_a_redis_that_dies_in_the_middle_of_a_run_loses_nothing(
    postgres_installation: Installation, redis_url: str
) -> None:
    async with proxied(redis_url) as (url, proxy):
        server = await postgres_installation.start(MILEPOST_SLOTS="0", MILEPOST_REDIS_URL=url)
        await postgres_installation.start_worker(MILEPOST_REDIS_URL=url)
        run = await server.create("slowly 50\none two three four five six seven eight nine ten")
        events = []
        async for event in server.events(run["id"]):
            events.append(event)
            if event.type == "message.delta":
                await proxy.cut()

    assert_sound(events)
    assert said(events) == "said: slowly 50 one two three four five six seven eight nine ten "


async def test_the_same_request_is_answered_from_the_cache(
    installation: Installation, model: DirectedModel
) -> None:
    server = await installation.start()

    first = await server.whole((await server.create("hello", agent="cached"))["id"])
    second = await server.whole((await server.create("hello", agent="cached"))["id"])

    assert len(model.requests) == 1
    assert "cache.hit" in types(second)
    assert said(first) == said(second) == "said: hello "
    usage = second[-1].data["data"]["usage"]
    assert (usage["input_tokens"], usage["saved_input_tokens"]) == (0, 10)


async def test_a_second_process_on_the_same_file_is_refused_with_words(
    installation: Installation, database_url: str
) -> None:
    if not database_url.startswith("sqlite"):
        return
    await installation.start()

    process = await _refused(installation)

    assert "is in use by process" in process


async def _refused(installation: Installation) -> str:
    try:
        await installation.start()
    except AssertionError:
        return (installation.folder / "stderr").read_text()
    raise AssertionError("a second process was let in")
