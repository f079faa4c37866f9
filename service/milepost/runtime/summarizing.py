"""What falls out of a run's sight, told by a model before the agent's own model is asked."""

from collections.abc import Sequence

from milepost.core.errors import InvalidError, ProviderError
from milepost.core.events import Failure, MemorySummarized, MemorySummarizing, MemoryTrimmed
from milepost.core.messages import Message
from milepost.core.model import ModelRequest, Reply
from milepost.core.usage import UNKNOWN, Usage
from milepost.memory.summary import TOKENS_MAX, asking, summary_in
from milepost.providers.assemble import Assembly
from milepost.providers.closing import closing
from milepost.runtime import notices
from milepost.runtime.calls import priced, usage_of_failure
from milepost.runtime.means import Means
from milepost.runtime.reserving import Refused
from milepost.runtime.spending import Spending
from milepost.store.records import Claim

Trimming = MemorySummarized | MemoryTrimmed


async def summarized(
    opening: MemorySummarizing,
    messages: Sequence[Message],
    claim: Claim,
    means: Means,
    spending: Spending,
) -> Trimming:
    """Return what is told of the messages. What fails is an event: they fall out of sight anyway.

    Only a lost lease is raised.
    """
    request = ModelRequest(
        tenant=claim.tenant,
        model=opening.model.partition("/")[2],
        messages=asking(messages),
        tokens_max=TOKENS_MAX,
    )
    told = await spending.model(
        f"{opening.id}/summary",
        (opening.model,),
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
    try:
        reply = await _ask(opening.model, request, means)
    except InvalidError as error:
        return _untold(opening, Failure(error.code, str(error)), Usage())
    except ProviderError as error:
        usage = usage_of_failure(error, spoken=False)
        return _untold(opening, Failure(error.code, str(error)), usage)
    except Exception as error:
        return _untold(opening, Failure("provider_error", type(error).__name__), UNKNOWN)
    usage = priced(reply, means.pricing, opening.model)
    content = summary_in(reply.text)
    if not content:
        return _untold(opening, Failure("provider_error", "the model said nothing"), usage)
    return MemorySummarized(
        opening.id, opening.first, opening.last, opening.messages, opening.model, content, usage
    )


async def _ask(model: str, request: ModelRequest, means: Means) -> Reply:
    provider = means.providers.get(model.partition("/")[0])
    assembly = Assembly()
    async with closing(provider.stream(request)) as deltas:
        async for delta in deltas:
            assembly.feed(delta)
    return assembly.reply()


def _untold(opening: MemorySummarizing, why: Failure, usage: Usage) -> MemoryTrimmed:
    return MemoryTrimmed(
        opening.id, opening.first, opening.last, opening.messages, opening.model, why, usage
    )
