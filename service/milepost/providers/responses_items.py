"""The items of a reply of the Responses API, told apart by what servers send of their identity."""

from collections.abc import Iterator, Mapping

from milepost.core.json import Json
from milepost.providers.failures import Failures
from milepost.providers.payload import text

ITEMS_MAX = 1_024
NOWHERE = -1

Event = Mapping[str, object]


class Item:
    """One thing that a reply consists of: a message, some reasoning, a call, or what is new to us.

    `pieces` is what came of it in pieces, `ordinal` a call's number, and `mark` what it is
    remembered by. It is `whole` when nothing more can come of it, and `closed` when all was said.
    """

    __slots__ = (
        "announced", "closed", "index", "kind", "mark", "name", "ordinal", "pieces", "whole",
    )  # fmt: skip

    def __init__(self, kind: str, index: int, ordinal: int) -> None:
        self.kind = kind
        self.index = index
        self.ordinal = ordinal
        self.name = ""
        self.pieces: list[str] = []
        self.mark: Mapping[str, Json] | None = None
        self.announced = False
        self.whole = False
        self.closed = False

    def ended_elsewhere(self, index: int) -> bool:
        """Say whether something at `index` must be another item, although it has the same id."""
        return self.closed and index >= 0 and self.index not in {NOWHERE, index}


class Items:
    """All items of a reply, in the order in which they began.

    OpenAI says both an id and an index with everything. Others say one of the two, repeat ids,
    or make up a new one for each event, so that each is believed only as far as it fits.
    """

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._all: list[Item] = []
        self._by_both: dict[tuple[str, int], Item] = {}
        self._by_id: dict[str, Item] = {}
        self._by_index: dict[int, Item] = {}
        self._latest: dict[str, Item] = {}
        self.calls = 0

    def __iter__(self) -> Iterator[Item]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def of(self, event: Event, kind: str) -> Item:
        """Return the item that a piece belongs to; one that was not announced begins with it."""
        return self._item(text(event.get("item_id")), _index(event), kind)

    def announced(self, event: Event, told: Event) -> Item:
        """Return the item that begins, or that a piece of it had begun too early."""
        item_id, index, kind = text(told.get("id")), _index(event), text(told.get("type"))
        item = self._by_both.get((item_id, index))
        if item is None or item.kind != kind:
            item = self._found(item_id, index, kind)
            if item is None or item.announced:
                item = self._opened(item_id, index, kind)
        item.announced = True
        return item

    def ended(self, event: Event, told: Event) -> Item:
        """Return the item that is told as a whole."""
        return self._item(text(told.get("id")), _index(event), text(told.get("type")))

    def _item(self, item_id: str, index: int, kind: str) -> Item:
        item = self._by_both.get((item_id, index))
        if item is not None and item.kind == kind:
            return item
        return self._found(item_id, index, kind) or self._opened(item_id, index, kind)

    def _found(self, item_id: str, index: int, kind: str) -> Item | None:
        for item in (self._by_id.get(item_id), self._by_index.get(index)):
            if item is not None and item.kind == kind and not item.ended_elsewhere(index):
                return item
        latest = self._latest.get(kind)
        return None if item_id or latest is None or latest.closed else latest

    def _opened(self, item_id: str, index: int, kind: str) -> Item:
        if len(self._all) >= ITEMS_MAX:
            raise self._failures.unreadable(f"a reply of more than {ITEMS_MAX} items", b"")
        item = Item(kind, index, self.calls)
        self._all.append(item)
        self.calls += kind == "function_call"
        self._latest[kind] = item
        if item_id:
            self._by_id[item_id] = item
        if index != NOWHERE:
            self._by_index[index] = item
            self._by_both[item_id, index] = item
        return item


def _index(event: Event) -> int:
    index = event.get("output_index")
    return index if type(index) is int and index >= 0 else NOWHERE
