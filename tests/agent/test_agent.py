"""An agent in process: how it is asked, and what it answers."""

import asyncio
import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest

import milepost
from milepost import Agent, MilepostError, Observer, RunError, Secret, Tool, tool
from milepost.core.errors import ConfigurationError, InvalidError, ProviderError
from milepost.core.messages import Message
from milepost.core.model import Finished, TextDelta
from milepost.providers.scripted import Scripted, calling, saying
from tests.agent.making import ADD, AT_ONCE, BUSY, MODEL, add, adding, agent, echo, function_agent

ALONE = """
import sys

opened = []

def note(event, arguments):
    if event in {"socket.connect", "socket.bind", "sqlite3.connect"}:
        opened.append(event)
    if event == "open" and set(str(arguments[1])) & set("wax+"):
        opened.append(arguments[0])

sys.addaudithook(note)

from milepost import Agent, tool
from milepost.providers.scripted import Scripted, calling, saying

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

script = [calling(("add", {"a": 1, "b": 2})), saying("three")]
print(Agent("test/model", tools=[add], providers={"test": Scripted(script)}).run("1 + 2?"))
heavy = {"starlette", "uvicorn", "sqlalchemy", "alembic", "psycopg", "redis", "aiohttp",
         "prometheus_client", "opentelemetry"}
print(sorted(heavy & sys.modules.keys()), opened)
"""


def test_a_run_asks_the_model_runs_its_tools_and_returns_the_answer() -> None:
    result = adding().run("What is 17 + 25?")

    assert (result.status, result.content, result.finish_reason) == (
        "completed", "It is 42.", "stop",
    )  # fmt: skip
    assert [(each.tool, each.result) for each in result.tool_calls] == [("add", 42)]
    assert result.usage.model_calls == 2


def test_every_way_of_asking_takes_the_same_and_gives_the_same() -> None:
    asked = function_agent(echo)

    async def awaited() -> list[str]:
        (many,) = await asked.abatch(["Hi."])
        chunks = [each async for each in asked.astream("Hi.")]
        whole = [await asked.arun("Hi."), await asked.aask("Hi."), many, chunks[-1]]
        return [str(each) for each in whole]

    waited = [asked.run("Hi."), asked.ask("Hi."), asked("Hi."), *asked.batch(["Hi."])]

    assert {str(each) for each in waited} | {*asyncio.run(awaited())} == {"1: Hi."}


async def test_a_caller_who_waits_may_stand_on_a_running_loop() -> None:
    assert adding().run("Go.").content == "It is 42."


def test_no_call_leaves_anything_to_the_next() -> None:
    asked = function_agent(echo)

    assert [asked.run(text).content for text in ("one", "two", "three")] == [
        "1: one", "1: two", "1: three",
    ]  # fmt: skip


def test_a_conversation_goes_on_where_its_messages_are_handed_in() -> None:
    model = Scripted([ADD, saying("It is 42."), saying("As I said.")])
    asked = agent(model=model, tools=[add])

    first = asked.run("What is 17 + 25?")
    again = asked.run([*first.messages, "Sure?"])

    assert again.content == "As I said."
    assert [each.role for each in model.requests[-1].messages] == [
        "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    assert [each.content for each in again.messages][-2:] == ["Sure?", "As I said."]


def test_it_stops_at_its_steps_with_what_it_had() -> None:
    model = Scripted([ADD] * 7)

    result = agent(model=model, tools=[add]).run("Go on.")

    assert (len(model.requests), result.status, result.finish_reason) == (
        6, "incomplete", "max_steps",
    )  # fmt: skip
    with pytest.raises(RunError, match="incomplete"):
        result.raise_for_status()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (calling(("sub", {})), "there is no tool 'sub'; the tools are: add"),
        (calling(("add", {"a": 1})), "b"),
        (calling(("add", {"a": 1, "b": "x"})), "b"),
        (calling(("fail", {})), "broken"),
    ],
)
def test_a_call_that_fails_is_told_to_the_model_which_goes_on(wrong: object, told: str) -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("broken")

    model = Scripted([wrong, saying("Then not.")])  # type: ignore[list-item]  # a script

    result = agent(model=model, tools=[add, fail]).run("Go.")

    assert result.content == "Then not."
    assert told in model.requests[-1].messages[-1].content


def test_a_tool_is_found_by_its_name_among_five_hundred() -> None:
    def numbered(n: int) -> Tool:
        return Tool(name=f"tool_{n}", description="A tool.", function=lambda: n)

    asked = agent(calling(("tool_499", {})), saying("Done."), tools=[*map(numbered, range(500))])

    [call] = asked.run("Go.").tool_calls

    assert call.result == 499


def test_an_agent_has_a_name() -> None:
    assert (agent().name, agent(name="clerk").name) == ("agent", "clerk")


