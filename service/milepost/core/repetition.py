"""What may be done again after a worker died in the middle of it."""

from typing import Literal

ToolEffect = Literal["read", "idempotent", "checkable", "transactional", "once"]
"""What a tool does to the world: nothing, what its key makes safe to repeat, what can be looked up
by its key, what commits together with its result, or the rest."""

OnUnknown = Literal["ask", "tell_model", "fail"]
"""What is done about a call of which nobody knows whether it acted."""


def may_repeat(effect: ToolEffect) -> bool:
    """Say whether a call that was begun, and brought nothing, can be made again without asking.

    What a transaction was to commit with its result did not happen where there is no result.
    """
    return effect in {"read", "idempotent", "transactional"}
