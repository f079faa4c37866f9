"""What clients want of the service: runs of many kinds, each drawn from its own number."""

import random
from dataclasses import dataclass
from typing import Literal

import orjson

from milepost.providers.wire_names import taken_name

SESSIONS = 12
WORDS = ("ein", "Wort", "größer", "als", "das", "andere", "日本語", "🛤️", "e\u0301te", "plain")

AGENT, PARENT = "tortured", "torturing"

Kind = Literal["words", "once", "idempotent", "read", "both", "gated", "block", "child"]
_WEIGHTS: dict[Kind, int] = {
    "words": 108, "once": 60, "idempotent": 36, "read": 18, "both": 42, "gated": 30, "block": 2,
    "child": 30,
}  # fmt: skip
_TOOLS: dict[Kind, tuple[str, ...]] = {
    "words": (),
    "once": ("charge",),
    "idempotent": ("reserve",),
    "read": ("look_up",),
    "both": ("charge", "reserve"),
    "gated": ("refund",),
    "block": ("block",),
    "child": (f"agent:{AGENT}",),
}
_OF_CHILDREN: tuple[Kind, ...] = ("words", "once", "idempotent", "gated")


@dataclass(frozen=True, slots=True)
class Errand:
    """One run that a client wants, and how it behaves meanwhile.

    `session` is the number of a conversation that others take part in; `twice` posts it at two
    processes at the same time; `cancel_s` asks for its end after so long.
    """

    number: int
    kind: Kind
    key: str
    said: str
    session: int | None
    twice: bool
    cancel_s: float | None
    delay_s: float | None
    deadline_s: float | None

    @property
    def agent(self) -> str:
        """Who is to do it."""
        return PARENT if self.kind == "child" else AGENT


def errand(seed: int, number: int, *, block_s: float) -> Errand:
    """Return the errand of this number. `block_s` is how long a blocking tool blocks."""
    chance = random.Random(f"{seed} errand {number}")
    [kind] = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    return Errand(
        number=number,
        kind=kind,
        key=f"torture-{seed}-{number}",
        said=script(kind, chance, block_s=block_s),
        session=chance.randrange(SESSIONS) if chance.random() < 0.25 else None,
        twice=chance.random() < 0.15,
        cancel_s=chance.uniform(0.0, 1.5) if chance.random() < 0.05 else None,
        delay_s=chance.uniform(0.1, 2.0) if chance.random() < 0.03 else None,
        deadline_s=chance.uniform(0.5, 3.0) if chance.random() < 0.02 else None,
    )


def script(kind: Kind, chance: random.Random, *, block_s: float) -> str:
    """Return what the model is told to do, as `tests.stubs.directed_model` reads it."""
    lines = [f"slowly {chance.randrange(5, 40)}"]
    for tool in _TOOLS[kind]:
        if tool == "block":
            arguments: dict[str, int | str] = {"block_ms": round(block_s * 1000)}
        elif kind == "child":
            arguments = {"input": script(chance.choice(_OF_CHILDREN), chance, block_s=block_s)}
        else:
            arguments = {
                "before_ms": chance.randrange(0, 200), "after_ms": chance.randrange(0, 200),
            }  # fmt: skip
        lines.append(f"call {taken_name(tool)} {orjson.dumps(arguments).decode()}")
    lines.append(" ".join(chance.choices(WORDS, k=chance.randrange(6, 24))))
    return "\n".join(lines)
