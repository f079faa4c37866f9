"""Rails as an agent declares them, put at their places."""

from collections.abc import Iterator, Mapping, Sequence

from milepost.core.guardrails import (
    InjectionRail,
    JsonSchemaRail,
    LengthRail,
    OnError,
    PiiRail,
    PythonRail,
    RailSpec,
    RegexRail,
    TopicsRail,
)
from milepost.core.json import Json
from milepost.guardrails.injection import Injection
from milepost.guardrails.json_schema import JsonSchema, Misfit
from milepost.guardrails.length import TooLong, TooShort
from milepost.guardrails.passage import Post
from milepost.guardrails.pii import Pii
from milepost.guardrails.python_rails import TIMEOUT_S, FunctionRail
from milepost.guardrails.regex import Denied, Regex, Required
from milepost.guardrails.text_rail import TextRail
from milepost.guardrails.topics import Topics
from milepost.guardrails.verdicts import Rail, Subject, Verdict
from milepost.tools.coerce import SchemaCompiler
from milepost.tools.misfit import Misfit as Unfit
from milepost.tools.misfit import dotted


def posts(declared: Sequence[RailSpec], installed: Mapping[str, Rail]) -> list[Post]:
    """Return the rails in their order; `installed` are those in Python, by name."""
    return [post for each in declared for post in _posts(each, installed)]


def _posts(declared: RailSpec, installed: Mapping[str, Rail]) -> Iterator[Post]:
    tools = declared.tools
    match declared:
        case PiiRail(action=action, kinds=kinds):
            yield Post(TextRail("pii", Pii(kinds), action), tools)
        case InjectionRail(action=action, decode=decode):
            yield Post(TextRail("injection", Injection(decode=decode), action), tools)
        case LengthRail():
            yield from _lengths(declared)
        case RegexRail():
            yield _regex(declared)
        case TopicsRail(words=words, action=action, replacement=replacement):
            yield Post(TextRail("topics", Topics(words, replacement), action), tools)
        case JsonSchemaRail(schema=schema, action=action):
            yield Post(JsonSchema(_misfit(schema), action), tools, demands=True, form=True)
        case PythonRail(name=name, on_error=on_error):
            rail = installed.get(name) or _Missing(name)
            yield Post(rail, tools, on_error, timeout_s=_timeout_s(rail))


def _timeout_s(rail: Rail) -> float | None:
    """Return how long an object of somebody's own may take, which keeps no time itself."""
    return None if isinstance(rail, FunctionRail) else getattr(rail, "timeout_s", TIMEOUT_S)


def _lengths(declared: LengthRail) -> Iterator[Post]:
    longest = (declared.max_chars, declared.max_words, declared.max_tokens)
    if any(bound is not None for bound in longest):
        rail = TextRail("length", TooLong(*longest), declared.action)
        yield Post(rail, declared.tools, form=True)
    shortest = (declared.min_chars, declared.min_words)
    if any(bound is not None for bound in shortest):
        rail = TextRail("length", TooShort(*shortest), declared.action)
        yield Post(rail, declared.tools, demands=True, form=True)


def _regex(declared: RegexRail) -> Post:
    regex = Regex(declared.pattern, ignore_case=declared.ignore_case)
    if declared.mode == "require":
        rail = TextRail("regex", Required(regex), declared.action)
        return Post(rail, declared.tools, demands=True, form=True)
    return Post(
        TextRail("regex", Denied(regex, declared.replacement), declared.action), declared.tools
    )


def _misfit(schema: Mapping[str, Json]) -> Misfit:
    fit = SchemaCompiler(schema, strict=True).compile(dict(schema))

    def misfit(value: Json) -> str | None:
        try:
            fit(value)
        except Unfit as unfit:
            return f"{dotted(unfit.path) or 'it'} {unfit.issue}"
        except RecursionError:
            return "it is nested too deeply"
        return None

    return misfit


class _Missing:
    """A rail that the agent names, and this worker has not: it fails, whatever it looks at."""

    on_error: OnError = "block"

    def __init__(self, name: str) -> None:
        self.name = name

    async def check(self, subject: Subject) -> Verdict:
        raise LookupError(
            f"guardrail {self.name!r} is not loaded in this worker, at {subject.place}"
        )
