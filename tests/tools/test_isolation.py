"""Tools in processes of their own: what reaches them, what comes back, and how they are ended."""

import asyncio
import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest

from milepost.core.errors import FencedError, ToolError, ToolValidationError
from milepost.core.json import Json
from milepost.tools import (
    Artifact,
    Invoker,
    Tool,
    ToolContext,
    ToolParameter,
    ToolProcesses,
    ToolThreads,
    load,
    tool,
    tool_of,
)
from milepost.tools.artifacts import ARTIFACTS_MAX, collecting
from milepost.tools.context import Approved
from milepost.tools.isolated import PIECE_BYTES
from milepost.tools.pending import Stash, stashing
from milepost.tools.results import RESULT_CHARS_MAX
from milepost.tools.secret import given
from tests.tools import isolated_tools as tools

TIMEOUT_S = 30.0


class Log:
    """Keeps what it is told at one of two levels."""

    def __init__(self, heard: list[dict[str, Any]] | None = None, **bound: Any) -> None:
        self.heard: list[dict[str, Any]] = [] if heard is None else heard
        self._bound = bound

    def bind(self, **more: Any) -> "Log":
        """Return one that says this as well."""
        return Log(self.heard, **self._bound, **more)

    def info(self, event: str, **more: Any) -> None:
        """Keep it."""
        self.heard.append({"event": event, **self._bound, **more})

    warning = info


@pytest.fixture
async def processes() -> AsyncIterator[ToolProcesses]:
    """One process at a time, killed with the test."""
    processes = ToolProcesses(processes_max=1)
    yield processes
    await processes.close()


@pytest.fixture
def isolating(threads: ToolThreads, processes: ToolProcesses) -> Invoker:
    """What calls tools, isolated ones in this one process."""
    return Invoker(threads, processes=processes)


async def call(isolating: Invoker, function: Any, context: ToolContext, **arguments: Json) -> Any:
    """Return what an isolated tool makes of its arguments."""
    return await isolating.invoke(tool_of(function), arguments, context, timeout_s=TIMEOUT_S)


async def failure_of(
    isolating: Invoker, function: Any, context: ToolContext, **arguments: Json
) -> str:
    """Return the error that an isolated tool ends in."""
    with pytest.raises(ToolError) as failure:
        await call(isolating, function, context, **arguments)
    assert failure.value.code == "tool_failed"
    return str(failure.value)


async def gone(*pids: int) -> None:
    """Wait until none of these processes runs."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            ended = os.pidfd_open(pid)
            readable, _, _ = await asyncio.to_thread(select.select, [ended], [], [], TIMEOUT_S)
            os.close(ended)
            assert readable, f"process {pid} lives on"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A named pipe through which a tool says that it hangs."""
    os.mkfifo(tmp_path / "pids")
    return tmp_path / "pids"


async def hanging(path: Path) -> tuple[int, ...]:
    """Wait until the tool hangs; return its process and the one that it has started."""
    told = await asyncio.wait_for(asyncio.to_thread(path.read_text), TIMEOUT_S)
    return tuple(int(pid) for pid in told.split())


async def test_it_runs_in_a_warm_process_and_group_of_its_own_with_values_of_its_types(
    isolating: Invoker, context: ToolContext
) -> None:
    first = await call(isolating, tools.where, context, at={"x": "4"}, on="2026-11-21")
    second = await call(isolating, tools.where_on_a_loop, context)

    assert first == {"pid": second, "group": second, "at": {"x": 5}, "on": "2026-11-21"}
    assert second != os.getpid()


async def test_a_plain_tool_is_found_by_its_functions_name(
    isolating: Invoker, context: ToolContext
) -> None:
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"numbers": {"type": "array", "items": {"type": "integer"}}},
        "required": ["numbers"],
    }
    for parameters in (None, schema):
        adder = Tool(name="adder", description="Add.", function=tools.plain,
                     parameters=parameters, isolation="process")  # fmt: skip

        assert await isolating.invoke(adder, {"numbers": [1, "2"]}, context) == 3


async def test_values_have_the_types_that_were_written_down_for_them(
    isolating: Invoker, context: ToolContext
) -> None:
    days: dict[str, Json] = {"days": ["2026-11-21", "2026-12-01"]}

    assert await isolating.invoke(tool_of(tools.last), days, context) == "01.12."
    assert await isolating.invoke(tools.FIRST, days, context) == "21.11."


