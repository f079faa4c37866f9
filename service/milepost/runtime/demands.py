"""What calls may take of budgets, as far as that can be told before they are made."""

from collections.abc import Callable, Sequence
from typing import Protocol

from milepost.core.events import Failure
from milepost.core.frozen import dataclass
from milepost.core.model import ModelRequest
from milepost.core.usage import Usage
from milepost.providers.pricing import Pricing
from milepost.providers.tokens import estimate_request
from milepost.store.amounts import Amounts, Bounds

ANSWER_TOKENS = 4_096
ANSWER_TOKENS_MIN = 64
MODEL_CALL_MS = 30_000

Price = Callable[[int, int], int]
"""Returns what so many tokens in, and so many out, cost in nano-dollars."""


class Demand(Protocol):
    """What a call wants."""

    def concerns(self, bounds: Bounds) -> bool:
        """Say whether a budget with these bounds has anything to say about the call."""

    def fit(self, left: Bounds) -> Amounts:
        """Return what the call takes where so much is unspent; more than that if it must."""


@dataclass(frozen=True, slots=True)
class ToolDemand:
    """A tool call: itself, and the time that it may take."""

    timeout_ms: int

    def concerns(self, bounds: Bounds) -> bool:
        """Say whether calls of tools, or time, are bounded."""
        return bounds.tool_calls is not None or bounds.active_ms is not None

    def fit(self, left: Bounds) -> Amounts:
        """Take the call, and no more time than is left."""
        return Amounts(tool_calls=1, active_ms=_within(self.timeout_ms, left.active_ms))


@dataclass(frozen=True, slots=True)
class ModelDemand:
    """A model call: its prompt, which is what it is, and an answer, which can be kept short."""

    prompt_tokens: int
    answer_tokens: int
    price: Price

    def concerns(self, bounds: Bounds) -> bool:
        """Say whether anything but calls of tools is bounded."""
        return bounds._replace(tool_calls=None) != Bounds()

    def fit(self, left: Bounds) -> Amounts:
        """Take the call with the longest answer that there is room for, and a minimum of one."""
        answer = self.answer_tokens
        if left.tokens is not None:
            answer = min(answer, left.tokens - self.prompt_tokens)
        if left.cost_nanos is not None:
            answer = min(answer, self._affordable(left.cost_nanos))
        answer = max(answer, min(self.answer_tokens, ANSWER_TOKENS_MIN))
        return Amounts(
            tokens=self.prompt_tokens + answer,
            cost_nanos=self.price(self.prompt_tokens, answer),
            model_calls=1,
            active_ms=_within(MODEL_CALL_MS, left.active_ms),
        )

    def answer_in(self, granted: Amounts) -> int:
        """Return how many tokens the answer may have."""
        return granted.tokens - self.prompt_tokens

    def _affordable(self, nanos: int) -> int:
        """Return how many tokens of answer so much pays for: a token costs what the next does."""
        prompt = self.price(self.prompt_tokens, 0)
        answer = self.price(self.prompt_tokens, self.answer_tokens) - prompt
        if answer <= 0:
            return self.answer_tokens
        return (nanos - prompt) * self.answer_tokens // answer


def model_demand(request: ModelRequest, price: Price) -> ModelDemand:
    """Return what the request may take.

    An answer without a bound gets one of `ANSWER_TOKENS`, and what it may think with beside that.
    """
    answer = request.tokens_max or ANSWER_TOKENS + (request.thinking_tokens or 0)
    return ModelDemand(estimate_request(request), answer, price)


def priced_by(pricing: Pricing, models: Sequence[str]) -> Price:
    """Return the price of whichever of the models, `provider/model`, is dearest.

    It is what they may come to at most: a prompt that is written into a cache may cost more than
    one that is only read, and so may an answer that is all thought. A model without a known price
    is taken for free: `unpriced` tells it.
    """

    def price(tokens_in: int, tokens_out: int) -> int:
        kinds = [
            Usage(
                input_tokens=tokens_in,
                output_tokens=tokens_out,
                cache_write_tokens=written,
                reasoning_tokens=thought,
            )
            for written in (0, tokens_in)
            for thought in (0, tokens_out)
        ]
        return max(_cost_nanos(pricing, model, usage) or 0 for model in models for usage in kinds)

    return price


def unpriced(pricing: Pricing, models: Sequence[str]) -> Failure | None:
    """Return why no bound in money can be kept: nobody knows what one of the models costs."""
    for model in models:
        if _cost_nanos(pricing, model, Usage()) is None:
            return Failure(
                "unpriced_model",
                f"the cost is bounded, and nobody knows what {model} costs; name its price in a"
                " prices file",
            )
    return None


def _cost_nanos(pricing: Pricing, model: str, usage: Usage) -> int | None:
    provider, _, name = model.partition("/")
    return pricing.cost_nanos(provider, name, usage)


def _within(wanted_ms: int, left_ms: int | None) -> int:
    """Return as much of the time as is left, but some: a call takes time, however little."""
    return wanted_ms if left_ms is None else max(1, min(wanted_ms, left_ms))
