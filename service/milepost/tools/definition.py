"""A tool: a function, what a model is told about it, and how it may be run."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.core.messages import ToolKind
from milepost.core.model import ToolSchema
from milepost.core.pending import is_kind
from milepost.core.repetition import OnUnknown, ToolEffect
from milepost.tools.arguments import Arguments, Fitted
from milepost.tools.check import Checked, checked
from milepost.tools.defaults import Defaults, defaults_of
from milepost.tools.docstring import documentation
from milepost.tools.home import has_home
from milepost.tools.inject import Injection, wants_secrets
from milepost.tools.inquiry import inquiry
from milepost.tools.projections import Vendor, project
from milepost.tools.ready import check_callable, closed
from milepost.tools.schema import (
    ParameterNotes,
    arguments_model,
    arguments_schema,
    result_schema,
)
from milepost.tools.signature import INVALID_TOOL, Signature, read_signature
from milepost.tools.transaction import TIMEOUT_S_MAX
from milepost.tools.written import ToolParameter, written

# What the vendors have in common.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

CACHE_TTL_S = 300.0
SCOPE_PREFIX = "scope:"
Isolation = Literal["process"]

_CHOICES: Mapping[str, tuple[object, ...]] = {
    "kind": get_args(ToolKind),
    "effect": get_args(ToolEffect),
    "on_unknown": (None, *get_args(OnUnknown)),
    "isolation": (None, *get_args(Isolation)),
}
_UNCERTAIN = frozenset({"once", "checkable"})
_SWITCHES = (
    "requires_approval", "terminal", "streaming", "screen_output", "cacheable", "no_background",
    "allow_repeat", "strict", "blocking",
)  # fmt: skip
_MAPPINGS = ("param_metadata", "inject")
_Schema = dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """A function that a model may call. Everything about it is checked here, once.

    `parameters` is a ready JSON Schema, or a list of `ToolParameter`; without them the schema is
    made from the function's signature.
    `effect` says what may be repeated after a crash: `read` and `idempotent` may, `once` never is.
    A `checkable` tool is asked through `lookup` whether a call of it has acted, and what a
    `transactional` one writes commits together with its result. `on_unknown` says what is done
    where nobody knows whether a call has acted; None: people are asked about what they approved,
    and else the model is told.
    The result of a `terminal` tool is the run's answer. `strict` mends no argument. `inject` holds
    a value, or a factory, for each hidden parameter. `param_metadata` describes parameters and
    restricts their values. `timeout_s` of None leaves the bound to whoever runs the tool.
    `streaming` marks a tool that reports while it runs; generators do so without it.
    `screen_output` has guardrails read the result before the model does. `cacheable` results are
    kept for `cache_ttl_s`. A tool with `no_background` is never started without somebody who waits,
    one with `allow_repeat` may be called again and again with the same arguments. `permissions`
    names the users, or `scope:<name>`, that may have it called: None means all, empty means nobody.
    `blocking=False` runs a synchronous function on the event loop, `isolation="process"` in a
    process of its own. One that `executes` a kind of action is called when the user of a chat has
    confirmed one, and never because a model says so.
    """

    name: str
    description: str
    function: Callable[..., Any]
    kind: ToolKind = "server"
    parameters: Mapping[str, Json] | Sequence[ToolParameter] | None = None
    effect: ToolEffect = "once"
    on_unknown: OnUnknown | None = None
    lookup: Callable[..., Any] | None = field(default=None, repr=False)
    timeout_s: float | None = None
    requires_approval: bool = False
    terminal: bool = False
    streaming: bool = False
    screen_output: bool = False
    cacheable: bool = False
    cache_ttl_s: float = CACHE_TTL_S
    no_background: bool = False
    allow_repeat: bool = False
    strict: bool = False
    permissions: Sequence[str] | None = None
    blocking: bool = True
    isolation: Isolation | None = None
    executes: str | None = None
    param_metadata: Mapping[str, ParameterNotes] = field(default_factory=dict)
    inject: Mapping[str, object] = field(default_factory=dict, repr=False)

    schema: ToolSchema = field(init=False, repr=False)
    output_schema: Mapping[str, Json] | None = field(init=False, repr=False)
    long_description: str = field(init=False, repr=False)
    signature: Signature = field(init=False, repr=False)
    injection: Injection = field(init=False, repr=False)
    is_given: bool = field(init=False, repr=False)
    inquiry: "Tool | None" = field(init=False, repr=False)
    in_thread: bool = field(init=False)
    streams: bool = field(init=False)
    _arguments: Arguments = field(init=False, repr=False)
    _projected: dict[Vendor, Mapping[str, Json]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._check()
        self._check_options()
        self._check_effect()
        words = documentation(self.function)
        signature, parameters, model = self._read_parameters(words.parameters)
        yields = _yields(self.function)
        made: dict[str, object] = {
            "permissions": None if self.permissions is None else tuple(self.permissions),
            "schema": ToolSchema(self.name, self.description, parameters),
            "output_schema": result_schema(signature.returns, joined=yields),
            "long_description": words.text or self.description,
            "signature": signature,
            "injection": Injection(self.inject, signature.secrets),
            "is_given": bool(self.inject or signature.secrets),
            "inquiry": self._inquiry(),
            "in_thread": self.blocking and not _is_async(self.function),
            "streams": self.streaming or yields,
            "_arguments": Arguments(
                self.name,
                parameters,
                model,
                strict=self.strict,
                hidden=signature.hidden,
                defaults=Defaults(defaults_of(signature) if model is None else parameters),
            ),
            "_projected": {},
        }
        if self.effect == "transactional" and not signature.context and not self.inject:
            raise self._invalid(
                "it is transactional, but never sees its transaction; take a ToolContext, and"
                " write through its tx"
            )
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def validate(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Return `arguments` as this tool takes them: coerced, in JSON form, in a new dict.

        What comes out is returned unchanged when it goes in again.
        Raises ToolValidationError with a message for the model that wrote them.
        """
        return self._arguments.validate(arguments)

    def fit(self, arguments: Mapping[str, Json]) -> Fitted:
        """Return `arguments` as `validate` does, and with the defaults of what they leave out.

        What is taken is taken unchanged when it goes in again, so that an approval may bind it.
        Raises ToolValidationError with a message for the model that wrote them.
        """
        return self._arguments.fit(arguments)

    def values(self, arguments: Mapping[str, Json]) -> dict[str, Any]:
        """Return validated `arguments` as the Python values that the function is annotated with."""
        return self._arguments.values(arguments)

    def check(self, arguments: Mapping[str, Json]) -> Checked:
        """Return all that is wrong with `arguments`, mending nothing, and them with the defaults.

        `validate` is for calls; this is for whoever wants to know before there is one.
        """
        return checked(self.schema.parameters, arguments, self._arguments.values)

    def projected(self, vendor: Vendor) -> Mapping[str, Json]:
        """Return the tool as `vendor` wants it declared, made once; not to be changed.

        Raises ToolValidationError, naming the parameter, for what the vendor cannot express.
        """
        if vendor not in self._projected:
            self._projected[vendor] = project(vendor, self.schema, self.output_schema, self.effect)
        return self._projected[vendor]

    def describe(self) -> dict[str, Json]:
        """Return what the API tells about this tool."""
        return {
            **self.schema.to_dict(),
            "long_description": self.long_description,
            "output_schema": None if self.output_schema is None else dict(self.output_schema),
            "kind": self.kind,
            "effect": self.effect,
            "requires_approval": self.requires_approval,
            "permissions": None if self.permissions is None else [*self.permissions],
            "terminal": self.terminal,
            "streaming": self.streams,
            "screen_output": self.screen_output,
            "cache_ttl_s": self.cache_ttl_s if self.cacheable else None,
            "no_background": self.no_background,
            "allow_repeat": self.allow_repeat,
            "strict": self.strict,
            "timeout_s": self.timeout_s,
            "isolation": self.isolation,
            "executes": self.executes,
        }

    def _check(self) -> None:
        # An agent's name is its owner's: whoever asks a model gives it one that vendors take.
        if self.kind != "agent" and not _NAME.fullmatch(self.name):
            raise self._invalid("its name must be a letter and up to 63 letters, digits, _ or -")
        if not self.description.strip():
            raise self._invalid("it needs a description that tells the model when to use it")
        if not callable(self.function):
            raise self._invalid(f"its function cannot be called: {self.function!r}")
        self._check_values()

    def _check_values(self) -> None:
        for option, choices in _CHOICES.items():
            if (value := getattr(self, option)) not in choices:
                known = ", ".join(repr(choice) for choice in choices)
                raise self._invalid(f"its {option} is {value!r}; it must be one of {known}")
        for option in _SWITCHES:
            if not isinstance(value := getattr(self, option), bool):
                raise self._invalid(f"its {option} is {value!r}; it must be True or False")
        for option in _MAPPINGS:
            if not isinstance(value := getattr(self, option), Mapping):
                raise self._invalid(f"its {option} is {value!r}; it must be a dict by parameter")
        if self.timeout_s is not None:
            self._check_seconds("timeout_s", self.timeout_s)
        self._check_seconds("cache_ttl_s", self.cache_ttl_s)

    def _check_seconds(self, option: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._invalid(f"its {option} is {value!r}; it must be a number of seconds")
        if not 0 < value < float("inf"):
            raise self._invalid(f"its {option} is {value}; it must be more than 0")

    def _check_options(self) -> None:
        """Refuse what nobody could be let call, and options of which one makes the other void."""
        if complaint := _misnamed(self.permissions):
            raise self._invalid(complaint)
        if self.executes is not None and not is_kind(self.executes):
            raise self._invalid(f"it executes {self.executes!r}, which is no kind of an action")
        if self.cacheable and self.effect not in {"read", "idempotent"}:
            raise self._invalid(
                "a result from the cache would stand for something that was not done; "
                'declare effect="read" or "idempotent", or drop cacheable'
            )
        if self.cache_ttl_s != CACHE_TTL_S and not self.cacheable:
            raise self._invalid("it has a cache_ttl_s, but no cache; say cacheable=True")
        if not self.blocking and (_is_async(self.function) or self.isolation):
            raise self._invalid(
                "blocking=False is for a synchronous function that runs on the event loop; drop it"
            )
        if self.isolation and self.inject:
            raise self._invalid(
                "a process of its own gets JSON alone, so that nothing can be injected; "
                "make what it needs inside the function, or drop isolation"
            )
        for name, value in self.inject.items():
            if callable(value) and wants_secrets(value):
                raise self._invalid(
                    f"what makes {name!r} is given no secret; let the function take it, and make"
                    f" {name!r} there"
                )
        if self.isolation and not has_home(self.function):
            raise self._invalid(
                "a process of its own must find its function: define it at the top of a module, "
                "or drop isolation"
            )

    def _check_effect(self) -> None:
        """Refuse an effect that lacks what it takes, and what no crash would ever ask for."""
        if self.effect == "checkable" and self.lookup is None:
            raise self._invalid(
                "it is checkable, but has no lookup; say lookup=<a function that takes the key>,"
                ' or effect="once"'
            )
        if self.lookup is not None and self.effect != "checkable":
            raise self._invalid(
                f"its effect is {self.effect!r}, and only of a checkable tool is anything looked"
                ' up; say effect="checkable", or drop lookup'
            )
        if self.on_unknown is not None and self.effect not in _UNCERTAIN:
            raise self._invalid(
                f"its effect is {self.effect!r}, so that it is simply called again; drop on_unknown"
            )
        if self.effect == "transactional" and (complaint := self._bars_a_transaction()):
            raise self._invalid(f"it is transactional, but {complaint}")
        if self.effect in {"checkable", "transactional"} and self.kind != "server":
            raise self._invalid(
                f"it is {self.effect}, which only a function that runs here can be; its kind is"
                f" {self.kind!r}"
            )

    def _bars_a_transaction(self) -> str | None:
        """Return what keeps the tool from having a part in the run's transaction."""
        if self.isolation:
            return "a process of its own has no part in the run's transaction; drop isolation"
        if not self.blocking:
            return "on the event loop nothing may wait for the database; drop blocking=False"
        if self.timeout_s is not None and self.timeout_s > TIMEOUT_S_MAX:
            return (
                f"its timeout_s is {self.timeout_s:g}, and others wait while it writes: say"
                f" {TIMEOUT_S_MAX:g} or less, and do slow work in another tool"
            )
        return None

    def _inquiry(self) -> "Tool | None":
        """Return the tool that asks whether a call of this one has acted."""
        if self.lookup is None:
            return None
        return Tool(
            name=self.name,
            description=f"Look up what came of a call of {self.name}.",
            effect="read",
            timeout_s=self.timeout_s,
            **inquiry(self.lookup, self.name, self.inject),
        )

    def _read_parameters(self, documented: Mapping[str, str]) -> tuple[Signature, _Schema, Any]:
        """Return who fills what, what the model is told of its part, and what makes its values."""
        signature, notes = self._read_signature(), self.param_metadata
        if self.parameters is not None and notes:
            raise self._invalid("param_metadata belongs into the parameters that it was given")
        if isinstance(self.parameters, Mapping):
            parameters = closed(self.parameters, self.name)
            check_callable(parameters, signature, self.name)
            return signature, parameters, None
        if self.parameters is not None:
            signature, notes = written(self.parameters, signature, self.name)
        model, schema = arguments_model(signature, self.name)
        return signature, arguments_schema(schema, notes, documented, self.name), model

    def _read_signature(self) -> Signature:
        inject = frozenset(self.inject)
        if self.parameters is None or _tells_parameters(self.function):
            return read_signature(self.function, self.name, inject)
        nobody: frozenset[str] = frozenset()
        empty = inspect.Signature.empty
        return Signature((), inject, nobody, {}, empty, takes_more=True, hidden=inject)

    def _invalid(self, issue: str) -> ToolValidationError:
        return ToolValidationError(f"tool {self.name!r}: {issue}", code=INVALID_TOOL)


def _misnamed(permissions: object) -> str | None:
    """Return what is wrong with `permissions`, None if nothing is."""
    if permissions is None:
        return None
    if isinstance(permissions, str) or not isinstance(permissions, Iterable):
        return f"its permissions are {permissions!r}; they must be a list of users and scope:<name>"
    for entry in permissions:
        words = isinstance(entry, str) and entry == entry.strip()
        if not words or entry in {"", SCOPE_PREFIX}:
            return f"its permissions name {entry!r}; name a user, scope:<name>, or * for everybody"
    return None


def _tells_parameters(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function)
    except (TypeError, ValueError):
        return False
    return True


def _is_async(function: Callable[..., Any]) -> bool:
    return any(
        inspect.iscoroutinefunction(form) or inspect.isasyncgenfunction(form)
        for form in _forms(function)
    )


def _yields(function: Callable[..., Any]) -> bool:
    return any(
        inspect.isgeneratorfunction(form) or inspect.isasyncgenfunction(form)
        for form in _forms(function)
    )


def _forms(function: Callable[..., Any]) -> tuple[object, object]:
    """Return `function` and, for an object that is called like one, the method that answers."""
    return function, type(function).__call__
