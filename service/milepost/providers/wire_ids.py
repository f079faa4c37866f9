"""The ids of tool calls as a vendor sees them: each call's its own, and its result's the same."""

from collections.abc import Callable

from milepost.core.messages import ToolCall


class WireIds:
    """Gives every call of a conversation an id of its own, and its result the same.

    Vendors insist on their own ids where they gave some, but small models repeat theirs, and ours
    are unique in a run only, while a conversation may span several. The same conversation gets
    the same ids each time, and a longer one begins with those of a shorter: vendors cache prefixes.

    `spelt` makes an id one that the vendor takes, where it does not take all.
    """

    def __init__(self, spelt: Callable[[str], str] = str) -> None:
        self._spelt = spelt
        self._used: set[str] = set()
        self._answered_by: dict[str, str] = {}

    def of_call(self, call: ToolCall) -> str:
        """Return the id of a call, which is one more in the conversation."""
        wire_id = self._unused(call)
        self._used.add(wire_id)
        self._answered_by[call.id] = wire_id
        return wire_id

    def of_result(self, call_id: str) -> str:
        """A result follows its call, so the latest call of that id is the one it answers."""
        return self._answered_by.get(call_id, call_id)

    def _unused(self, call: ToolCall) -> str:
        for wanted in (call.provider_id, call.id):
            if wanted and (wire_id := self._spelt(wanted)) not in self._used:
                return wire_id
        # Each used id rules out one ordinal at most.
        ordinals = range(2, len(self._used) + 3)
        base = self._spelt(call.id)
        return next(wire_id for n in ordinals if (wire_id := f"{base}_{n}") not in self._used)
