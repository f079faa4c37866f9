"""Prices of one's own, from a file: `["provider/model"]` tables in TOML."""

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from milepost.core.errors import ConfigurationError
from milepost.providers.tariff import Tariff, plain_tariff

DOLLARS_MAX = 1_000_000

Dollars = Annotated[Decimal, Field(ge=0, le=DOLLARS_MAX)]


class _Price(BaseModel):
    """Dollars for a million tokens; cached ones cost what the others do unless it is said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None


def read_prices(path: Path, *, named_by: str = "--prices") -> dict[str, Tariff]:
    """Return the prices by `provider/model`; raise `ConfigurationError` if the file is no good.

    `named_by` is what says where the file is.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except OSError as error:
        raise ConfigurationError(
            f"prices file {path} cannot be read: {error.strerror}; name it with {named_by}"
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"prices file {path}: {error}") from error
    return {name: _tariff(path, name, price) for name, price in document.items()}


def _tariff(path: Path, name: str, described: Any) -> Tariff:
    if not all(name.partition("/")) or not isinstance(described, Mapping):
        raise ConfigurationError(
            f"prices file {path}: {name!r} is no table of a `provider/model`;"
            ' write ["openai/my-model"]'
        )
    try:
        price = _Price.model_validate(described)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        said = "no such field" if first["type"] == "extra_forbidden" else first["msg"]
        raise ConfigurationError(f"prices file {path}: {name}: {place}: {said}") from error
    return plain_tariff(price.input, price.output, price.cache_read, price.cache_write)
