"""What one run takes of its tenant's budgets, under one claim: reserved first, settled after."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

from milepost.core.effects import CallTool
from milepost.core.events import (
    BudgetExceeded,
    BudgetWarning,
    Event,
    Failure,
    MessageAborted,
    MessageCompleted,
    SideCallAborted,
    ToolCallFailed,
)
from milepost.core.model import ModelRequest
from milepost.core.usage import Usage
from milepost.providers import direct
from milepost.providers.asked import Asked, following
from milepost.runtime.demands import Demand, ToolDemand, model_demand, priced_by, unpriced
from milepost.runtime.means import Means
from milepost.runtime.reserving import Payer, Refused, Reservation, applying
from milepost.store.amounts import Amounts

if TYPE_CHECKING:  # Only who has budgets needs the store that keeps them.
    from milepost.store.budgets import BudgetRow

EXCEEDED = "budget_exceeded"

T = TypeVar("T")

Ask = Callable[[ModelRequest], Awaitable[T]]
"""Makes a model call, with a request whose answer has no more room than was granted."""


@dataclass(slots=True)
class _Beside:
    """A call beside the conversation: how far it is, and what it took, once that is known."""

    model: str
    asked: Asked = field(default_factory=Asked)
    taken: Usage | None = None

    @property
    def usage(self) -> Usage:
        return Usage(unknown_calls=self.asked.unknown_calls) if self.taken is None else self.taken


class Spending:
    """The calls of one run, each within what all budgets that apply still give."""

    def __init__(self, payer: Payer, means: Means) -> None:
        self._payer = payer
        self._means = means
        self._warnings: list[BudgetWarning] = []
        self._beside: dict[str, _Beside] = {}
        self._has_exceeded = False

    async def message(
        self, message_id: str, request: ModelRequest, ask: Ask[list[Event]], asked: Asked
    ) -> list[Event]:
        """Return what the call comes to, or that it is not made, and what there is to warn of.

        `asked` is told meanwhile how far it is.
        """
        agent = self._payer.agent
        if agent.provider == direct.NAME:
            return await ask(request)  # Which is no model.
        models = (agent.model, *agent.fallbacks)
        with following(asked):
            told = await self._model(message_id, models, request, ask, _used, asked)
        match told:
            case Refused(event, why):
                aborted = MessageAborted(message_id, why, Failure(EXCEEDED, why))
                return [aborted, *self._exceed(event)]
            case Failure(message=why):
                return [MessageAborted(message_id, why, told)]
            case events:
                return [*events, *self.warnings()]

    async def tool(
        self, effect: CallTool, timeout_s: float, run: Callable[[], Awaitable[list[Event]]]
    ) -> list[Event]:
        """Return what the tool's call comes to, or that it is not made, as above."""
        demand = ToolDemand(round(timeout_s * 1000))
        rows = applying(await self._budgets(), self._payer, demand)
        held = await self._reserve(effect.call.id, demand, rows)
        match held:
            case None:
                return await run()
            case Refused(event, why):
                failed = ToolCallFailed(effect.call.id, Failure(EXCEEDED, why))
                return [failed, *self._exceed(event)]
            case Reservation():
                events = await self._spend(
                    held, run, lambda _: Amounts(tool_calls=1), lambda: held.granted
                )
                return [*events, *self.warnings()]

    async def beside(
        self,
        subject: str,
        model: str,
        request: ModelRequest,
        ask: Ask[T],
        used: Callable[[T], Usage],
    ) -> T | Refused | Failure:
        """Return what a call beside the conversation comes to, or why it is not made.

        It is known as `subject` within the run, `model` is a `provider/model`, and `used` reads
        what it took. What it warns of is kept, and so is what it took, until that is `told`.
        """
        call = self._beside[subject] = _Beside(model)

        async def noted(granted: ModelRequest) -> T:
            result = await ask(granted)
            call.taken = used(result)
            return result

        with following(call.asked):
            return await self._model(subject, (model,), request, noted, used, call.asked)

    def told(self, subject: str) -> None:
        """Forget what was asked beside the conversation: an event tells of it."""
        self._beside.pop(subject, None)

    def untold(self, subject: str) -> list[SideCallAborted]:
        """Return what tells of what was asked there, where no other event will: once."""
        call = self._beside.pop(subject, None)
        if call is None or call.usage == Usage():
            return []
        return [SideCallAborted(subject, call.model, call.usage)]

    async def _model(
        self,
        subject: str,
        models: Sequence[str],
        request: ModelRequest,
        ask: Ask[T],
        used: Callable[[T], Usage],
        asked: Asked,
    ) -> T | Refused | Failure:
        pricing, present = self._means.pricing, await self._budgets()
        bounds_money = self._payer.agent.limits.max_cost_usd_micros is not None
        if not (present or bounds_money):
            return await ask(request)  # To estimate what it may take would be in vain.
        demand = model_demand(request, priced_by(pricing, models))
        rows = applying(present, self._payer, demand)
        bounds_money = bounds_money or any(row.cost_nanos is not None for row in rows)
        if bounds_money and (failure := unpriced(pricing, models)):
            return failure
        held = await self._reserve(subject, demand, rows)
        match held:
            case None:
                return await ask(request)
            case Refused():
                return held
            case Reservation(granted=granted, rations=rations):
                room = demand.answer_in(granted) if rations else request.tokens_max
                bounded = replace(request, tokens_max=room)
                return await self._spend(
                    held,
                    lambda: ask(bounded),
                    lambda result: _billed(used(result), granted),
                    lambda: _billed(Usage(unknown_calls=asked.unknown_calls), granted),
                )

    def warnings(self) -> list[BudgetWarning]:
        """Return the warnings that nobody has written down yet."""
        warnings, self._warnings = self._warnings, []
        return warnings

    async def _budgets(self) -> tuple["BudgetRow", ...]:
        budgets = self._means.budgets
        return await budgets.of(self._payer.claim.tenant) if budgets else ()

    async def _reserve(
        self, subject: str, demand: Demand, rows: tuple["BudgetRow", ...]
    ) -> Reservation | Refused | None:
        """Reserve in all of these; the run may be another's by the time that it is done."""
        if not rows:
            return None
        assert self._means.budgets is not None, "only budgets have rows"
        held = await self._means.budgets.reserve(self._payer, subject, demand, rows)
        await self._means.await_lease()
        return held

    async def _spend(
        self,
        held: Reservation,
        act: Callable[[], Awaitable[T]],
        bill: Callable[[T], Amounts],
        bill_of_cut_off: Callable[[], Amounts],
    ) -> T:
        """Act, and settle: by what it came to, or by what nobody will know of it."""
        assert self._means.budgets is not None, "only budgets make reservations"
        clock = self._means.ports.clock
        billed, began_ms = None, clock()
        try:
            result = await act()
            billed = bill(result)
        finally:
            billed = bill_of_cut_off() if billed is None else billed
            billed = billed._replace(active_ms=max(0, clock() - began_ms))
            self._warnings += await self._means.budgets.settle(held, billed)
        return result

    def _exceed(self, event: BudgetExceeded) -> list[Event]:
        """Tell it once: of calls that are refused together, each would."""
        told, self._has_exceeded = self._has_exceeded, True
        return [] if told else [event]


def _billed(usage: Usage, granted: Amounts) -> Amounts:
    """Return what was billed: of each call of which nobody learned that, all that was reserved.

    One that another model answers in the end may have been cut off at several before it.
    """
    tokens = usage.input_tokens + usage.output_tokens
    known = Amounts(tokens, usage.cost_nanos, usage.model_calls)
    return reduce(Amounts.plus, repeat(granted, usage.unknown_calls), known)


def _used(events: Iterable[Event]) -> Usage:
    """Return what a message took, whether it was completed or not."""
    usage = Usage()
    for event in events:
        if isinstance(event, MessageCompleted | MessageAborted):
            usage += event.usage
    return usage
