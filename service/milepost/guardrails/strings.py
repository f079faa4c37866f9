"""The strings in a JSON value, changed one by one; its shape stays as it is."""

from collections.abc import Callable

from milepost.core.json import Json

Change = Callable[[str], str]


def changed(value: Json, change: Change) -> Json:
    """Return the value with `change` made to each string in it, names and numbers included.

    A number stays one unless it is changed. Names that come out the same are told apart.
    """
    match value:
        case str():
            return change(value)
        case list():
            return [changed(item, change) for item in value]
        case dict():
            named: dict[str, Json] = {}
            for name, item in value.items():
                named[_free(change(name), named)] = changed(item, change)
            return named
        case bool() | None:
            return value
        case _:
            text = str(value)
            return value if (instead := change(text)) == text else instead


def _free(name: str, taken: dict[str, Json]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name} ({number})" in taken:
        number += 1
    return f"{name} ({number})"