def test_one_that_only_chooses_runs_nothing_and_asks_once() -> None:
    model = Scripted([ADD])

    result = agent(model=model, tools=[add], routing_only=True).run("What is 17 + 25?")

    assert result.parsed == {"calls": [{"name": "add", "arguments": {"a": 17, "b": 25}}]}
    assert result.finish_reason == "routed"
    assert [(each.tool, each.result) for each in result.tool_calls] == [("add", None)]
    assert len(model.requests) == 1


def test_hooks_are_no_option_of_agents_nor_is_anything_else_that_is_unknown() -> None:
    with pytest.raises(TypeError, match="hooks"):
        Agent(MODEL, hooks={})  # type: ignore[call-arg]  # that is the point
    with pytest.raises(TypeError, match="streem_handler"):
        agent().run("Hi.", streem_handler=print)  # type: ignore[call-arg]  # likewise


def test_what_all_runs_took_is_added_up_until_it_is_reset() -> None:
    asked = agent(ADD, saying("42"), saying("Yes."), tools=[add])

    asked.run("What is 17 + 25?")
    asked.run("Really?")

    assert (asked.total_tokens, asked.usage.model_calls, asked.tool_usage) == (45, 3, {"add": 1})
    assert asked.total_cost == 0
    assert "runs: 2" in asked.usage_summary()
    asked.reset_usage()
    assert (asked.total_tokens, asked.tool_usage) == (0, {})


def test_a_failure_of_the_model_is_a_result_and_raised_on_demand() -> None:
    result = agent(BUSY, BUSY, BUSY).run("Hi.")

    assert (result.status, result.content) == ("failed", "")
    assert result.error is not None
    with pytest.raises(RunError, match="busy") as raised:
        result.raise_for_status()
    assert (raised.value.code, raised.value.retryable) == ("provider_unavailable", True)


def test_a_failure_that_passes_is_retried_by_the_loop() -> None:
    assert agent(BUSY, BUSY, saying("Here.")).run("Hi.").raise_for_status().content == "Here."


def test_a_provider_that_is_broken_itself_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        agent(ZeroDivisionError("a bug")).run("Hi.")


def test_a_model_that_fails_is_followed_by_its_fallback() -> None:
    asked = Agent(
        "one/model",
        fallbacks=["two/model"],
        providers={"one": Scripted([BUSY]), "two": Scripted([saying("Here.")])},
        limits=AT_ONCE,
    )

    result = asked.run("Hi.")

    assert (result.content, result.provider_used, result.model_used) == (
        "Here.", "two", "two/model",
    )  # fmt: skip


def test_a_deadline_ends_the_run() -> None:
    async def slow(_: object) -> str:
        await asyncio.Event().wait()
        return "never"

    result = function_agent(slow).run("Hi.", deadline_s=0.05)

    assert (result.status, result.finish_reason) == ("expired", "deadline")
    with pytest.raises(InvalidError, match="deadline_s"):
        function_agent(slow).run("Hi.", deadline_s=0)


@pytest.mark.parametrize(
    "options",
    [
        {"deadline_s": float("inf")},
        {"deadline_s": 1e300},
        {"deadline_s": float("nan")},
        {"user": "\ud800"},
        {"user": "a\x00b"},
        {"user": 7},
        {"parent_run_id": "\ud800"},
        {"trace_metadata": {"case": "\ud800"}},
        {"trace_metadata": {"\ud800": "7"}},
        {"trace_metadata": {7: "case"}},
        {"trace_metadata": None},
    ],
)
def test_an_option_that_no_log_could_tell_is_refused_before_anything_is_asked(
    options: dict[str, Any],
) -> None:
    model = Scripted([saying("Hi.")])

    with pytest.raises(InvalidError, match=next(iter(options))):
        agent(model=model).run("Hi.", **options)

    assert model.requests == []


@pytest.mark.parametrize("metadata", [{"case": "\ud800"}, {7: "case"}, None])
def test_what_no_trace_could_tell_is_refused_where_the_agent_is_made(metadata: Any) -> None:
    with pytest.raises(ConfigurationError, match="trace_metadata"):
        agent(trace_metadata=metadata)


@pytest.mark.parametrize(
    "said",
    [
        [],
        None,
        {"role": "user", "content": "Hi."},
        Message("user", "Hi."),
        [{"role": "assistant", "content": "Hi."}],
        [{"role": "user"}],
        [{"role": "user", "content": "Hi.", "name": "Ann"}],
        [{"role": "king", "content": "Hi."}],
        [{"role": "user", "content": "Hi.", "images": "https://example.com/a.png"}],
        [{"role": "user", "content": "Hi.", "images": ["nonsense"]}],
        [{"role": "user", "content": "Hi.", "images": ["http://example.com/a.png"]}],
        [{"role": "user", "content": "Hi.", "images": [1]}],
        [{"role": "system", "content": "Hi.", "images": ["https://example.com/a.png"]}, "Go."],
        [*adding().run("Go.").messages[:2], "And?"],
    ],
)
def test_what_cannot_be_answered_is_refused_before_anything_is_asked(said: object) -> None:
    model = Scripted([saying("Hi.")])

    with pytest.raises(InvalidError):
        agent(model=model).run(said)  # type: ignore[arg-type]  # that is the point

    assert model.requests == []


