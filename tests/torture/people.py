"""The people of a campaign: they answer what is asked, and send on what waits for an operator."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.torture.clients import Doors, RefusedError

LOOK_S = 0.3

Answer = Literal["approve", "deny", "happened", "not_happened"]
_ANSWERS: tuple[tuple[Answer, Answer], ...] = (
    ("approve", "approve"),
    ("approve", "approve"),
    ("approve", "deny"),
    ("deny", "approve"),
)


@dataclass(eq=False, slots=True)
class People:
    """Those who decide: each question is answered at two processes at once, and at odds at times.

    `came_of` knows what came of a call whose worker was lost.
    """

    doors: Doors
    chance: random.Random
    came_of: Callable[[str, str], Answer]
    decided: dict[str, list[str]] = field(default_factory=dict)
    retried: int = 0
    violations: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Answer what is asked, and send on what waits for an operator, until cancelled."""
        while True:
            listed = await self.doors.get("/v1/approvals?status=pending&limit=100")
            await asyncio.gather(*(self._answer(asked) for asked in listed["data"]))
            waiting = await self.doors.get("/v1/runs?status=waiting&limit=100")
            for run in waiting["data"]:
                if (run["waiting_for"] or {}).get("for") == "operator":
                    await self._retry(run["id"])
            await asyncio.sleep(LOOK_S)

    async def _answer(self, asked: dict[str, Any]) -> None:
        if asked["kind"] == "outcome":
            answers = [self.came_of(asked["run_id"], asked["call_id"])] * 2
        else:
            answers = list(self.chance.choice(_ANSWERS))
        outcomes = await asyncio.gather(*(self._decide(asked["id"], each) for each in answers))
        self.decided.setdefault(asked["id"], []).extend(outcomes)
        if answers[0] != answers[1] and outcomes.count("200") == 2:
            self.violations.append(f"approval {asked['id']}: both {answers} were accepted")

    async def _decide(self, approval_id: str, answer: str) -> str:
        body = {"decision": answer}
        if answer == "happened":
            body["result"] = "a person says that it is done"
        try:
            await self.doors.post(f"/v1/approvals/{approval_id}/decision", body)
        except RefusedError as error:
            return f"{error.status} {error.code}"
        return "200"

    async def _retry(self, run_id: str) -> None:
        try:
            await self.doors.post(f"/v1/runs/{run_id}/retry", {})
        except RefusedError as error:
            if error.code != "not_waiting_for_operator":
                raise
        else:
            self.retried += 1
