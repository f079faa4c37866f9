"""What an agent in process is made of: its groups of options, its tools and what they may do."""

from typing import Any

import pytest

from milepost import Agent, Tool, executor, tool
from milepost.core.agents import Limits, LoopDetection, StopRule, StructuredOutput
from milepost.core.errors import ConfigurationError, InvalidError
from milepost.core.json import Json
from milepost.core.policy import Policy
from milepost.guardrails import Block, Subject, rail
from milepost.providers.scripted import Scripted, calling, saying
from milepost.tools import ToolContext
from tests.agent.making import ADD, add, adding, agent


@rail
def patient(_: Subject) -> None:
    """Object to nothing."""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"limits": {"max_steps": 0}}, r"limits\.max_steps: .*greater than or equal to 1"),
        ({"limits": {"max_stepz": 1}}, r"limits\.max_stepz: no such field"),
        ({"policy": {"deny": "x"}}, r"policy\.deny: .*list"),
        ({"name": ""}, "name: "),
        ({"stop_when": [{"tool": ""}]}, "stop_when"),
        ({"guardrails": {"input": [{"type": "python", "name": "mine"}]}}, "no guardrail 'mine'"),
        ({"guardrails": {"input": [{"type": "regex", "pattern": "("}]}}, r"guardrails\.input\.0"),
        ({"guardrails": {"input": [len]}}, "len is no guardrail; decorate it with @rail"),
        ({"guardrails": {"input": "pii"}}, r"guardrails\.input: .*list"),
        ({"guardrails": {"input": patient}}, r"guardrails\.input: .*list"),
        ({"fallbacks": ["nowhere/model"]}, "no provider 'nowhere'"),
    ],
)
def test_groups_are_dicts_in_the_words_of_the_service_and_checked_like_them(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        agent(**fields)


def test_a_model_without_a_provider_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'agent': model: a model is <provider>/<model>"):
        Agent("gpt-5")


def test_groups_may_be_records_too() -> None:
    asked = agent(
        ADD,
        tools=[add],
        limits=Limits(max_steps=3),
        policy=Policy(allow=("*",)),
        loop_detection=LoopDetection(),
        stop_when=[StopRule("add")],
    )

    assert asked.run("Go.").content == "42"


@pytest.mark.parametrize("parallel", [True, False])
def test_a_stop_condition_sees_the_result_itself_and_ends_the_run_with_it(parallel: bool) -> None:
    seen: list[tuple[str, Json]] = []

    def enough(name: str, result: Json) -> bool:
        seen.append((name, result))
        return result == 42

    asked = agent(
        calling(("add", {"a": 17, "b": 25}), ("add", {"a": 1, "b": 1})),
        tools=[add],
        stop_condition=enough,
        parallel_tools=parallel,
    )

    result = asked.run("Go.")

    assert ("add", 42) in seen
    assert (result.status, result.content, result.finish_reason) == ("completed", "42", "terminal")


def test_a_stop_condition_that_raises_fails_the_run() -> None:
    def broken(name: str, result: Json) -> bool:
        raise ValueError(f"{name}: {result}")

    result = adding(stop_condition=broken).run("Go.")

    assert result.status == "failed"
    assert result.error is not None
    assert (result.error.code, "add: 42" in result.error.message) == ("stop_rule_failed", True)


def test_a_gated_call_is_denied_in_words_since_there_is_nobody_to_ask() -> None:
    ran: list[str] = []

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        ran.append("pay")
        return f"paid {amount}"

    model = Scripted([calling(("pay", {"amount": 1})), saying("Not paid.")])

    result = agent(model=model, tools=[pay]).run("Pay.")

    assert (result.content, ran) == ("Not paid.", [])
    assert model.requests[-1].messages[-1].content.startswith("Tool 'pay' denied by default: ")
    assert "nobody to ask" in model.requests[-1].messages[-1].content


def test_a_policy_denies_and_what_it_names_nowhere_is_denied_as_well() -> None:
    model = Scripted([ADD, saying("Then not.")])

    [call] = agent(model=model, tools=[add], policy={"allow": ["get_*"]}).run("Go.").tool_calls

    assert "no rule names add" in (call.error or "")


def test_a_tool_for_certain_users_is_denied_without_one() -> None:
    @tool(permissions=["ann"])
    def secret(context: ToolContext) -> str:
        """Tell."""
        return f"told {context.user}"

    asked = agent(*[calling(("secret", {})), saying("Done.")] * 2, tools=[secret])

    assert [asked.run("Go.").tool_calls[0].result, asked.run("Go.", user="ann").tool_calls[0]
            .result] == [None, "told ann"]  # fmt: skip


def test_what_executes_confirmed_actions_is_refused_since_no_model_may_call_it() -> None:
    @executor("payment")
    def pay(amount: int) -> None:
        """Pay."""

    with pytest.raises(ConfigurationError, match="'pay' executes what users have confirmed"):
        agent(tools=[pay])


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"type": "nonsense"}, "has the type 'nonsense'"),
        ({"schema": {"type": "object"}, "retries": 11}, r"response_format\.retries: "),
        (StructuredOutput({"type": "object"}, retries=11), r"response_format\.retries: "),
        (StructuredOutput({"type": "object"}, name="a b"), r"response_format\.name: "),
        ("json", "response_format is 'json'"),
    ],
)
async def test_a_format_that_cannot_be_is_refused_where_it_is_said(wanted: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"agent 'agent': .*{said}"):
        agent(response_format=wanted)
    with pytest.raises(InvalidError, match=said):
        await agent(saying("{}")).arun("Go.", response_format=wanted)