async def test_types_that_its_process_does_not_find_are_no_text_instead(
    isolating: Invoker, context: ToolContext
) -> None:
    elsewhere = Tool(
        name="adder",
        description="Add.",
        function=tools.plain,
        parameters=[ToolParameter(name="numbers", type=set, element_type=float)],
        isolation="process",
    )

    with pytest.raises(ToolError, match="does not find the types of its parameters"):
        await isolating.invoke(elsewhere, {"numbers": [1]}, context)


async def test_it_knows_its_call_and_logs_through_the_service(
    isolating: Invoker, context: ToolContext
) -> None:
    log: Any = Log()
    context = replace(context, tool="who", approval=Approved("bob", "fine"), log=log)

    assert await call(isolating, tools.who, context) == ["run_1", "ada", 1, "key-1", "bob"]
    assert log.heard == [
        {"event": "looked", "run": "run_1", "call": "call_1_0", "tool": "who", "colour": "blue"}
    ]


async def test_a_log_may_have_fields_of_any_name_and_value(
    isolating: Invoker, context: ToolContext
) -> None:
    log: Any = Log()
    said: list[object] = []
    context = replace(context, log=log, progress=said.append)

    pid = await call(isolating, tools.log_oddly, context)

    [step] = log.heard
    assert {name: step[name] for name in step if name not in {"run", "call", "tool"}} == {
        "event": "step", "log": "part 1", "progress": "50%", "result": 1, "level": "high",
        "number": 7, "count": str(2**70), "ratio": "inf", "parts": [1, {"a": None}],
        "odd": "{1j}", "half": "0.5", "\ufffd": "\ufffd",
    }  # fmt: skip
    assert said == []
    assert await call(isolating, tools.where_on_a_loop, context) == pid


async def test_what_it_says_meanwhile_comes_through(
    isolating: Invoker, context: ToolContext
) -> None:
    heard: list[object] = []
    context = replace(context, progress=heard.append)

    assert await call(isolating, tools.count, context) == "one two"
    assert await call(isolating, tools.spell, context) == "ab"
    assert heard == ["zero ", "one ", "two", "a", "b"]


async def test_one_that_runs_out_of_time_is_killed_with_all_that_it_started(
    isolating: Invoker, context: ToolContext, path: Path
) -> None:
    await call(isolating, tools.where_on_a_loop, context)  # Now there is a warm one.
    late = asyncio.create_task(
        isolating.invoke(tool_of(tools.hang), {"pid_file": str(path)}, context, timeout_s=2)
    )
    pids = await hanging(path)
    with pytest.raises(ToolError, match="Its process was killed; what it did before") as error:
        await late

    assert (error.value.code, error.value.retryable) == ("tool_timeout", False)
    await gone(*pids)
    assert await call(isolating, tools.where_on_a_loop, context) not in pids


async def test_so_is_one_whose_caller_is_cancelled(
    isolating: Invoker, context: ToolContext, path: Path
) -> None:
    task = asyncio.create_task(call(isolating, tools.hang, context, pid_file=str(path)))
    pids = await hanging(path)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(*pids)


async def test_so_are_all_when_the_processes_are_closed(
    isolating: Invoker, processes: ToolProcesses, context: ToolContext, path: Path
) -> None:
    task = asyncio.create_task(failure_of(isolating, tools.hang, context, pid_file=str(path)))
    pids = await hanging(path)

    await processes.close()

    assert "crashed: it was ended by SIGKILL" in await task
    await gone(*pids)
    assert "is stopping" in await failure_of(isolating, tools.where_on_a_loop, context)


async def test_so_are_all_when_the_service_is_killed(path: Path) -> None:
    service = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SERVICE, str(path), cwd=Path(__file__).parents[2]
    )
    pids = await hanging(path)

    service.send_signal(signal.SIGKILL)

    await service.wait()
    await gone(*pids)


