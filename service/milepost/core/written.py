"""What of a call's arguments somebody wrote, where defaults were put in for what was left out."""

from collections.abc import Mapping
from typing import cast

from milepost.core.json import Json


def written(
    changed: Mapping[str, Json], shown: Mapping[str, Json], given: Mapping[str, Json]
) -> dict[str, Json]:
    """Return arguments that somebody may have changed without what nobody wrote of them.

    `shown` are those that were there to be changed, `given` what the model wrote of these. What is
    as it was shown, and the model had left out, is left out still: rules may ask for just that.
    """
    return cast("dict[str, Json]", _written(dict(changed), dict(shown), dict(given)))


def _written(changed: Json, shown: Json, given: Json) -> Json:
    match changed, shown, given:
        case dict(), dict(), dict():
            return {
                name: _written(value, shown.get(name), given.get(name))
                for name, value in changed.items()
                if name in given or name not in shown or value != shown[name]
            }
        case list(), list(), list() if len(changed) == len(shown) == len(given):
            return [*map(_written, changed, shown, given)]
        case _:
            return changed
