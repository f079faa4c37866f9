"""The rails of one place, one after the other."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from milepost.core.guardrails import OnError, looks_at
from milepost.core.json import Json, clean, clean_text
from milepost.guardrails.verdicts import Block, Pass, Rail, Rewrite, Subject, Verdict, Warn


@dataclass(frozen=True, slots=True)
class Post:
    """A rail at its place: `tools` are globs over the tools that it looks at; none: all.

    `demands`: it asks for something to be there, which only a whole answer owes. `form`: it judges
    what an answer looks like, and nothing that is said beside one. A rail that takes longer than
    `timeout_s` fails; None: it keeps time itself, or needs none.
    """

    rail: Rail
    tools: tuple[str, ...] = ()
    on_error: OnError | None = None
    demands: bool = False
    form: bool = False
    timeout_s: float | None = None

    def sees(self, tool: str | None) -> bool:
        """Say whether the rail looks at what concerns this tool."""
        return looks_at(self.tools, tool)


@dataclass(frozen=True, slots=True)
class Trigger:
    """A rail stepped in."""

    rail: str
    action: str
    reason: str


@dataclass(slots=True)
class Passage:
    """What became of a subject: the value that goes on, or who blocked it and why."""

    value: Json
    blocked: Trigger | None = None
    triggers: list[Trigger] = field(default_factory=list)


OnFailed = Callable[[str, BaseException], None]


async def passage(posts: Sequence[Post], subject: Subject, on_failed: OnFailed) -> Passage:
    """Take the subject past the rails, each of which sees what the one before it made of it.

    The first that blocks is the last that looks. A rail that fails blocks, unless it is to be
    passed over then; `on_failed` is told of either.
    """
    taken = Passage(subject.value)
    for post in posts:
        if not post.sees(subject.tool):
            continue
        verdict = await _verdict(post, replace(subject, value=taken.value), on_failed)
        _take(taken, post.rail.name, verdict)
        if taken.blocked:
            break
    return taken


async def _verdict(post: Post, subject: Subject, on_failed: OnFailed) -> Verdict:
    """Return what the rail says. Only a cancellation of the task that this runs in gets through."""
    try:
        async with asyncio.timeout(post.timeout_s):
            return _fitting(await post.rail.check(subject), subject)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            raise
        on_failed(post.rail.name, error)
        if (post.on_error or post.rail.on_error) == "pass":
            return Warn("it failed, and was passed over")
        return Block("it failed, so nobody knows")


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _fitting(verdict: Verdict, subject: Subject) -> Verdict:
    """Return the verdict in a form that can be stored.

    Raises `TypeError` for what is none, and for a value that cannot stand in the other's place.
    """
    match verdict:
        case Pass():
            return verdict
        case Block(reason) | Warn(reason):
            return replace(verdict, reason=clean_text(str(reason)))
        case Rewrite(given, reason):
            value = clean(given)
            if subject.place != "tool_results" and type(value) is not type(subject.value):
                kinds = f"a {type(value).__name__} for a {type(subject.value).__name__}"
                raise TypeError(f"at {subject.place} a rail may not put {kinds}")
            return Rewrite(value, clean_text(str(reason)))
        case _:
            raise TypeError(f"it answered a {type(verdict).__name__}, which is no verdict")


def _take(taken: Passage, rail: str, verdict: Verdict) -> None:
    match verdict:
        case Pass():
            return
        case Block(reason):
            taken.blocked = Trigger(rail, "blocked", reason)
            taken.triggers.append(taken.blocked)
        case Rewrite(value, reason):
            taken.value = value
            taken.triggers.append(Trigger(rail, "rewritten", reason))
        case Warn(reason):
            taken.triggers.append(Trigger(rail, "warned", reason))
