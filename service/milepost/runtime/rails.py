"""An agent's guardrails over one run: what passes them, and the events that tell of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from milepost.core.agents import Agent
from milepost.core.effects import ScreenCall
from milepost.core.events import (
    Custom,
    Event,
    Failure,
    GuardrailTriggered,
    InputMessage,
    InputScreened,
    SteerReceived,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallScreened,
)
from milepost.core.guardrails import Guardrails, Place
from milepost.core.json import Json
from milepost.core.messages import Message
from milepost.core.state import State
from milepost.core.written import written
from milepost.guardrails.held_back import HeldBack
from milepost.guardrails.passage import Passage, Post, Trigger, passage
from milepost.guardrails.text_rail import TextRail
from milepost.guardrails.verdicts import Rail, Subject
from milepost.runtime import notices
from milepost.runtime.coherence import CoherenceCheck
from milepost.runtime.message_screen import UNSCREENED, MessageScreen, Words
from milepost.runtime.posts import posts
from milepost.runtime.progress_screen import HeldWriter
from milepost.store.records import Claim
from milepost.tools.streaming import Writer


class Rails:
    """The rails of one run. `coherence` judges calls by what the user asked for, where it is to."""

    def __init__(
        self,
        wanted: Guardrails,
        claim: Claim,
        agent: Agent,
        installed: Mapping[str, Rail],
        coherence: CoherenceCheck | None,
    ) -> None:
        self._wanted = wanted
        self._claim = claim
        self._agent = agent
        self._coherence = coherence
        self._input = posts(wanted.input, installed)
        self._output = posts(wanted.output, installed)
        self._arguments = posts(wanted.tool_arguments, installed)
        self._results = posts(wanted.tool_results, installed)

    async def input(self, said: Iterable[Message]) -> list[Event]:
        """Return what the rails make of the input; what only an answer owes, the user owes alone.

        What a client says in the name of others is looked at all the same.
        """
        triggers: list[Trigger] = []
        screened: list[InputMessage] = []
        has_changed = False
        for message in said:
            seen = [post for post in self._input if message.role == "user" or not post.demands]
            taken = await self._passage(seen, self._subject("input", message.content))
            triggers += taken.triggers
            if taken.blocked:
                return [*_told(triggers, "input"), InputScreened(blocked=_refusal(taken.blocked))]
            has_changed = has_changed or taken.value != message.content
            screened.append(InputMessage(message.role, str(taken.value), message.images))
        changed = tuple(screened) if has_changed else None
        return [*_told(triggers, "input"), InputScreened(input=changed)]

    async def call(self, effect: ScreenCall, said: Sequence[Message]) -> list[Event]:
        """Return what the rails make of a call, and whether it serves what was `said`."""
        call_id, tool = effect.call.id, effect.call.name
        whole = dict(effect.arguments)
        taken = await self._passage(self._arguments, self._subject("tool_arguments", whole, tool))
        events: list[Event] = [*_told(taken.triggers, "tool_arguments", call_id)]
        if taken.blocked:
            return [*events, ToolCallScreened(call_id, blocked=_refusal(taken.blocked))]
        assert isinstance(taken.value, dict), "a rail puts arguments in the place of arguments"
        changed = None
        if taken.value != whole:
            given = whole if effect.given is None else effect.given
            changed = written(taken.value, whole, given)
        if self._coherence is None or not self._coherence.sees(tool):
            return [*events, ToolCallScreened(call_id, arguments=changed)]
        judged = await self._coherence.judge(replace(effect, arguments=taken.value), said)
        events += _told(judged.triggers, "tool_arguments", call_id)
        blocked = _refusal(judged.blocked) if judged.blocked else None
        return [*events, ToolCallScreened(call_id, blocked, changed, judged.usage)]

    async def results(self, events: Iterable[Event], state: State) -> list[Event]:
        """Return the events, with what was brought to the calls of `state` having passed the rails.

        What people say to the run passes those of its input. An error is read by the model as a
        result is: it passes those that judge no form.
        """
        return [shown for event in events for shown in await self._result(event, state)]

    def progress(self, tool: str, writer: Writer) -> Writer:
        """Return the writer that shows what a tool says of its result while it runs."""
        seen = [post for post in self._results if post.sees(tool) and not post.form]
        if not seen:
            return writer
        rails = [post.rail for post in seen if isinstance(post.rail, TextRail)]
        return HeldWriter(writer, HeldBack(rails) if len(rails) == len(seen) else None)

    def message(self) -> Words:
        """Return what one message has to pass."""
        if not self._output:
            return UNSCREENED
        return MessageScreen(
            self._output,
            self._subject("output", ""),
            self._failed,
            hold=self._wanted.hold_output,
            is_json=self._agent.response_format is not None,
        )

    async def _result(self, event: Event, state: State) -> list[Event]:
        match event:
            case ToolCallCompleted(call_id, result):
                tool = state.calls[call_id].call.name
                taken = await self._brought(tool, result, self._results)
                return [*self._told_of(taken, call_id), replace(event, result=taken.value)]
            case Custom(call_id):
                return await self._announced(event, state.calls[call_id].call.name)
            case SteerReceived():
                return await self._steer(event)
            case ToolCallFailed(call_id, error):
                tool = state.calls[call_id].call.name
                seen = [post for post in self._results if not post.form]
                taken = await self._brought(tool, error.message, seen)
                shown = _reworded(error, taken.value)
                return [*self._told_of(taken, call_id), replace(event, error=shown)]
            case _:
                return [event]

    async def _steer(self, event: SteerReceived) -> list[Event]:
        """Return what is left of what somebody said to the run: it is input as well."""
        taken = await self._passage(self._input, self._subject("input", event.content))
        if taken.blocked:
            refused = _refusal(taken.blocked)
            shown = replace(event, content="", images=(), screened=True, blocked=refused)
        else:
            shown = replace(event, content=str(taken.value), screened=True)
        return [*_told(taken.triggers, "input"), shown]

    async def _announced(self, event: Custom, tool: str) -> list[Event]:
        """Return what a tool tells of as its result may be shown: not at all, where it may not."""
        seen = [post for post in self._results if not post.form]
        taken = await self._passage(seen, self._subject("tool_results", event.value, tool))
        shown = [] if taken.blocked else [replace(event, value=taken.value)]
        return [*self._told_of(taken, event.call_id), *shown]

    async def _brought(self, tool: str, value: Json, seen: Sequence[Post]) -> Passage:
        taken = await self._passage(seen, self._subject("tool_results", value, tool))
        if taken.blocked:
            taken.value = (
                f"[blocked: the result of {tool} was refused by the guardrail {taken.blocked.rail}"
                f" ({taken.blocked.reason}). It was withheld; go on without it, and say so]"
            )
        return taken

    def _told_of(self, taken: Passage, call_id: str) -> list[GuardrailTriggered]:
        return _told(taken.triggers, "tool_results", call_id)

    async def _passage(self, seen: Sequence[Post], subject: Subject) -> Passage:
        return await passage(seen, subject, self._failed)

    def _subject(self, place: Place, value: Json, tool: str | None = None) -> Subject:
        claim = self._claim
        return Subject(
            place=place,
            value=value,
            tool=tool,
            agent=self._agent.name,
            tenant=claim.tenant,
            user=claim.user,
            session_id=claim.session_id,
            run_id=claim.run_id,
        )

    def _failed(self, rail: str, error: BaseException) -> None:
        notices.guardrail_failed(error, self._claim.run_id, rail)


def _told(
    triggers: Iterable[Trigger], place: Place, call_id: str | None = None
) -> list[GuardrailTriggered]:
    return [
        GuardrailTriggered(each.rail, each.action, each.reason, call_id, place) for each in triggers
    ]


def _refusal(trigger: Trigger) -> str:
    return f"the guardrail {trigger.rail} refused it: {trigger.reason}"


def _reworded(error: Failure, message: Json) -> Failure:
    return error if message == error.message else replace(error, message=str(message))
