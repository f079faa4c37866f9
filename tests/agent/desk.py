"""A desk at which a model wants payments made, and what was paid in the end."""

from typing import Any

from milepost import Agent, AgentResult, tool
from milepost.core.events import Event
from milepost.core.json import Json
from milepost.providers.scripted import Script, Scripted, calling, saying
from tests.agent.making import AT_ONCE, MODEL

SOON_S = 0.05
PLAIN: dict[str, Json] = {"to": "ann", "amount": 5}


class Desk:
    """An agent whose model asks for these payments, one step after the other."""

    def __init__(self, *payments: dict[str, Json]) -> None:
        asked = [calling(("pay", dict(each))) for each in payments or (PLAIN,)]
        self.script: list[Script] = [*asked, saying("Done.")]
        self.paid: list[tuple[str, int]] = []
        self.model = Scripted(self.script)

        @tool
        async def pay(to: str, amount: int, note: dict[str, Any] | None = None) -> str:
            """Pay."""
            del note
            self.paid.append((to, amount))
            return f"paid {amount} to {to}"

        self.pay = pay

    def agent(self, **fields: Any) -> Agent:
        """Return the agent: every payment needs a yes, unless it is said otherwise."""
        known = {
            "providers": {"test": self.model},
            "limits": AT_ONCE,
            "tools": [self.pay],
            "require_approval": ["pay"],
        }
        return Agent(MODEL, **{**known, **fields})

    def run(self, **fields: Any) -> AgentResult:
        """Run it."""
        return self.agent(**fields).run("Pay.")

    @property
    def told(self) -> list[str]:
        """What the model was told of each of its calls."""
        return [each.content for each in self.model.requests[-1].messages if each.role == "tool"]


def approvals_in(result: AgentResult) -> list[Event]:
    """Return what the run's log says of questions to people."""
    return [event for event in result.record.events if event.type.startswith("approval.")]
