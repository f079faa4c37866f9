"""Runs of one agent side by side: nothing of one is ever seen in another."""

import asyncio
import contextvars
import threading

from milepost import Agent, emit_artifact, tool
from milepost.core.messages import Message
from milepost.core.model import ModelRequest, RequestedCall
from tests.agent.making import MODEL, function_agent, last_of

RUNS = 50
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


@tool
def draw(name: str) -> str:
    """Draw, in a thread."""
    emit_artifact(content=name, filename=f"{name}.txt")
    return f"{name} drawn"


@tool
async def sketch(name: str) -> str:
    """Draw, on the loop."""
    await asyncio.sleep(0)
    emit_artifact(content=name, filename=f"{name}.txt")
    return f"{name} sketched"


async def model(request: ModelRequest) -> RequestedCall | str:
    """Have the drawing made that the user asks for, and then say what was said in all."""
    await asyncio.sleep(0)
    if request.messages[-1].role == "tool":
        return " | ".join(message.content for message in request.messages)
    name = last_of(request)
    kind = "draw" if int(name) % 2 else "sketch"
    return RequestedCall("", kind, f'{{"name": "{name}"}}')


async def calling_model(request: ModelRequest) -> object:
    """Say the same piece by piece, since a whole call is one."""
    answered = await model(request)
    yield answered


def drawing_agent() -> Agent:
    return function_agent(calling_model, tools=[draw, sketch])


async def test_fifty_runs_at_once_on_one_agent_do_not_mix() -> None:
    asked = drawing_agent()

    results = await asyncio.gather(*(asked.arun(str(n)) for n in range(RUNS)))

    for n, result in enumerate(results):
        done = "drawn" if n % 2 else "sketched"
        assert result.content == f"{n} |  | {n} {done}"
        [artifact] = result.artifacts
        assert result.contents == {artifact.id: str(n).encode()}
    assert len({result.run_id for result in results}) == RUNS


def test_so_do_runs_from_several_threads() -> None:
    asked = drawing_agent()
    answers: dict[int, str] = {}

    def ask(n: int) -> None:
        answers[n] = asked.run(str(n)).content

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert {n: text.split(" | ")[0] for n, text in answers.items()} == {
        n: str(n) for n in range(8)
    }  # fmt: skip
    assert asked.usage.model_calls == 16


def test_a_batch_keeps_its_runs_apart() -> None:
    results = drawing_agent().batch([str(n) for n in range(10)], max_concurrency=10)

    assert [[each.filename for each in result.artifacts] for result in results] == [
        [f"{n}.txt"] for n in range(10)
    ]


def test_context_variables_of_the_caller_reach_models_and_tools_wherever_they_run() -> None:
    seen: list[str] = []

    @tool
    def plain() -> str:
        """Look, in a thread."""
        seen.append(WHO.get())
        return ""

    def answer(request: ModelRequest) -> object:
        seen.append(WHO.get())
        last: Message = request.messages[-1]
        return iter(["Done."] if last.role == "tool" else [RequestedCall("", "plain", "{}")])

    token = WHO.set("ann")
    Agent(MODEL, tools=[plain], providers={"test": answer}).run("Go.")  # type: ignore[dict-item]
    WHO.reset(token)

    assert seen == ["ann"] * 3
