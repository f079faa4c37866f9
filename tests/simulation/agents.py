"""The agents that are simulated, what their runs are to do, and the model that has them do it."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from milepost.core.agents import Agent, Limits
from milepost.core.errors import ProviderError
from milepost.core.messages import Message
from milepost.core.model import Delta, ModelRequest
from milepost.providers.scripted import calling, saying
from milepost.runtime.definitions import encode_definition
from tests.simulation.surroundings import here

TENANT = "acme"
ASIDE = "by the way "
TOOLS = ("look", "put", "pay", "enter", "wire", "sign")
GATED = frozenset({"wire", "sign"})
APPROVAL_TTL_S = 4.0

_LIMITS = Limits(
    max_steps=8, retry_backoff_s=0.05, rate_limit_cooldown_s=0, approval_ttl_s=APPROVAL_TTL_S
)
CLERK = Agent("agt_clerk", 1, "clerk", "simulated/model", tools=TOOLS, limits=_LIMITS)
ONE_BY_ONE = Agent(
    "agt_onebyone", 1, "one-by-one", "simulated/model",
    tools=TOOLS, limits=_LIMITS, parallel_tools=False,
)  # fmt: skip
PARENT = Agent(
    "agt_parent", 1, "parent", "simulated/model", tools=(*TOOLS, "agent:clerk"), limits=_LIMITS
)
AGENTS = [(agent, encode_definition(agent)) for agent in (CLERK, ONE_BY_ONE, PARENT)]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call that the model is to ask for; `number` is its only argument."""

    tool: str
    number: int

    @property
    def arguments(self) -> Mapping[str, int | str]:
        """What the call is made with; of an agent, the plan of the run that it becomes."""
        if self.tool.startswith("agent:"):
            return {"input": f"plan {self.number}"}
        return {"number": self.number}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is to do: calls, a step each time, and then a last word."""

    number: int
    agent: Agent
    steps: tuple[tuple[Wanted, ...], ...]

    @property
    def said(self) -> str:
        """What the user says, by which the model knows the plan."""
        return f"plan {self.number}"


class Actor:
    """A model that does what the plan says that it is told of last."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Reply after a while, or fail."""
        around = here()
        plan, step, asides = _standing(request.messages, around.plans)
        if not await around.think(plan.number, step, asides):
            raise ProviderError("the vendor is overloaded", retryable=True)
        deltas = saying("Done.")
        if step < len(plan.steps):
            deltas = calling(*((each.tool, each.arguments) for each in plan.steps[step]))
        for delta in deltas:
            yield delta


def _standing(
    messages: tuple[Message, ...], plans: Mapping[int, Plan]
) -> tuple[Plan, int, tuple[str, ...]]:
    """Return the plan that was named last, how many replies came since, and what was said since."""
    replies = 0
    asides: list[str] = []
    for message in reversed(messages):
        if message.role == "user" and message.content.startswith(ASIDE):
            asides.insert(0, message.content)
        elif message.role == "user":
            return plans[int(message.content.removeprefix("plan "))], replies, tuple(asides)
        replies += message.role == "assistant"
    raise AssertionError("somebody has said something")
