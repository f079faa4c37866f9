"""Tool calls judged by a model: whether they are what the user asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from milepost.core.effects import ScreenCall
from milepost.core.events import Failure
from milepost.core.guardrails import Coherence, looks_at
from milepost.core.messages import Message
from milepost.core.model import ModelRequest
from milepost.core.usage import Usage
from milepost.guardrails import coherence
from milepost.guardrails.passage import Trigger
from milepost.runtime import notices, side_calls
from milepost.runtime.means import Means
from milepost.runtime.reserving import Refused
from milepost.runtime.side_calls import Unanswered
from milepost.runtime.spending import Spending
from milepost.runtime.subjects import subject_of
from milepost.store.records import Claim

GUARDRAIL = "coherence"


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a call, and what it took to find out."""

    blocked: Trigger | None = None
    triggers: tuple[Trigger, ...] = ()
    usage: Usage = field(default_factory=Usage)


class CoherenceCheck:
    """Asks the model about one run's calls. Without an answer, `on_error` says what becomes."""

    def __init__(self, wanted: Coherence, claim: Claim, means: Means, spending: Spending) -> None:
        self._wanted = wanted
        self._claim = claim
        self._means = means
        self._spending = spending

    def sees(self, tool: str) -> bool:
        """Say whether calls of the tool are judged."""
        return looks_at(self._wanted.tools, tool)

    async def judge(self, effect: ScreenCall, said: Sequence[Message]) -> Judged:
        """Return whether the call serves what was said."""
        told = await self._spending.beside(
            subject_of(effect),
            self._wanted.model,
            self._request(effect, said),
            self._asked,
            lambda judged: judged.usage,
        )
        match told:
            case Refused(why=why) | Failure(message=why):
                return self._unjudged(why, Usage())
            case judged:
                return judged

    async def _asked(self, request: ModelRequest) -> Judged:
        told = await side_calls.ask(self._wanted.model, request, self._means)
        if isinstance(told, Unanswered):
            return self._failed(told.error, told.usage)
        try:
            said = coherence.answer(told.reply.text)
        except coherence.UnreadableAnswerError as error:
            return self._failed(error, told.usage)
        if said.coherent:
            return Judged(usage=told.usage)
        refusal = Trigger(GUARDRAIL, "blocked", said.reason or "nobody asked for it")
        return Judged(refusal, (refusal,), told.usage)

    def _request(self, effect: ScreenCall, said: Sequence[Message]) -> ModelRequest:
        tool = self._means.tools.get(effect.call.name)
        purpose = tool.schema.description if tool else ""
        return ModelRequest(
            tenant=self._claim.tenant,
            model=self._wanted.model.partition("/")[2],
            messages=coherence.question(said, effect.call.name, purpose, effect.arguments),
            tokens_max=coherence.TOKENS_MAX,
        )

    def _failed(self, error: Exception, usage: Usage) -> Judged:
        notices.guardrail_failed(error, self._claim.run_id, GUARDRAIL)
        return self._unjudged(f"{type(error).__name__}", usage)

    def _unjudged(self, why: str, usage: Usage) -> Judged:
        if self._wanted.on_error == "pass":
            warned = Trigger(GUARDRAIL, "warned", f"the call was not judged, and let pass: {why}")
            return Judged(None, (warned,), usage)
        refused = Trigger(GUARDRAIL, "blocked", f"the call could not be judged: {why}")
        return Judged(refused, (refused,), usage)