def test_a_tool_of_clients_is_refused() -> None:
    there = Tool(
        name="there", description="Elsewhere.", function=add, kind="client", parameters={
            "type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"],
        },
    )  # fmt: skip

    with pytest.raises(ConfigurationError, match="clients of the service"):
        agent(tools=[there])


def test_replies_and_results_are_kept_where_that_is_asked_for() -> None:
    looked: list[str] = []

    @tool(cacheable=True, effect="read")
    def look(name: str) -> str:
        """Look."""
        looked.append(name)
        return name

    model = Scripted([calling(("look", {"name": "x"})), saying("Seen."), saying("Anew.")])
    asked = agent(model=model, tools=[look], cache_ttl_s=60)

    first, second = asked.run("Look."), asked.run("Look.")

    assert (first.content, second.content, len(model.requests)) == ("Seen.", "Seen.", 2)
    assert (second.usage.model_calls, second.usage.saved_output_tokens) == (0, 10)
    assert looked == ["x"]
    assert asked.run("Look.", cache=False).content == "Anew."


def test_guardrails_hold_in_process_with_rails_of_ones_own() -> None:
    @rail
    def no_shouting(subject: Subject) -> Block | None:
        return Block("it shouts") if subject.text.isupper() else None

    asked = agent(saying("Mail ann@example.com."), guardrails={
        "input": [no_shouting], "output": [{"type": "pii"}],
    })  # fmt: skip

    assert asked.run("HELP").finish_reason == "guardrail"
    assert "ann@example.com" not in asked.run("Help.").content


def test_a_long_result_is_made_shorter_and_counts() -> None:
    @tool
    def long() -> str:
        """Say much."""
        return "x" * 500

    model = Scripted([calling(("long", {})), saying("short"), saying("Done.")])

    result = agent(model=model, tools=[long], compression={"threshold_chars": 100}).run("Go.")

    assert model.requests[-1].messages[-1].content == "[compressed from 500 chars] short"
    assert result.usage.model_calls == 3


def test_tools_are_added_removed_and_replaced_in_a_new_agent() -> None:
    @tool(name="add")
    def add_loudly(a: int, b: int) -> str:
        """Add two numbers aloud."""
        return f"{a + b}!"

    asked = adding()
    louder = asked.with_tools(add_loudly, replacing=True)

    assert [each.result for each in louder.run("17 + 25?").tool_calls] == ["42!"]
    assert asked.tools == (add,)
    assert louder.without_tools("add").tools == ()
    with pytest.raises(ConfigurationError, match="there is a tool 'add' already"):
        asked.with_tools(add_loudly)


def test_what_is_not_said_is_as_in_the_service() -> None:
    model = Scripted([saying("Hi.")])

    agent(model=model, limits={}).run("Hi.")

    [request] = model.requests
    assert (request.temperature, request.tokens_max) == (None, None)
    with pytest.raises(TypeError, match="model"):
        Agent()  # type: ignore[call-arg]  # an agent has a model
