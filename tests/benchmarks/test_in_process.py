"""The benchmark of runs in process measures what it says, however briefly."""

from tests.benchmarks.in_process import figures
from tests.stubs import openai_server


async def test_the_bare_loop_and_the_agent_are_measured_alike() -> None:
    async with openai_server.serving(tokens=3) as base_url:
        found = await figures(base_url, runs=2, together=1)

    assert [each.name for each in found] == ["bare loop", "Agent.arun", "Agent.arun, offline"]
    assert all(each.cpu_micros > 0 for each in found)
