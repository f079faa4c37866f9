"""Results that end the run, although their tool is not terminal."""

from milepost.core.agents import StopRule
from milepost.core.events import RunCompleted, RunFailed, RunIncomplete, ToolCallFailed
from milepost.core.json import Json
from milepost.providers.scripted import Scripted, calling, saying
from milepost.tools import tool
from tests.runtime.tools import add
from tests.runtime.workshop import Workshop, of


@tool(effect="read")
def find(name: str) -> dict[str, str]:
    """Find somebody."""
    return {"found": name}


async def test_a_result_that_holds_the_text_is_the_answer(shop: Workshop) -> None:
    agent = shop.agent(find, stop_when=(StopRule("fi*", "ann"),))
    model = Scripted([calling(("find", {"name": "ann"}))])

    run_id = await shop.driven(model, find, agent=agent)

    [ended] = of(await shop.log(run_id), RunCompleted)
    assert (ended.output.text, ended.finish_reason) == ('{"found":"ann"}', "terminal")
    assert len(model.requests) == 1


async def test_a_result_without_the_text_goes_to_the_model(shop: Workshop) -> None:
    agent = shop.agent(find, add, stop_when=(StopRule("find", "bob"), StopRule("sub")))
    model = Scripted([calling(("find", {"name": "ann"})), saying("It is Ann.")])

    run_id = await shop.driven(model, find, add, agent=agent)

    [ended] = of(await shop.log(run_id), RunCompleted)
    assert ended.output.text == "It is Ann."


async def test_the_first_in_the_order_of_the_calls_counts_and_the_rest_is_skipped(
    shop: Workshop,
) -> None:
    agent = shop.agent(find, stop_when=(StopRule("*"),), parallel_tools=False)
    model = Scripted([calling(("find", {"name": "ann"}), ("find", {"name": "bob"}))])

    run_id = await shop.driven(model, find, agent=agent)

    log = await shop.log(run_id)
    [ended] = of(log, RunCompleted)
    assert ended.output.text == '{"found":"ann"}'
    assert [(each.call_id, each.error.code) for each in of(log, ToolCallFailed)] == [
        ("call_1_1", "skipped")
    ]


async def test_a_condition_in_python_sees_the_result_itself(shop: Workshop) -> None:
    seen: list[tuple[str, Json]] = []

    def enough(tool: str, result: Json) -> bool:
        seen.append((tool, result))
        return True

    run = await shop.queue()
    means = shop.means([calling(("find", {"name": "ann"}))], find, stop_condition=enough)
    driven = await shop.driving(await shop.claim(), shop.agent(find), means)
    await driven.run()

    assert seen == [("find", {"found": "ann"})]
    assert of(await shop.log(run.id), RunCompleted)


async def test_a_condition_that_raises_fails_the_run_and_keeps_the_result(shop: Workshop) -> None:
    def broken(tool: str, result: Json) -> bool:
        raise KeyError(tool)

    run = await shop.queue()
    means = shop.means([calling(("find", {"name": "ann"}))], find, stop_condition=broken)
    driven = await shop.driving(await shop.claim(), shop.agent(find), means)
    await driven.run()

    log = await shop.log(run.id)
    assert [event.type for event in log][-3:] == [
        "tool_call.completed", "run.failing", "run.failed",
    ]  # fmt: skip
    [failed] = of(log, RunFailed)
    assert failed.error.code == "stop_rule_failed"
    assert not of(log, RunIncomplete)
