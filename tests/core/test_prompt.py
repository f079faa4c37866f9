"""The prompt: instructions, then the session, then the run."""

from milepost.core.agents import Agent
from milepost.core.context import NOTHING_EARLIER, Earlier
from milepost.core.events import ToolCallCompleted
from milepost.core.evolve import fold
from milepost.core.messages import Message
from milepost.core.prompt import prompt
from tests.core.logs import QUEUED, requesting

CLERK = Agent("agt_1", 1, "clerk", "openai/gpt-5-mini", instructions="Be kind.")
EARLIER = (Message("user", "Hi"), Message("assistant", "Hello."))


def test_the_stable_part_comes_first() -> None:
    assert prompt(CLERK, Earlier(EARLIER), fold([QUEUED])) == (
        Message("system", "Be kind."),
        *EARLIER,
        Message("user", "Refund order 7"),
    )


def test_an_agent_without_instructions_says_nothing() -> None:
    mute = Agent("agt_1", 1, "clerk", "openai/gpt-5-mini")

    assert prompt(mute, NOTHING_EARLIER, fold([QUEUED])) == (Message("user", "Refund order 7"),)


def test_the_present_steps_results_are_shown() -> None:
    shown = prompt(
        CLERK, NOTHING_EARLIER, fold(requesting(ToolCallCompleted("call_1_0", "done", 1)))
    )

    assert shown[-1] == Message("tool", "done", call_id="call_1_0")


def test_a_models_name_begins_with_its_provider() -> None:
    routed = Agent("agt_1", 1, "clerk", "openai/meta/llama-4")

    assert (routed.provider, routed.model_name) == ("openai", "meta/llama-4")