_SERVICE = """
import asyncio, sys
from milepost.tools import Invoker, ToolContext, ToolThreads, tool_of
from tests.tools.isolated_tools import hang
context = ToolContext("run_1", "ses_1", "acme", None, "call_1_0", 1, "key-1")
arguments = {"pid_file": sys.argv[1]}
asyncio.run(Invoker(ToolThreads(1)).invoke(tool_of(hang), arguments, context))
"""


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (tools.crash, {}, "crash failed: its process crashed: it was ended by SIGSEGV"),
        (tools.leave, {"code": 7}, "leave failed: its process ended with exit code 7 before it"),
        (tools.leave_politely, {}, "leave_politely failed: SystemExit: 3"),
        (tools.hang_up, {}, "hang_up failed: its process hung up before it answered"),
        (tools.leave_from_a_loop, {"count": 101}, "a call may leave 100 artifacts; put them into"),
        (tools.refuse, {}, "refuse failed: the hotel is full"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_one_that_does_its_worst_fails_in_clear_words_and_the_next_call_works(
    isolating: Invoker, context: ToolContext, function: Any, arguments: Any, words: str
) -> None:
    assert words in await failure_of(isolating, function, context, **arguments)
    assert await call(isolating, tools.spell, context) == "ab"


async def test_what_it_leaves_behind_is_left_here(isolating: Invoker, context: ToolContext) -> None:
    sizes = (0, 1, 3 * PIECE_BYTES + 1)

    with collecting() as emissions:
        told = await call(isolating, tools.leave_behind, context, sizes=[*sizes])
        await call(isolating, tools.leave_from_a_loop, context, count=3)

    left = emissions.close()
    assert [asdict(artifact) for artifact, _ in left[:4]] == told
    assert [content for _, content in left] == [
        *(b"a" * size for size in sizes), None, b"0", b"1", b"2",
    ]  # fmt: skip
    assert left[3][0].url == "https://example.com/a"


async def test_each_call_may_leave_as_much_as_any_other(
    isolating: Invoker, context: ToolContext
) -> None:
    for _ in range(2):
        with collecting() as emissions:
            await call(isolating, tools.leave_from_a_loop, context, count=ARTIFACTS_MAX)

        assert len(emissions.close()) == ARTIFACTS_MAX


async def test_what_one_has_left_behind_before_it_crashed_stays(
    isolating: Invoker, context: ToolContext
) -> None:
    with collecting() as emissions:
        await failure_of(isolating, tools.leave_and_crash, context)

    assert [content for _, content in emissions.close()] == [b"a"]


async def test_what_it_raises_says_whether_to_try_again_and_where_it_was_raised(
    isolating: Invoker, context: ToolContext
) -> None:
    with pytest.raises(ToolError) as failure:
        await call(isolating, tools.refuse, context)

    assert failure.value.retryable
    cause = failure.value.__cause__
    assert cause is not None
    assert "isolated_tools.py" in cause.__notes__[0]


@pytest.mark.parametrize("function", [tools.fork, tools.fork_on_a_loop])
async def test_one_that_forks_is_answered_once_and_its_copy_does_not_live_on(
    isolating: Invoker, context: ToolContext, function: Any
) -> None:
    pid = await call(isolating, function, context)
    other = await call(isolating, tools.where_on_a_loop, context)

    await gone(pid)
    assert other != pid


@pytest.mark.parametrize("raw", [False, True])
async def test_one_that_leaves_a_thread_behind_is_killed(
    isolating: Invoker, context: ToolContext, raw: bool
) -> None:
    pid = await call(isolating, tools.haunt, context, raw=raw)
    other = await call(isolating, tools.where_on_a_loop, context)

    await gone(pid)
    assert other != pid


async def test_one_whose_threads_have_ended_stays_warm(
    isolating: Invoker, context: ToolContext
) -> None:
    pid = await call(isolating, tools.wait_for_a_thread, context)

    assert await call(isolating, tools.where_on_a_loop, context) == pid


async def test_nothing_that_is_said_for_an_earlier_call_is_taken_for_a_later_ones(
    isolating: Invoker, context: ToolContext
) -> None:
    pids = set()
    for tenant in ("acme", "globex"):
        said: list[object] = []
        log: Any = Log()
        theirs = replace(context, tenant=tenant, progress=said.append, log=log)

        pids.add(await call(isolating, tools.speak_for_all, theirs))

        assert said == [tenant]
        assert [line["event"] for line in log.heard] == [tenant, "anybody"]
    assert len(pids) == 1


@pytest.mark.parametrize(
    "line",
    ["no JSON", "[]", '{"number": 1}', '{"number": 1, "result": 1}',
     '{"number": 1, "error": 1, "retryable": false, "traceback": "", "leaves_behind": false}',
     '{"number": 1, "log": {"level": "info"}}'],
)  # fmt: skip
async def test_one_that_answers_what_is_no_answer_is_killed(
    isolating: Invoker, context: ToolContext, path: Path, line: str
) -> None:
    failing = asyncio.create_task(
        failure_of(isolating, tools.forge, context, line=line, pid_file=str(path))
    )
    pids = await hanging(path)

    assert "its process answered what is no answer" in await failing
    await gone(*pids)


async def test_nothing_that_it_prints_disturbs_its_answer(
    isolating: Invoker, context: ToolContext
) -> None:
    assert await call(isolating, tools.shout, context) == "heard"


async def test_its_environment_lacks_the_services_own_settings(
    isolating: Invoker, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILEPOST_SECRET_KEY", "s3cret")
    monkeypatch.setenv("WEATHER_URL", "http://weather.example")

    names = await call(isolating, tools.settings, context)

    assert "WEATHER_URL" in names
    assert not any(name.startswith("MILEPOST_") for name in names)


async def test_a_result_of_any_size_is_cut_where_it_is_made(
    isolating: Invoker, context: ToolContext
) -> None:
    result = await call(isolating, tools.swell, context)

    assert len(result) < RESULT_CHARS_MAX + 200
    assert "[cut: the result has 50000000 characters" in result


async def test_one_whose_start_is_refused_is_not_called(
    threads: ToolThreads, processes: ToolProcesses, context: ToolContext
) -> None:
    heard: list[object] = []

    def may_start() -> None:
        raise FencedError("too late")

    refused = Invoker(threads, may_start=may_start, processes=processes)

    with pytest.raises(FencedError, match="too late"):
        await call(refused, tools.count, replace(context, progress=heard.append))

    assert heard == []


async def test_one_that_found_no_process_in_time_has_not_begun(
    isolating: Invoker, context: ToolContext, path: Path
) -> None:
    first = asyncio.create_task(call(isolating, tools.hang, context, pid_file=str(path)))
    await hanging(path)

    with pytest.raises(ToolError, match="before it began: no process was ready") as late:
        await isolating.invoke(tool_of(tools.spell), {}, context, timeout_s=0.01)
    first.cancel()

    assert late.value.retryable
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_file_that_was_changed_is_loaded_anew(
    isolating: Invoker, context: ToolContext, tmp_path: Path
) -> None:
    file = tmp_path / "changing.py"
    results = []
    for at, number in enumerate((1, 2)):
        file.write_text(_CHANGING.format(number=number))
        os.utime(file, ns=(time.time_ns(), 10**18 + at))
        results.append(await isolating.invoke(_loaded(file), {}, context, timeout_s=TIMEOUT_S))

    assert results == [1, 2]


_CHANGING = """
from milepost.tools import tool

@tool(isolation="process")
def answer() -> int:
    \"\"\"Answer.\"\"\"
    return {number}
"""


def _loaded(file: Path) -> Tool:

    (found,) = load(str(file))
    return found


def test_a_function_that_no_other_process_finds_is_refused() -> None:
    with pytest.raises(ToolValidationError, match="define it at the top of a module"):

        @tool(isolation="process")
        def inside() -> None:
            """Hide."""


@pytest.mark.parametrize("fails", [False, True])
async def test_an_isolated_tool_gets_secrets_and_its_process_keeps_them_to_itself(
    threads: ToolThreads, processes: ToolProcesses, context: ToolContext, fails: bool
) -> None:
    log, heard, left = Log(), list[object](), list[Artifact]()
    hearing = replace(
        context,
        progress=heard.append,
        emit=lambda *event: heard.append(event),
        stash_pending=lambda *put: heard.append(put),
        log=cast("Any", log),
    )
    invoker = Invoker(threads, processes=processes, find_secret=given({"SHOP_TOKEN": "s3cret-7d"}))

    with collecting(lambda artifact, _: left.append(artifact)), stashing(Stash(room=True)):
        outcome = await invoker.call(
            tool_of(tools.entrusted), {"fails": fails}, hearing, timeout_s=TIMEOUT_S
        )

    assert outcome.content == (None if fails else "It has 9: [secret]")
    assert heard[:2] == ["[secret]", ("told", {"token": "[secret]"})]
    assert [each["event"] for each in log.heard] == ["it is [secret]", "[secret]"]
    assert [each.filename for each in left] == ["[secret]"]
    assert ("send", "Send [secret]", {"token": "[secret]"}) in [
        each[:3] for each in heard if isinstance(each, tuple)
    ]
    shown = [outcome, outcome.cause, getattr(outcome.cause, "__cause__", None), heard, log.heard]
    assert "s3" not in str([*shown, left])
