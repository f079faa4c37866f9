"""What falls out of a run's sight, told by a model before the agent's own model is asked."""

from collections.abc import Sequence

from milepost.core.effects import SummarizeHistory
from milepost.core.errors import InvalidError, ProviderError
from milepost.core.events import Failure, MemorySummarized, MemorySummarizing, MemoryTrimmed
from milepost.core.messages import Message
from milepost.core.model import ModelRequest
from milepost.core.usage import Usage
from milepost.memory.summary import TOKENS_MAX, asking, summary_in
from milepost.runtime import notices, side_calls
from milepost.runtime.means import Means
from milepost.runtime.reserving import Refused
from milepost.runtime.side_calls import Unanswered
from milepost.runtime.spending import Spending
from milepost.runtime.subjects import subject_of
from milepost.store.records import Claim

Trimming = MemorySummarized | MemoryTrimmed


async def summarized(
    effect: SummarizeHistory,
    messages: Sequence[Message],
    claim: Claim,
    means: Means,
    spending: Spending,
) -> Trimming:
    """Return what is told of the messages. What fails is an event: they fall out of sight anyway.

    Only a lost lease is raised.
    """
    opening = effect.opening
    request = ModelRequest(
        tenant=claim.tenant,
        model=opening.model.partition("/")[2],
        messages=asking(messages),
        tokens_max=TOKENS_MAX,
    )
    told = await spending.beside(
        subject_of(effect),
        opening.model,
        request,
        lambda granted: _told(opening, granted, means),
        lambda event: event.usage,
    )
    match told:
        case Refused(why=why):
            told = _untold(opening, Failure("budget_exceeded", why), Usage())
        case Failure():
            told = _untold(opening, told, Usage())
        case _:
            pass
    if isinstance(told, MemoryTrimmed) and told.error:
        notices.history_untold(claim.run_id, opening.model, told.error.message)
    return told


async def _told(opening: MemorySummarizing, request: ModelRequest, means: Means) -> Trimming:
    told = await side_calls.ask(opening.model, request, means)
    if isinstance(told, Unanswered):
        return _untold(opening, _failure(told.error), told.usage)
    content, usage = summary_in(told.reply.text), told.usage
    if not content:
        return _untold(opening, Failure("provider_error", "the model said nothing"), usage)
    return MemorySummarized(
        opening.id, opening.first, opening.last, opening.messages, opening.model, content, usage
    )


def _failure(error: Exception) -> Failure:
    if isinstance(error, InvalidError | ProviderError):
        return Failure(error.code, str(error))
    return Failure("provider_error", type(error).__name__)


def _untold(opening: MemorySummarizing, why: Failure, usage: Usage) -> MemoryTrimmed:
    return MemoryTrimmed(
        opening.id, opening.first, opening.last, opening.messages, opening.model, why, usage
    )
