"""JSON that is written once and sent many times: tools and schemas outlive the requests."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

import orjson

KEPT_MAX = 1_024

T = TypeVar("T")


class EncodedOnce(Generic[T]):
    """The JSON of what `shape` makes of things that never change, of the `KEPT_MAX` used last."""

    def __init__(self, shape: Callable[[T], object]) -> None:
        self._shape = shape
        # The thing is kept beside its JSON, so that nothing else can come to have its id.
        self._kept: OrderedDict[int, tuple[T, orjson.Fragment]] = OrderedDict()

    def of(self, thing: T) -> orjson.Fragment:
        """Return the JSON of `thing`, to stand in a larger document."""
        if (kept := self._kept.get(id(thing))) is not None:
            self._kept.move_to_end(id(thing))
            return kept[1]
        fragment = orjson.Fragment(orjson.dumps(self._shape(thing)))
        self._kept[id(thing)] = (thing, fragment)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return fragment
