"""`Secret`: a parameter that is given a stored secret of the tenant's, and that no model sees."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn, get_args

from milepost.core.errors import ToolError

NOT_FOUND = "secret_not_found"

FindSecret = Callable[[str, str], Awaitable[str]]
"""Returns the value of a tenant's secret, by its name. Raises `MilepostError` where there is none.

One that is not there is a `ToolError` with the code `secret_not_found`, which a call keeps.
"""


@dataclass(frozen=True, slots=True)
class Secret:
    """Marks a parameter that gets a secret of this name: `Annotated[str, Secret("SHOP_TOKEN")]`.

    It is looked up with every call, for the tenant of the run; see `PUT /v1/secrets/{name}`.
    """

    name: str

    def __get_pydantic_core_schema__(self, _: object, __: object) -> NoReturn:
        """Refuse to be a part of what a model fills."""
        raise TypeError(
            "a Secret marks a parameter as a whole; take it in one of its own, outside of what the"
            " model fills"
        )


def secrets_in(annotation: object) -> Iterator[Secret]:
    """Yield the secrets that `annotation`, or a part of it, is marked with."""
    for mark in getattr(annotation, "__metadata__", ()):
        if isinstance(mark, Secret):
            yield mark
    for part in get_args(annotation):
        if not isinstance(part, Secret):
            yield from secrets_in(part)


def given(secrets: Mapping[str, str]) -> FindSecret:
    """Return what finds these secrets, which are everybody's: there is no store of tenants'."""

    async def find(_: str, name: str) -> str:
        if not isinstance(value := secrets.get(name), str):
            raise ToolError(
                f"there is no secret {name!r}; hand it in, as text: secrets={{{name!r}: ...}}",
                code=NOT_FOUND,
            )
        return value

    return find
