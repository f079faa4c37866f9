"""What may be done again after a worker died in the middle of it."""

from typing import Literal

ToolEffect = Literal["read", "idempotent", "once"]
"""What a tool does to the world: nothing, what its key makes safe to repeat, or the rest."""


def may_repeat(effect: ToolEffect) -> bool:
    """Say whether a call that may have acted already can be made again without asking."""
    return effect in {"read", "idempotent"}
