"""`python -m tests.benchmarks.loop_cost`: what the loop costs without models, tools and a log."""

from collections.abc import Sequence
from dataclasses import replace

from milepost.core.agents import Agent, Limits, LoopDetection
from milepost.core.codec import decode, encode
from milepost.core.context import Earlier
from milepost.core.effects import CallModel, CallTool
from milepost.core.events import (
    Event,
    InputMessage,
    MessageCompleted,
    RunQueued,
    RunStarted,
    ToolCallCompleted,
    ToolCallRequested,
)
from milepost.core.evolve import evolve, fold
from milepost.core.ids import call_id, idempotency_key
from milepost.core.messages import Message
from milepost.core.prompt import prompt
from milepost.core.state import State
from milepost.core.usage import Usage
from milepost.runtime.journal import Stamped
from milepost.runtime.rules import rules_for
from milepost.runtime.settle import Settlement, Settling
from milepost.store.records import Claim
from milepost.tools import Registry, preview, tool_of
from tests.benchmarks.costs import Cost, least
from tests.benchmarks.tools import add

ROUNDS = 15
STEPS = 500
EVENTS = 2_000
MESSAGES = 500
NOW_MS = 1_700_000_000_000

AGENT = Agent(
    "agt_1",
    1,
    "clerk",
    "openai/gpt-5-mini",
    instructions="Add what you are told to.",
    tools=("add",),
    limits=Limits(max_steps=10_000, max_tokens=10**12),
    loop_detection=LoopDetection(repeat=10_000, stall=10_000, ping_pong=10_000),
)
CLAIM = Claim("run_1", "acme", "ses_1", "agt_1", 1, None, 1, 2, 0, 0, "{}", None, None)
SPENT = Usage(input_tokens=200, output_tokens=20, model_calls=1)


class Run:
    """A run whose model asks for one sum a step, for ever."""

    def __init__(self) -> None:
        rules = rules_for(AGENT, Registry([tool_of(add)]))
        self._settling = Settling(CLAIM, AGENT, rules, lambda prefix: f"{prefix}_1", preview)
        said = (InputMessage("user", "Add them all."),)
        queued = RunQueued("clerk", "agt_1", 1, "ses_1", said)
        self.log: list[Event] = [queued, RunStarted(1, "w1")]
        opened = self._settle(fold(self.log), [])
        self.log += [stamped.event for stamped in opened.happened]
        self.state = opened.state

    def step(self, state: State) -> tuple[State, list[Event]]:
        """Return what one step leads to, from its reply to the next call of the model."""
        step = state.step
        call = call_id(step, 0)
        message_id = str(state.open_message)
        replied = self._settle(
            state,
            [
                MessageCompleted(message_id, "", "tool_calls", SPENT),
                ToolCallRequested(
                    call,
                    "add",
                    {"a": step, "b": 1},
                    "server",
                    idempotency_key("run_1", call),
                    message_id,
                ),
            ],
        )
        assert isinstance(replied.calls[0][0], CallTool)
        ran = self._settle(replied.state, [ToolCallCompleted(call, step + 1, 3)])
        assert isinstance(ran.calls[0][0], CallModel)
        events = [stamped.event for stamped in (*replied.happened, *ran.happened)]
        for event in events:
            encode(event)
        return ran.state, events

    def go_on(self, steps: int) -> None:
        """Make so many steps."""
        for _ in range(steps):
            self.state, events = self.step(self.state)
            self.log += events

    def _settle(self, state: State, happened: Sequence[Event]) -> Settlement:
        stamped = [Stamped(event, NOW_MS) for event in happened]
        return self._settling.settle(state, stamped, NOW_MS)


def costs(rounds: int = ROUNDS, times: int = 50) -> list[Cost]:
    """Measure everything."""
    run = Run()
    first = run.state
    run.go_on(STEPS - 1)
    last, log = run.state, run.log[:EVENTS]
    stored = [(event.type, encode(event)) for event in log]
    history = tuple(
        Message("user" if index % 2 else "assistant", f"Message {index}")
        for index in range(MESSAGES)
    )
    told = replace(first, open_message=None)
    return [
        Cost("a step, the first", least(lambda: run.step(first), rounds=rounds, times=times), 100),
        Cost(
            f"a step, number {STEPS}",
            least(lambda: run.step(last), rounds=rounds, times=times),
            100,
        ),
        Cost(
            f"fold {EVENTS:,} events", least(lambda: _folded(log), rounds=rounds, times=2), 50_000
        ),
        Cost("  with their decoding", least(lambda: _decoded(stored), rounds=rounds, times=1)),
        Cost(
            f"the prompt of a session of {MESSAGES}",
            least(lambda: prompt(AGENT, Earlier(history), told), rounds=rounds, times=times),
            5_000,
        ),
    ]


def _folded(log: Sequence[Event]) -> State:
    state = State()
    for event in log:
        state = evolve(state, event)
    return state


def _decoded(stored: Sequence[tuple[str, bytes]]) -> State:
    return fold(event for kind, data in stored if (event := decode(kind, data)))


def main() -> None:
    """Measure, and print a line each."""
    for cost in costs():
        print(cost)


if __name__ == "__main__":
    main()
