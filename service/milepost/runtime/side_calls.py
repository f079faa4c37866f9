"""Models that a run asks beside its own: to judge a call, to shorten a result, to tell its past."""

from dataclasses import dataclass

from milepost.core.errors import InvalidError, ProviderError
from milepost.core.model import FellBack, ModelRequest, Provider, Reply
from milepost.core.usage import Usage
from milepost.providers.asked import Asked, current
from milepost.providers.assemble import Assembly
from milepost.providers.closing import closing
from milepost.runtime.calls import priced
from milepost.runtime.means import Means


@dataclass(frozen=True, slots=True)
class Answered:
    """A whole reply, and what it took."""

    reply: Reply
    usage: Usage


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Why there is no reply, and what was taken all the same."""

    error: Exception
    usage: Usage


async def ask(model: str, request: ModelRequest, means: Means) -> Answered | Unanswered:
    """Return what `model`, `provider/model`, replies. What goes wrong is no reply: none raises.

    Nobody watches these replies while they are written, so none of it goes live.
    """
    asked = current()
    asked.begin()
    try:
        reply = await _reply(means.providers.get(model.partition("/")[0]), request, asked)
    except InvalidError as error:
        return Unanswered(error, Usage())
    except ProviderError as error:
        asked.fail(error)
        return Unanswered(error, Usage(unknown_calls=asked.cut_off))
    except Exception as error:
        return Unanswered(error, Usage(unknown_calls=asked.unknown_calls))
    return Answered(reply, priced(reply, means.pricing, model, asked.cut_off))


async def _reply(provider: Provider, request: ModelRequest, asked: Asked) -> Reply:
    assembly = Assembly()
    async with closing(provider.stream(request)) as deltas:
        async for delta in deltas:
            if isinstance(delta, FellBack):
                asked.fall_back(delta)
            assembly.feed(delta)
    return assembly.reply()
