"""What a rail is asked, and what it may answer."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from milepost.core.guardrails import OnError, Place
from milepost.core.json import Json
from milepost.core.messages import told


@dataclass(frozen=True, slots=True)
class Subject:
    """What a rail looks at, and where: a text, a call's arguments, or what a tool brought.

    `tool` is there at a tool's two ends. The rest says in which run it is, and for whom.
    """

    place: Place
    value: Json
    tool: str | None = None
    agent: str = ""
    tenant: str = ""
    user: str | None = None
    session_id: str = ""
    run_id: str = ""

    @property
    def text(self) -> str:
        """The value as a model reads it."""
        return told(self.value)


@dataclass(frozen=True, slots=True)
class Pass:
    """Nothing is wrong with it."""


@dataclass(frozen=True, slots=True)
class Block:
    """It goes no further. `reason` must not repeat it: it is shown and kept."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """`value` goes on in its place."""

    value: Json
    reason: str


@dataclass(frozen=True, slots=True)
class Warn:
    """It goes on as it is, and the log says so."""

    reason: str


Verdict = Pass | Block | Rewrite | Warn
PASS = Pass()


@runtime_checkable
class Rail(Protocol):
    """Looks at what passes one place. `on_error` says what becomes of it where the rail fails."""

    @property
    def name(self) -> str: ...

    @property
    def on_error(self) -> OnError: ...

    async def check(self, subject: Subject) -> Verdict: ...
