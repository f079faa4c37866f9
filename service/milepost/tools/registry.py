"""The tools of one installation, by name."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar, Unpack, overload

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.core.messages import ToolKind
from milepost.core.model import ToolSchema
from milepost.tools.decorator import ToolOptions, tool_of
from milepost.tools.decorator import tool as as_tool
from milepost.tools.definition import Tool
from milepost.tools.projections import Vendor
from milepost.tools.signature import INVALID_TOOL

F = TypeVar("F", bound=Callable[..., Any])


class Registry:
    """Tools by name, in the order in which they came. A name is taken once."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self.add(*tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order in which the tools came."""
        return tuple(self._tools)

    def get(self, name: str) -> Tool | None:
        """Return the tool called `name`, None where there is none."""
        return self._tools.get(name)

    def kind(self, name: str) -> ToolKind:
        """Return who runs the tool called `name`; what nobody knows is ours to refuse."""
        tool = self._tools.get(name)
        return tool.kind if tool else "server"

    def add(self, *tools: Tool) -> None:
        """Add `tools`; ToolValidationError for a name that is taken, and then none is added."""
        added: dict[str, Tool] = {}
        kinds = {tool.executes for tool in self if tool.executes}
        for tool in tools:
            if tool.executes in kinds:
                raise _second_executor(tool)
            if tool.executes:
                kinds.add(tool.executes)
            if tool.name in self._tools or tool.name in added:
                raise ToolValidationError(
                    f"there is a tool {tool.name!r} already; rename one: @tool(name=...)",
                    code=INVALID_TOOL,
                )
            added[tool.name] = _bound(tool)
        self._tools.update(added)

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    def tool(
        self, function: F | None = None, /, **options: Unpack[ToolOptions]
    ) -> F | Callable[[F], F]:
        """Make a function a tool as `@tool` does, and add it: `@registry.tool(...)`."""

        def decorate(function: F) -> F:
            self.add(tool_of(as_tool(**options)(function)))
            return function

        return decorate if function is None else decorate(function)

    def replace(self, tool: Tool) -> None:
        """Put `tool` in the place of the one that has its name, or add it."""
        others = {each.executes for each in self if each.executes and each.name != tool.name}
        if tool.executes in others:
            raise _second_executor(tool)
        self._tools[tool.name] = _bound(tool)

    def merge(self, other: Iterable[Tool]) -> Self:
        """Add all of `other`'s tools, or none of them, and return this registry."""
        self.add(*other)
        return self

    def executor(self, kind: str) -> Tool | None:
        """Return what executes confirmed actions of this kind, None where nothing does."""
        return next((tool for tool in self if tool.executes == kind), None)

    def repeat_allowed(self) -> frozenset[str]:
        """Return the tools that may be called again and again with the same arguments."""
        return frozenset(tool.name for tool in self if tool.allow_repeat)

    def schemas(self, names: Iterable[str]) -> tuple[ToolSchema, ...]:
        """Return the schemas of `names`, made once per tool; an agent may name tools gone since."""
        return tuple(tool.schema for tool in self._offered(names))

    def projected(self, names: Iterable[str], vendor: Vendor) -> list[Mapping[str, Json]]:
        """Return `names` as `vendor` wants them declared, made once per tool."""
        return [tool.projected(vendor) for tool in self._offered(names)]

    def _offered(self, names: Iterable[str]) -> Iterator[Tool]:
        """Yield those that models may know of: people alone set executors off."""
        found = (self._tools.get(name) for name in names)
        return (tool for tool in found if tool is not None and tool.executes is None)


def _second_executor(tool: Tool) -> ToolValidationError:
    return ToolValidationError(
        f"there is an executor of {tool.executes!r} already; of each kind there is one",
        code=INVALID_TOOL,
    )


def _bound(tool: Tool) -> Tool:
    if tool.signature.is_method:
        raise ToolValidationError(
            f"tool {tool.name!r} is a method and lacks its instance; add tool_of(instance.method)",
            code=INVALID_TOOL,
        )
    return tool
