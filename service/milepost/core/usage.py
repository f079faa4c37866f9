"""Tokens and money, and their sums."""

from milepost.core.frozen import dataclass

NANOS_PER_MICRO = 1_000


@dataclass(frozen=True, slots=True)
class Usage:
    """What model calls took. Money is in nano-dollars, so that a small call is not rounded to 0.

    `cost_nanos` counts what has a price; `unpriced_calls` says how many calls had none.
    `unknown_calls` were begun, and nobody learned what they took: they are in no other number.
    `saved_*` is what cached replies took when they were made: shown, never billed.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    model_calls: int = 0
    cost_nanos: int = 0
    unpriced_calls: int = 0
    unknown_calls: int = 0
    saved_input_tokens: int = 0
    saved_output_tokens: int = 0
    saved_cost_nanos: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """Return both together."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.model_calls + other.model_calls,
            self.cost_nanos + other.cost_nanos,
            self.unpriced_calls + other.unpriced_calls,
            self.unknown_calls + other.unknown_calls,
            self.saved_input_tokens + other.saved_input_tokens,
            self.saved_output_tokens + other.saved_output_tokens,
            self.saved_cost_nanos + other.saved_cost_nanos,
        )

    def of_one_call(self, cost_nanos: int | None) -> "Usage":
        """Return these tokens as what one call took, at that cost; None: nobody knows its price."""
        return Usage(
            self.input_tokens,
            self.output_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
            self.reasoning_tokens,
            1,
            cost_nanos or 0,
            1 if cost_nanos is None else 0,
            self.unknown_calls,
            self.saved_input_tokens,
            self.saved_output_tokens,
            self.saved_cost_nanos,
        )


UNKNOWN = Usage(unknown_calls=1)
"""What a call took that was begun and cut off: its vendor bills it, and told nobody how much."""
