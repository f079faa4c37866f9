"""A batch's items as they come in: checked one by one, and encoded for the store."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import orjson
from pydantic import Field

from milepost.api.bodies import FIELD_ERRORS_MAX, Body, loads, parse
from milepost.api.new_runs import RunInput, messages_of
from milepost.api.paging import METADATA_MAX
from milepost.api.problems import BodyError, FieldError
from milepost.core.errors import InvalidError
from milepost.runtime.agent_spec import Metadata

ITEMS_MAX = 10_000
CHUNK_BYTES = 524_288


class BatchItem(Body):
    """One item: what a run is to be given, and the caller's own name for it."""

    input: RunInput
    metadata: Metadata = Field(default_factory=dict)
    custom_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class Items:
    """Takes items in their order; what does not fit is remembered with its index.

    `metadata` is the batch's, which each of its runs has under what its item says.
    """

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self.total = 0
        self._metadata = metadata
        self._places: dict[str, int] = {}
        self._errors: list[FieldError] = []
        self._wrong = 0
        self._rows: list[bytes] = []
        self._rows_bytes = 0
        self._chunks: list[str] = []

    def add_all(self, values: Sequence[Any]) -> None:
        """Take items that are JSON already."""
        for value in values:
            self._add(value)

    def add_lines(self, lines: Sequence[bytes]) -> None:
        """Take items that are a line each; an empty line is none."""
        for line in lines:
            if not line.strip():
                continue
            try:
                value = loads(line)
            except InvalidError as error:
                self._refuse(FieldError(self._pointer(), str(error)))
                self.total += 1
                continue
            self._add(value)

    def chunks(self) -> list[str]:
        """Return all items as the store takes them. Raises `BodyError` if any does not fit."""
        if not self.total:
            self._refuse(FieldError("/items", "a batch has one item at least"))
        if self._errors:
            raise BodyError(self._errors, total=self._wrong)
        self._close_chunk()
        return self._chunks

    def _add(self, value: Any) -> None:
        if self.total == ITEMS_MAX:
            raise InvalidError(
                f"a batch has at most {ITEMS_MAX} items; make several", pointer="/items"
            )
        try:
            self._take(parse(BatchItem, value))
        except BodyError as error:
            for each in error.errors:
                self._refuse(FieldError(self._pointer(each.pointer), each.detail))
        self.total += 1

    def _take(self, item: BatchItem) -> None:
        metadata = {**self._metadata, **item.metadata} if item.metadata else {}
        if len(metadata) > METADATA_MAX:
            told = f"with the batch's own these are more than {METADATA_MAX} pairs"
            self._refuse(FieldError(self._pointer("/metadata"), told))
        if item.custom_id is not None:
            first = self._places.setdefault(item.custom_id, self.total)
            if first != self.total:
                raise InvalidError(
                    f"item {first} is called {item.custom_id!r}, and so is item {self.total}",
                    code="duplicate_custom_id",
                    pointer=self._pointer("/custom_id"),
                )
        if self._errors:
            return  # Nothing will be kept: only what else is wrong counts.
        row = {
            "place": self.total,
            "custom_id": item.custom_id,
            "input": orjson.dumps(messages_of(item.input)).decode(),
            "metadata": orjson.dumps(metadata).decode() if metadata else None,
        }
        self._keep(orjson.dumps(row))

    def _keep(self, row: bytes) -> None:
        self._rows.append(row)
        self._rows_bytes += len(row)
        if self._rows_bytes >= CHUNK_BYTES:
            self._close_chunk()

    def _close_chunk(self) -> None:
        if self._rows:
            self._chunks.append(f"[{b','.join(self._rows).decode()}]")
        self._rows, self._rows_bytes = [], 0

    def _pointer(self, within: str = "") -> str:
        return f"/items/{self.total}{within}"

    def _refuse(self, error: FieldError) -> None:
        self._wrong += 1
        if len(self._errors) < FIELD_ERRORS_MAX:
            self._errors.append(error)