def test_a_picture_is_refused_with_its_place_and_what_would_do() -> None:
    looking = {"role": "user", "content": "Look.", "images": ["https://a.test/", "x" * 1_000]}

    with pytest.raises(InvalidError, match=r"images\.1 is 'x{60}': .* match pattern '\^\(https:"):
        agent().run([looking])


def test_an_option_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pytest.raises(TypeError, match=r"deadline is no option of a run; there are .*deadline_s"):
        agent().run("Go.", deadline=3)  # type: ignore[call-arg]  # that is the point


@pytest.mark.parametrize(
    ("field", "given", "instead"),
    [
        ("tools", add, r"tools=\[\.\.\.\]"),
        ("tools", "add", r"tools=\[\.\.\.\]"),
        ("observers", Observer(), r"observers=\[\.\.\.\]"),
        ("providers", lambda _: "Hi.", r"providers=\{'name': \.\.\.\}"),
    ],
)
def test_who_gives_one_where_several_go_is_told_what_to_write(
    field: str, given: object, instead: str
) -> None:
    with pytest.raises(TypeError, match=f"^{field} is .*{instead}"):
        Agent("demo/offline", **{field: given})  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_an_agent_says_that_it_cannot_be_copied(way: Callable[[Agent], object]) -> None:
    with pytest.raises(TypeError, match=r"cannot be copied or pickled; .*replace\(agent\)"):
        way(agent())


def test_messages_may_have_roles_and_pictures() -> None:
    model = Scripted([saying("Hi.")])

    agent(model=model, instructions="Be kind.").run(
        [
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "Hi!"},
            {"role": "user", "content": "Look.", "images": ["https://example.com/a.png"]},
            Message("user", "Well?"),
        ]
    )

    [request] = model.requests
    roles = [each.role for each in request.messages]
    assert roles == ["system", "user", "assistant", "user", "user"]
    assert [image.url for image in request.messages[3].images] == ["https://example.com/a.png"]


def test_an_answer_cut_short_says_so() -> None:
    result = agent([TextDelta("Half"), Finished("length")]).run("Go.")

    assert (result.status, result.content, result.finish_reason) == (
        "incomplete", "Half", "output_tokens",
    )  # fmt: skip


def test_in_process_needs_neither_server_nor_database_nor_a_file_or_socket(tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(ALONE)

    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, check=False,
    )  # fmt: skip

    assert (done.stdout.splitlines(), done.stderr) == (["three", "[] []"], "")


def test_its_errors_are_of_one_tree() -> None:
    assert issubclass(RunError, MilepostError)
    assert issubclass(ProviderError, MilepostError)


@pytest.mark.parametrize("name", milepost.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(milepost, name) is not None


def test_a_name_that_is_not_public_is_said_to_be_none() -> None:
    with pytest.raises(AttributeError, match="no public name 'Agentt'"):
        milepost.Agentt  # type: ignore[attr-defined]  # noqa: B018 - that is the point


@tool
def charge(order: int, token: Annotated[str, Secret("SHOP_TOKEN")]) -> str:
    """Charge an order."""
    return f"{order} with {token}"


def charging() -> Scripted:
    """Return a model that charges an order."""
    return Scripted([calling(("charge", {"order": 7})), saying("Done.")])


def test_its_tools_get_the_secrets_that_it_has_as_they_are_at_each_call() -> None:
    asked: list[str] = []

    class Stored(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            asked.append(name)
            return super().get(name, default)

    holding = Agent(
        MODEL, tools=[charge], providers={"test": charging()}, secrets=Stored(SHOP_TOKEN="s3cret-7")
    )
    result = holding.run("Charge it.")

    assert asked == ["SHOP_TOKEN"]
    assert "7 with [secret]" in str(result.messages)
    assert "s3cret" not in repr([holding, result, result.messages, result.trace])


def test_without_the_secret_its_tool_fails_and_the_model_is_told_of_it() -> None:
    result = Agent(MODEL, tools=[charge], providers={"test": charging()}).run("Charge it.")

    assert "there is no secret 'SHOP_TOKEN'; hand it in" in str(result.messages)


def test_secrets_that_are_no_dict_are_refused_and_not_repeated() -> None:
    wrong: Any = "s3cret-7"

    with pytest.raises(ConfigurationError, match="secrets is no dict") as refused:
        Agent(MODEL, tools=[charge], providers={"test": charging()}, secrets=wrong)

    assert "s3cret" not in str(refused.value)
